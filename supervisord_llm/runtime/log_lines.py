"""A worker's stderr as lines for people: split, cut, and told at a bounded rate.

A worker may write without end, without newlines, and not in UTF-8; none of that costs memory or
floods the event log. Every line is kept among a slot's last ones; only its way into the event log
is limited.
"""

from __future__ import annotations

_LONGEST_BYTES = 4096
_LINES_PER_SECOND = 20.0
_BURST_LINES = 200.0


class LogLines:
    """Splits one worker's stderr into lines."""

    def __init__(self) -> None:
        """Begin at the beginning of a line."""
        self._partial = b""
        self._cutting = False

    def feed(self, data: bytes) -> list[str]:
        """The lines that ``data`` completes, without empty ones, each cut at 4096 bytes."""
        *complete, partial = (self._partial + data).split(b"\n")
        found: list[bytes] = []
        for raw in complete:
            if not self._cutting:
                found.append(raw)
            self._cutting = False  # the end of a line whose beginning was told
        if len(partial) > _LONGEST_BYTES:
            if not self._cutting:
                found.append(partial)
            self._cutting, partial = True, b""
        self._partial = partial
        texts = (raw[:_LONGEST_BYTES].decode("utf-8", "replace").rstrip("\r") for raw in found)
        return [text for text in texts if text]

    def finish(self) -> list[str]:
        """The last line, if it was left without an end."""
        return self.feed(b"\n") if self._partial else []


class LogRate:
    """How many lines reach the event log: a burst, then so many for each second."""

    def __init__(self, now: float) -> None:
        """Start with a full allowance at ``now``."""
        self._allowance = _BURST_LINES
        self._allowance_at = now
        self._dropped = 0

    def admit(self, now: float) -> int | None:
        """How many lines were dropped before this one; ``None`` if this one is dropped too."""
        earned = (now - self._allowance_at) * _LINES_PER_SECOND
        self._allowance = min(_BURST_LINES, self._allowance + earned)
        self._allowance_at = now
        if self._allowance < 1.0:
            self._dropped += 1
            return None
        self._allowance -= 1.0
        dropped, self._dropped = self._dropped, 0
        return dropped
