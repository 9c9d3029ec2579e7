"""Arm -> Elapsed: all the deadlines of one owner in one task.

Arming a key again replaces its deadline; nobody needs to cancel one, since the machines ignore a
timer that comes late. The alternative, a task per timer, was not taken: a timer that has become
irrelevant would keep its task until it fires.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable

import trio


class Timers:
    """Deadlines by key, fired in the order of their times."""

    def __init__(self) -> None:
        """Make an empty set; `run` fires what is armed."""
        self._armed: dict[Hashable, tuple[float, Callable[[float], None]]] = {}
        self._earliest = math.inf
        self._changed = trio.Event()

    def arm(self, key: Hashable, at: float, fire: Callable[[float], None]) -> None:
        """Call ``fire(now)`` once the clock has reached ``at``, unless re-armed before."""
        self._armed[key] = (at, fire)
        if at < self._earliest:
            self._earliest = at
            self._changed.set()

    def disarm(self, key: Hashable) -> None:
        """Forget a deadline, if it is armed."""
        self._armed.pop(key, None)

    def disarm_all(self) -> None:
        """Forget every deadline."""
        self._armed.clear()
        self._earliest = math.inf

    async def run(self) -> None:
        """Fire deadlines for as long as the task lives."""
        while True:
            self._changed = trio.Event()
            self._earliest = min((at for at, _ in self._armed.values()), default=math.inf)
            with trio.move_on_at(self._earliest):
                await self._changed.wait()
            now = trio.current_time()
            due = sorted(
                ((at, key) for key, (at, _) in self._armed.items() if at <= now),
                key=lambda entry: entry[0],
            )
            for at, key in due:
                # An earlier one of this round may have re-armed or dropped it.
                armed = self._armed.get(key)
                if armed is not None and armed[0] == at:
                    del self._armed[key]
                    armed[1](now)
