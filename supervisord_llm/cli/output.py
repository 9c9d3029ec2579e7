"""Printing: without stopping the event loop, without breaking a terminal, and for eyes.

A reader that pauses (``| less``) makes an ordinary write block, and with it the handling of Ctrl-C.
So standard output is waited for through the event loop, and then gets no more at once than a pipe
that reports room is sure to take.
"""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime

import trio

from supervisord_llm.errors import SupervisordError

PIPE_ROOM = 4096
"""Bytes that a pipe takes whole when it is writable: PIPE_BUF on Linux."""

# Text from models and workers may hold escape sequences, which are commands to a terminal. They are
# shown as the symbols that Unicode has for control characters.
_PRINTABLE = {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\n\t"}
_PRINTABLE |= {0x7F: 0x2421} | dict.fromkeys(range(0x80, 0xA0), 0xFFFD)

# The same for JSON, in which the other control characters are written like this anyway.
_JSON_ESCAPES = {code: f"\\u{code:04x}" for code in range(0x7F, 0xA0)}


def printable(text: str) -> str:
    """The text with its control characters made visible; newlines and tabs stay."""
    return text.translate(_PRINTABLE)


class OutputError(SupervisordError):
    """Standard output does not take what is written, for example because a disk is full."""


class Output:
    """Standard output, written as text arrives."""

    def __init__(self) -> None:
        self._encoding = sys.stdout.encoding or "utf-8"

    async def write(self, text: str) -> None:
        """Write all of it.

        `BrokenPipeError` when nobody reads any more, `OutputError` when it cannot be written.
        """
        sys.stdout.flush()
        descriptor = sys.stdout.fileno()
        rest = memoryview(text.encode(self._encoding, "replace"))
        while rest:
            await _wait_writable(descriptor)
            try:
                rest = rest[os.write(descriptor, rest[:PIPE_ROOM]) :]
            except BlockingIOError:  # somebody else filled it, and made it non-blocking
                continue
            except BrokenPipeError:
                raise
            except OSError as error:
                raise OutputError(f"cannot write the output: {error.strerror}") from error

    async def write_json(self, line: bytes) -> None:
        """Write a line of JSON as it came, but for characters that a terminal would obey.

        Raises what `write` does.
        """
        await self.write(line.decode().translate(_JSON_ESCAPES) + "\n")


async def _wait_writable(descriptor: int) -> None:
    try:
        await trio.lowlevel.wait_writable(descriptor)
    except PermissionError:  # a regular file, which epoll does not take and which never blocks
        await trio.lowlevel.checkpoint()


def duration(milliseconds: float) -> str:
    """A duration as prose says it: ``0.4 ms``, ``37 ms``, ``2.1 s``."""
    if milliseconds < 0.1:  # a zero would look like a fault of the measurement
        return "<0.1 ms"
    if milliseconds < 0.95:
        return f"{milliseconds:.1f} ms"
    if milliseconds < 999.5:
        return f"{milliseconds:.0f} ms"
    seconds = milliseconds / 1000
    return f"{seconds:.1f} s" if seconds < 60 else span(seconds)


def span(seconds: float) -> str:
    """A long duration by its two largest units, one word: ``12s``, ``3m05s``, ``2d07h``."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02}h"


def since(timestamp: str) -> str:
    """How long ago an RFC 3339 time was, as one word."""
    return span((datetime.now(UTC) - datetime.fromisoformat(timestamp)).total_seconds())


def clock(timestamp: str) -> str:
    """An RFC 3339 time as the local time of day, to the millisecond; anything else as it is."""
    try:
        moment = datetime.fromisoformat(timestamp).astimezone()
    except ValueError:
        return timestamp
    return moment.strftime("%H:%M:%S.") + f"{moment.microsecond // 1000:03}"


def size(count: int | None) -> str | None:
    """Bytes in binary units, one word: ``512B``, ``1.4MiB``; ``None`` stays ``None``."""
    if count is None:
        return None
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f}{unit}" if unit == "B" else f"{value:.1f}{unit}"
        value /= 1024
    return f"{value:.1f}TiB"
