"""Events as lines on stderr: JSON for programs, columns for people.

structlog does the filtering by level and the columns. It is used through a logger of our own that
is passed around; nothing is configured for the whole process.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

import structlog
from structlog.dev import Column, ConsoleRenderer, KeyValueColumnFormatter
from structlog.typing import EventDict, Processor, WrappedLogger

from supervisord_llm.events import Level
from supervisord_llm.telemetry.record import Record, fields
from supervisord_llm.telemetry.sink import LineSink

Format = Literal["auto", "json", "console"]

_DIM, _BOLD, _RED, _GREEN, _YELLOW, _CYAN, _RESET = (
    f"\033[{code}m" for code in (2, 1, 31, 32, 33, 36, 0)
)
_LEVEL_STYLES = {"debug": _DIM, "info": _GREEN, "warning": _YELLOW, "error": _RED}
_LEVEL_WIDTH = len("warning")
_EVENT_WIDTH = len("worker.restart_scheduled")
_IDS = ("pool", "worker", "generation", "request")


class Renderer:
    """Writes records of a level and above as lines."""

    target = "stderr"
    remedy = (
        "make whatever reads stderr faster, or raise log.level; the control API still has the last "
        "events"
    )

    def __init__(
        self, sink: LineSink, *, style: Literal["json", "console"], level: Level, colours: bool
    ) -> None:
        """Render into ``sink``, which is closed with the renderer."""
        self._sink = sink
        processors: list[Processor] = [_take_encoded]
        if style == "console":
            processors = [_spread, _Columns(colours=colours)]
        number = logging.getLevelNamesMapping()[level.upper()]
        self._logger: Any = structlog.wrap_logger(
            _Lines(sink),
            processors=processors,
            wrapper_class=structlog.make_filtering_bound_logger(number),
            context_class=dict,
        ).bind()

    def __call__(self, record: Record) -> None:
        """Write a record, or drop it where stderr does not take it."""
        getattr(self._logger, record.event.level)("", record=record)

    @property
    def recovered(self) -> bool:
        """Whether lines were dropped since `take_lost`, but the last one was taken."""
        return self._sink.lost > 0 and self._sink.taking

    def take_lost(self) -> int:
        """The number of lines that were dropped, which is forgotten by this."""
        return self._sink.take_lost()

    def close(self) -> None:
        """Finish the last line, within a bound, and let go of the file."""
        self._sink.close()


def stderr_renderer(
    *, style: Format, level: Level, fd: int = 2, environ: Mapping[str, str] = os.environ
) -> Renderer:
    """A renderer for the daemon's stderr.

    Args:
        style: ``auto`` means columns on a terminal and JSON elsewhere.
        level: the least level that is written.
        fd: the descriptor; it stays the caller's.
        environ: ``NO_COLOR`` (no-color.org) and ``TERM=dumb`` turn colours off.
    """
    terminal = _is_terminal(fd)
    if style == "auto":
        style = "console" if terminal else "json"
    colours = terminal and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"
    return Renderer(LineSink(fd), style=style, level=level, colours=colours)


class _Lines:
    """What structlog takes for a logger: a method for each level."""

    def __init__(self, sink: LineSink) -> None:
        self._sink = sink

    def _write(self, line: str | bytes) -> None:
        encoded = line.encode("utf-8", "backslashreplace") if isinstance(line, str) else line
        self._sink.write(encoded + b"\n")

    debug = info = warning = error = _write


def _take_encoded(_logger: WrappedLogger, _method: str, event_dict: EventDict) -> bytes:
    record: Record = event_dict["record"]
    return record.encoded


def _spread(_logger: WrappedLogger, _method: str, event_dict: EventDict) -> EventDict:
    """A record as the columns: time, level, event, ids, then the rest in its own order."""
    record: Record = event_dict["record"]
    rest = fields(record.event)
    moment = datetime.fromtimestamp(record.time, UTC).astimezone()
    spread: EventDict = {
        "ts": moment.strftime("%H:%M:%S.") + f"{moment.microsecond // 1000:03}",
        "level": record.event.level,
        "event": rest.pop("event"),
    }
    if ids := _ids(rest):
        spread["ids"] = ids
    if rest.get("stream") == "stderr":
        del rest["stream"]
        spread["line"] = rest.pop("line")
    # Both are what the console renderer puts below the line.
    if lines := rest.pop("last_lines", None):
        spread["stack"] = "\n".join(f"    {printable(line)}" for line in lines)
    if traceback := rest.pop("traceback", None):
        spread["exception"] = "\n".join(printable(line) for line in traceback.splitlines())
    spread.update((key, value) for key, value in rest.items() if value is not None)
    return spread


def _ids(rest: dict[str, Any]) -> str:
    pool, worker, generation, request = (rest.pop(key, None) for key in _IDS)
    place = pool if worker is None else worker  # a worker's name begins with its pool's
    if generation is not None:
        place = f"{place}/{generation}"
    return " ".join(printable(name) for name in (place, request) if name)


class _Columns(ConsoleRenderer):
    """The readable line, with colours or without."""

    def __init__(self, *, colours: bool) -> None:
        def style(code: str) -> str:
            return code if colours else ""

        def bare(code: str = "", width: int = 0) -> KeyValueColumnFormatter:
            return KeyValueColumnFormatter(
                key_style=None,
                value_style=style(code),
                reset_style=style(_RESET) if code else "",
                value_repr=printable,
                width=width,
            )

        def level(key: str, value: object) -> str:  # noqa: ARG001 - structlog names them
            name = str(value)
            return style(_LEVEL_STYLES[name]) + name.ljust(_LEVEL_WIDTH) + style(_RESET)

        pair = KeyValueColumnFormatter(
            key_style=style(_DIM), value_style="", reset_style=style(_RESET), value_repr=_value
        )
        columns = [
            Column("ts", bare(_DIM)),
            Column("level", level),
            Column("event", bare(_BOLD, _EVENT_WIDTH)),
            Column("ids", bare(_CYAN)),
            Column("line", bare()),
            Column("", pair),
        ]
        super().__init__(columns=columns, sort_keys=False)


def _value(value: object) -> str:
    if not isinstance(value, str):
        return printable(json.dumps(value, ensure_ascii=False))
    plain = value and value.isprintable() and not set(value) & set(" \"'=")
    return value if plain else json.dumps(value, ensure_ascii=not value.isprintable())


def printable(value: object) -> str:
    """Text that cannot move the cursor: a worker's output is not to be trusted with a terminal."""
    text = str(value)
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() or character == "\t" else _escaped(character)
        for character in text
    )


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def _is_terminal(fd: int) -> bool:
    try:
        return os.isatty(fd)
    except OSError:
        return False
