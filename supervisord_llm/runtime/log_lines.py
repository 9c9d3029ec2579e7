"""A worker's stderr as lines for people: cut, rate-limited for the event log, the last ones kept.

A worker may write without end, without newlines, and not in UTF-8; none of that costs memory or
floods the log. Every line may be among the last ones that an exit is reported with; only the way
into the event log is limited.
"""

from __future__ import annotations

from collections import deque

import msgspec

_LONGEST_BYTES = 4096
_KEPT_LINES = 50
_REPORTED_LINES = 10
_LINES_PER_SECOND = 20.0
_BURST_LINES = 200.0


class LogLine(msgspec.Struct, frozen=True):
    """A line for the event log, and how many before it were over the rate."""

    text: str
    dropped: int


class LogLines:
    """Splits one worker's stderr and keeps its end."""

    def __init__(self, now: float) -> None:
        """Start with a full allowance at ``now``."""
        self._partial = b""
        self._cutting = False
        self._kept: deque[str] = deque(maxlen=_KEPT_LINES)
        self._allowance = _BURST_LINES
        self._allowance_at = now
        self._dropped = 0

    def feed(self, data: bytes, now: float) -> list[LogLine]:
        """The lines that ``data`` completes, as far as the rate allows."""
        *complete, partial = (self._partial + data).split(b"\n")
        lines: list[LogLine] = []
        for raw in complete:
            if self._cutting:
                self._cutting = False  # the end of a line whose beginning was told
                continue
            if line := self._admit(raw, now):
                lines.append(line)
        if len(partial) > _LONGEST_BYTES:
            if not self._cutting and (line := self._admit(partial, now)):
                lines.append(line)
            self._cutting, partial = True, b""
        self._partial = partial
        return lines

    def finish(self, now: float) -> list[LogLine]:
        """The last line, if it was left without an end."""
        return self.feed(b"\n", now) if self._partial else []

    def _admit(self, raw: bytes, now: float) -> LogLine | None:
        text = raw[:_LONGEST_BYTES].decode("utf-8", "replace").rstrip("\r")
        if not text:
            return None
        self._kept.append(text)
        self._allowance = min(
            _BURST_LINES, self._allowance + (now - self._allowance_at) * _LINES_PER_SECOND
        )
        self._allowance_at = now
        if self._allowance < 1.0:
            self._dropped += 1
            return None
        self._allowance -= 1.0
        dropped, self._dropped = self._dropped, 0
        return LogLine(text, dropped)

    def last(self) -> list[str]:
        """The last lines, for the report of an exit or a quarantine."""
        return list(self._kept)[-_REPORTED_LINES:]
