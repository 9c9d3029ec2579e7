"""Bytes to lines, across any boundary between two reads, in bounded memory.

The limit exists because the other side is a program that may have gone wrong: without one, a worker
that never ends its line grows the daemon instead of itself. It is judged as soon as it is passed,
not when the newline comes, so that at most one line and one read are ever held.
"""

from __future__ import annotations


class LineSplitter:
    r"""Splits a stream of bytes at each ``\n``; a line is at most ``max_line`` bytes with it."""

    def __init__(self, max_line: int) -> None:
        """Start at the beginning of a line."""
        self._max_line = max_line
        self._started = bytearray()
        self._too_long: bytes | None = None

    @property
    def too_long(self) -> bytes | None:
        """How the line begins that went over the limit, if one did; nothing is split after it."""
        return self._too_long

    @property
    def started(self) -> bytes:
        """The line that has begun and not ended."""
        return bytes(self._started)

    def feed(self, data: bytes) -> list[bytes]:
        """Take the next bytes and return the lines that they complete, without their newlines.

        When a line goes over the limit, the lines before it are returned and `too_long` is set.
        """
        if self._too_long is not None:
            return []
        lines = data.split(b"\n")
        rest = lines.pop()
        held = len(self._started)
        if lines and held:
            self._started += lines[0]
            lines[0] = bytes(self._started)
            self._started.clear()
        self._started += rest
        # Together they are shorter than one line may be: the usual case needs no look at each.
        if held + len(data) >= self._max_line:
            self._judge(lines)
        return lines

    def _judge(self, lines: list[bytes]) -> None:
        for index, line in enumerate(lines):
            if len(line) >= self._max_line:
                self._too_long = line[: self._max_line]
                del lines[index:]
                break
        else:
            if len(self._started) < self._max_line:
                return
            self._too_long = bytes(self._started[: self._max_line])
        self._started.clear()
