"""``llmctl events``: what happened, one line per event."""

from __future__ import annotations

from typing import Literal, get_args

import click
import msgspec
from rich.text import Text

from supervisord_llm.cli.output import clock, printable
from supervisord_llm.cli.session import ExitCode, Session, command, examples
from supervisord_llm.client import EventStream
from supervisord_llm.client.streams import gap

Level = Literal["debug", "info", "warning", "error"]

_LEVEL_STYLES = {"debug": "dim", "info": "green", "warning": "yellow", "error": "bold red"}
_LEVELS: tuple[object, ...] = get_args(Level)
_TOLD_APART = {"ts", "seq", "level", "event", "pool", "worker", "generation", "request"}
_FOR_PROGRAMS = {"gaps", "gaps_ms"}
NAME_WIDTH = 24
"""Columns for an event's name, which fits all but the longest."""


@click.command(
    short_help="Show the event log.",
    epilog=examples(
        "llmctl events | tail -50",
        "llmctl events -f",
        "llmctl events --json -f | jq 'select(.event == \"cancel.settled\")'",
    ),
)
@click.option("-f", "--follow", is_flag=True, help="Go on with what happens next.")
@click.option(
    "--since",
    type=click.IntRange(min=0),
    metavar="SEQ",
    help="Begin after this sequence number; by default as far back as the daemon remembers.",
)
@click.option(
    "--level",
    type=click.Choice(get_args(Level)),
    default="info",
    show_default=True,
    help="Leave out what is less than this; not with --json.",
)
@command
async def events(session: Session, *, follow: bool, since: int | None, level: Level) -> ExitCode:
    """Show the event log: what happened to workers and requests, and why.

    With --json all events come, with all their fields.
    """
    async with session.client() as client, client.events(follow=follow, since=since) as stream:
        if session.as_json:
            await _pass_on(session, stream)
        else:
            async for event in stream:
                if _ranks(event.get("level")) >= _ranks(level):
                    await session.print(*_render(event))
    if follow:
        session.complain("the daemon ended the stream, it is stopping")
        return ExitCode.UNREACHABLE
    return ExitCode.DONE


async def _pass_on(session: Session, stream: EventStream) -> None:
    """Print the lines as they came: a newer daemon's fields are none of our business."""
    await session.out.write_json(stream.raw)
    async for _ in stream:
        await session.out.write_json(stream.raw)


def _ranks(level: object) -> int:
    """A level's place among the levels; what a newer daemon says is not left out."""
    return _LEVELS.index(level) if level in _LEVELS else len(_LEVELS)


def _render(event: dict[str, object]) -> list[Text]:
    lost = gap(event)
    if lost is not None:
        count = lost.last - lost.first + 1
        return [Text(f"({count} events are gone: {lost.first} to {lost.last})", style="yellow")]
    level = str(event.get("level", "info"))
    line = Text.assemble(
        (clock(str(event.get("ts", ""))), "dim"),
        " ",
        (f"{level:7}", _LEVEL_STYLES.get(level, "")),
        " ",
        (printable(f"{event.get('event', '?'):{NAME_WIDTH}}"), "bold"),
    )
    if identity := _identity(event):
        line.append(f" {printable(identity)}", style="cyan")
    blocks: list[Text] = []
    for key, value in event.items():
        if key in _TOLD_APART | _FOR_PROGRAMS:
            continue
        if (lines := _block(key, value)) is not None:
            blocks += [Text(f"    | {printable(part)}", style="dim") for part in lines]
        else:
            line.append(f" {printable(key)}=", style="dim")
            line.append(_value(value))
    return [line, *blocks]


def _identity(event: dict[str, object]) -> str:
    """Who an event is about: ``smollm.0/3``, or the pool alone, then the request."""
    where = event.get("worker") or event.get("pool")
    if where and "generation" in event:
        where = f"{where}/{event['generation']}"
    return " ".join(str(part) for part in (where, event.get("request")) if part)


def _block(key: str, value: object) -> list[str] | None:
    """The lines of a field that is shown below its event, as a worker's last lines are."""
    if key == "last_lines" and isinstance(value, list):
        return [str(part) for part in value]
    if isinstance(value, str) and "\n" in value:
        return value.splitlines()
    return None


def _value(value: object) -> str:
    """A field as one word where that is possible, else as JSON."""
    if isinstance(value, str) and value and not value.isspace() and len(value.split()) == 1:
        return printable(value)
    if isinstance(value, float):
        return f"{value:.6g}"
    return printable(msgspec.json.encode(value).decode())
