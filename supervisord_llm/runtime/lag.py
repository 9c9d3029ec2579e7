"""How late the event loop wakes for its own timer: the one health that no model can spoil."""

from __future__ import annotations

from collections.abc import Callable

import trio

_INTERVAL_SECONDS = 0.25
_TOLD_SECONDS = 0.05
"""A lag under this is the scheduler's ordinary noise and not worth an event."""


class LagMeter:
    """Sleeps again and again and measures by how much it overslept."""

    def __init__(self, tell: Callable[[float], None]) -> None:
        """``tell`` takes each noteworthy lag, in seconds."""
        self._tell = tell
        self._last = 0.0
        self._due = trio.current_time() + _INTERVAL_SECONDS

    @property
    def seconds(self) -> float:
        """The last lag, or the one that is building up now if that is longer."""
        return max(self._last, trio.current_time() - self._due)

    async def run(self) -> None:
        """Measure until cancelled."""
        while True:
            self._due = trio.current_time() + _INTERVAL_SECONDS
            await trio.sleep_until(self._due)
            self._last = max(0.0, trio.current_time() - self._due)
            if self._last >= _TOLD_SECONDS:
                self._tell(self._last)
