"""The last lines that a slot's workers wrote, kept across generations for whoever asks.

Bounded in lines and in bytes. A follower is a number and nothing more, as with the events: one that
falls behind by more than what is kept sees from the numbers which lines it missed.
"""

from __future__ import annotations

from collections import deque

import msgspec
import trio

_KEPT_LINES = 1000
_KEPT_BYTES = 256 * 1024


class LoggedLine(msgspec.Struct, frozen=True):
    """One line of a worker's stderr."""

    number: int
    """Counted from 1 for each slot, without holes."""
    at: float
    """Seconds on the monotonic clock."""
    generation: int
    text: str


class LogBook:
    """One slot's last lines."""

    def __init__(self) -> None:
        """Nothing was written yet."""
        self._lines: deque[LoggedLine] = deque()
        self._bytes = 0
        self._last_number = 0
        self._more = trio.lowlevel.ParkingLot()

    @property
    def last_number(self) -> int:
        """The number of the newest line; 0 before the first."""
        return self._last_number

    def add(self, at: float, generation: int, text: str) -> None:
        """Write a line down."""
        self._last_number += 1
        self._lines.append(LoggedLine(self._last_number, at, generation, text))
        self._bytes += len(text)
        while len(self._lines) > _KEPT_LINES or self._bytes > _KEPT_BYTES:
            self._bytes -= len(self._lines.popleft().text)
        self._more.unpark_all()

    def last(self, count: int) -> list[LoggedLine]:
        """The last ``count`` lines, as far as they are kept, oldest first."""
        return list(self._lines)[-count:] if count > 0 else []

    def of_generation(self, generation: int, count: int) -> list[str]:
        """What a worker's last ``count`` lines say."""
        return [line.text for line in self._lines if line.generation == generation][-count:]

    async def wait_after(self, number: int) -> list[LoggedLine]:
        """Wait for lines newer than ``number``; those that are kept, oldest first."""
        while self._last_number <= number:
            await self._more.park()
        return [line for line in self._lines if line.number > number]
