"""One monotonic clock for every deadline, and its translation into wall-clock time for people."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import trio


class Clock:
    """Monotonic seconds, as trio counts them, tied to the wall clock when it was made."""

    def __init__(self) -> None:
        """Tie trio's clock to the wall clock; call it inside ``trio.run``."""
        self._wall_minus_monotonic = time.time() - trio.current_time()

    def now(self) -> float:
        """Seconds on the clock that all deadlines use."""
        return trio.current_time()

    def unix(self, at: float) -> float:
        """The moment ``at`` in seconds of Unix time."""
        return at + self._wall_minus_monotonic

    def at(self, unix: float) -> float:
        """A moment of Unix time on the clock that all deadlines use."""
        return unix - self._wall_minus_monotonic

    def rfc3339(self, at: float) -> str:
        """The moment ``at`` in UTC, with milliseconds."""
        moment = datetime.fromtimestamp(at + self._wall_minus_monotonic, UTC)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
