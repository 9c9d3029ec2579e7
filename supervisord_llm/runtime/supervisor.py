"""All pools: started in the order of the configuration, stopped in reverse, in bounded time."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

import trio

from supervisord_llm.config.launch import SlotLaunch
from supervisord_llm.config.schema import CancelConfig, Config
from supervisord_llm.core.words import (
    CancelledBy,
    PoolName,
    RequestId,
    SlotName,
)
from supervisord_llm.host import tree
from supervisord_llm.runtime.channel import Write
from supervisord_llm.runtime.clock import Clock
from supervisord_llm.runtime.life import Tools
from supervisord_llm.runtime.pool import Pool
from supervisord_llm.runtime.records import RecordKeeper
from supervisord_llm.runtime.registry import Registry
from supervisord_llm.runtime.request import Publish, Request
from supervisord_llm.runtime.scans import Scans
from supervisord_llm.runtime.slot import Slot
from supervisord_llm.runtime.turn import Turn

_MARGIN_SECONDS = 2.0
"""Scheduling noise on top of the ladder's length."""
_SWEEP_SECONDS = 5.0
_LAST_SWEEP_SECONDS = 2.0


class Supervisor:
    """The pools of one daemon, and what is asked of all of them."""

    def __init__(
        self,
        config: Config,
        launches: Sequence[SlotLaunch],
        *,
        boot: str,
        publish: Publish,
        records: RecordKeeper,
        launcher: Path,
        sweep: bool,
        write: Write = os.write,
    ) -> None:
        """Make every pool and slot; call it inside ``trio.run``. Nothing is spawned yet.

        Args:
            config: the configuration in force.
            launches: how each slot's workers are started, in the slots' order.
            boot: this daemon's id.
            publish: takes the events.
            records: remembers workers for the next start.
            launcher: the native launcher.
            sweep: whether every child of this process is a worker or was adopted from one, so that
                strays may be reaped and, at the end, killed.
            write: how bytes go to a control pipe.
        """
        self.boot = boot
        self.clock = Clock()
        self.started_at = self.clock.now()
        self.stopping = False
        self._shutdown_drain = config.daemon.shutdown_drain
        self._sweeps = sweep
        self._registry = Registry()
        self._moves = trio.lowlevel.ParkingLot()
        tools = Tools(
            clock=self.clock,
            turn=Turn(),
            publish=publish,
            launcher=launcher,
            records=records,
            scans=Scans(self.clock.now),
            moves=self._moves,
            random=random.Random(),  # noqa: S311 - it places jitter, it keeps no secret
            write=write,
        )
        self.pools: Mapping[PoolName, Pool] = {
            name: Pool(
                name,
                pool,
                [launch for launch in launches if launch.pool == name],
                tools,
                self._registry,
            )
            for name, pool in config.pool.items()
        }
        self.slots: Mapping[SlotName, Slot] = {
            slot.name: slot for pool in self.pools.values() for slot in pool.slots
        }

    # Facts and wishes ---------------------------------------------------------

    def find_request(self, request_id: RequestId) -> Request:
        """A request that is under way, or ended not long ago.

        Raises:
            NotFound: if there is none.
        """
        return self._registry.find(request_id)

    def requests(self) -> list[Request]:
        """The last requests that are over, then those under way, each as they were accepted."""
        return self._registry.all()

    async def wait_first_verdicts(self) -> None:
        """Wait until every required pool is ready, or is known not to become so by itself."""
        required = [pool for pool in self.pools.values() if pool.config.required]
        while not all(pool.has_verdict for pool in required):
            await self.wait_move()

    async def wait_move(self) -> None:
        """Wait until any slot changes its state; look first, without a checkpoint in between."""
        await self._moves.park()

    # Life ---------------------------------------------------------------------

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Own every slot's task until cancelled; call `stop` before that."""
        async with trio.open_nursery() as nursery:
            for slot in self.slots.values():
                await nursery.start(slot.run)
            for pool in self.pools.values():
                nursery.start_soon(pool.expire_queue)
            if self._sweeps:
                nursery.start_soon(self._sweep)
            for slot in self.slots.values():
                slot.start()
            task_status.started()
            await trio.sleep_forever()

    async def stop(self, hurry: trio.Event) -> bool:
        """Stop everything, in bounded time.

        Running work gets ``shutdown_drain`` seconds, or until ``hurry`` is set; what is left is
        cancelled and, where it does not end, torn down with its worker.

        Returns:
            Whether every worker is gone; if not, one could not be reaped.
        """
        self.stopping = True
        for pool in reversed(list(self.pools.values())):
            pool.begin_stop()
        with trio.move_on_after(self._shutdown_drain):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_cancel_when, hurry, nursery.cancel_scope)
                await self._wait_down()
                nursery.cancel_scope.cancel()
        for pool in reversed(list(self.pools.values())):
            pool.cancel_all(CancelledBy.SHUTDOWN)
        with trio.move_on_after(self._ladder_seconds()) as bound:
            await self._wait_down()
        if self._sweeps:
            await self._last_sweep()
        return not bound.cancelled_caught

    async def _wait_down(self) -> None:
        for pool in self.pools.values():
            await pool.wait_down()

    def _ladder_seconds(self) -> float:
        lengths = (_ladder_length(pool.config.cancel) for pool in self.pools.values())
        return max(lengths, default=0.0) + _MARGIN_SECONDS

    # Strays -------------------------------------------------------------------

    async def _sweep(self) -> None:
        """Reap descendants of workers that died as orphans, which the daemon adopted."""
        while True:
            await trio.sleep(_SWEEP_SECONDS)
            self._reap_strays()

    def _reap_strays(self) -> None:
        tree.reap_adopted(tree.adopted_zombies(os.getpid(), workers=self._owned()))

    async def _last_sweep(self) -> None:
        """Kill what no worker accounts for any more; nothing outlives an orderly stop."""
        with trio.move_on_after(_LAST_SWEEP_SECONDS):
            while strays := self._strays():
                for facts in strays:
                    tree.send_signal(facts.pid, facts.start_time, signal.SIGKILL)
                self._reap_strays()
                await trio.sleep(0.01)
        self._reap_strays()

    def _strays(self) -> list[tree.ProcessFacts]:
        processes = tree.scan()
        owned = self._owned()
        found = tree.descendants(os.getpid(), processes)
        return [facts for pid, facts in found.items() if facts.living and pid not in owned]

    def _owned(self) -> set[int]:
        """The processes whose end is a slot's business."""
        slots = self.slots.values()
        pids = [pid for slot in slots for pid in (slot.pid, slot.guardian)]
        return {pid for pid in pids if pid is not None}


def _ladder_length(cancel: CancelConfig) -> float:
    cooperative = max(cancel.cooperative_grace, cancel.prefill_grace)
    return cooperative + cancel.terminate_grace * 2 + cancel.kill_grace + cancel.reap_grace


async def _cancel_when(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel()
