"""Drives `supervisord_llm.core.residency` for all pools that load on demand or share a device."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from supervisord_llm.core import residency
from supervisord_llm.runtime.clock import Clock
from supervisord_llm.runtime.pool import Pool
from supervisord_llm.runtime.timers import Timers
from supervisord_llm.runtime.turn import Turn


class Residence:
    """Decides anew after each change that may matter, and when a deadline of its own passes."""

    def __init__(
        self, pools: Callable[[], Iterable[Pool]], clock: Clock, timers: Timers, turn: Turn
    ) -> None:
        """Nothing is loaded yet."""
        self._pools = pools
        self._clock = clock
        self._timers = timers
        self._turn = turn
        self._due = False
        self._stopping = False

    def look(self) -> None:
        """Decide once what is being done is done."""
        if not self._due:
            self._due = True
            self._turn(self._decide)

    def stop(self) -> None:
        """Decide nothing any more: the daemon stops."""
        self._stopping = True

    def _decide(self) -> None:
        self._due = False
        if self._stopping:
            return
        pools = {pool.name: pool for pool in self._pools() if pool.on_demand}
        if not pools:
            return
        plan = residency.plan([pool.resident() for pool in pools.values()], self._clock.now())
        for name, residence in plan.pools.items():
            if residence.loaded:
                pools[name].load()
            elif pools[name].loaded:
                pools[name].unload(residence.reason)
                self.look()  # with all of its slots parked it is gone already, and nothing moves
        if plan.look_at is None:
            self._timers.disarm(self)
        else:
            self._timers.arm(self, plan.look_at, lambda _: self.look())
