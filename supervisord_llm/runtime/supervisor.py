"""All pools: started in the order of the configuration, stopped in reverse, in bounded time."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Mapping
from pathlib import Path

import trio

from supervisord_llm.config.diff import Difference
from supervisord_llm.config.launch import extra_launch
from supervisord_llm.config.schema import CancelConfig, Config, PoolConfig
from supervisord_llm.core.words import (
    CancelledBy,
    PoolName,
    RejectReason,
    RequestId,
    SlotName,
)
from supervisord_llm.errors import Refused
from supervisord_llm.host import tree
from supervisord_llm.runtime.channel import Write
from supervisord_llm.runtime.clock import Clock
from supervisord_llm.runtime.fleet import Launches
from supervisord_llm.runtime.life import Tools
from supervisord_llm.runtime.machine import Machine
from supervisord_llm.runtime.pool import Pool
from supervisord_llm.runtime.records import RecordKeeper
from supervisord_llm.runtime.registry import Registry
from supervisord_llm.runtime.request import Publish, Request
from supervisord_llm.runtime.residence import Residence
from supervisord_llm.runtime.scans import Scans
from supervisord_llm.runtime.slot import Slot
from supervisord_llm.runtime.timers import Timers
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
        *,
        boot: str,
        publish: Publish,
        records: RecordKeeper,
        machine: Machine,
        launcher: Path,
        environ: Mapping[str, str],
        sweep: bool,
        write: Write = os.write,
    ) -> None:
        """Make every pool and slot; call it inside ``trio.run``. Nothing is spawned yet.

        Args:
            config: the configuration in force.
            boot: this daemon's id.
            publish: takes the events.
            records: remembers workers and parked slots for the next start.
            machine: what there is of control groups and the like.
            launcher: the native launcher.
            environ: the daemon's environment, of which workers get a part.
            sweep: whether every child of this process is a worker or was adopted from one, so that
                strays may be reaped and, at the end, killed.
            write: how bytes go to a control pipe.

        Raises:
            ValueError: if a slot's launch cannot be worked out.
        """
        self.boot = boot
        self.clock = Clock()
        self.started_at = self.clock.now()
        self.stopping = False
        self._config = config
        self._environ = environ
        self._cores = sorted(os.sched_getaffinity(0))
        self._machine = machine
        self._sweeps = sweep
        self._registry = Registry()
        self._moves = trio.lowlevel.ParkingLot()
        self._timers = Timers()
        turn = Turn()
        self._residence = Residence(self._all_pools, self.clock, self._timers, turn)
        self._tools = Tools(
            clock=self.clock,
            turn=turn,
            publish=publish,
            launcher=launcher,
            records=records,
            scans=Scans(self.clock.now),
            moves=self._moves,
            random=random.Random(),  # noqa: S311 - it places jitter, it keeps no secret
            write=write,
            machine=machine,
            on_demand=self._residence.look,
            numbers={},
        )
        self.pools: dict[PoolName, Pool] = {
            name: self._make(name, pool) for name, pool in config.pool.items()
        }
        self._retired: list[Pool] = []
        """Pools that the configuration has lost and that finish what they have."""
        self._nursery: trio.Nursery | None = None

    def _make(self, name: PoolName, config: PoolConfig) -> Pool:
        return Pool(name, config, self._launches(name), self._tools, self._registry)

    def _launches(self, name: PoolName) -> Launches:
        config = self._config
        return lambda index, place: extra_launch(
            config, name, index, place, cores=self._cores, environ=self._environ
        )

    def _all_pools(self) -> list[Pool]:
        return [*self.pools.values(), *self._retired]

    @property
    def slots(self) -> Mapping[SlotName, Slot]:
        """The slots of all pools, by their names; they come and go."""
        return {slot.name: slot for pool in self._all_pools() for slot in pool.slots}

    # Facts and wishes ---------------------------------------------------------

    def find(self, model: str) -> Pool | None:
        """The pool that a client means: by its name, or by one of its ``models``."""
        if (pool := self.pools.get(model)) is not None:
            return pool
        return next((each for each in self.pools.values() if model in each.config.models), None)

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
        """Wait until any slot changes its state, or is gone with its pool.

        Look first, without a checkpoint in between.
        """
        await self._moves.park()

    # Life ---------------------------------------------------------------------

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Own every pool's task until cancelled; call `stop` before that."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(self._timers.run)
            nursery.start_soon(self._machine.run)
            for pool in self.pools.values():
                await nursery.start(pool.run)
            if self._sweeps:
                nursery.start_soon(self._sweep)
            self._load()
            task_status.started()
            await trio.sleep_forever()

    def _load(self) -> None:
        """Have workers in every pool that does not wait for a request to have them."""
        for pool in self.pools.values():
            if not pool.on_demand:
                self._tools.turn(pool.load)
        self._residence.look()

    # Another configuration ----------------------------------------------------

    def reconfigure(self, config: Config, difference: Difference) -> None:
        """Put another configuration of pools into force; what runs is finished as it began.

        Raises:
            Refused: if the daemon is shutting down.
        """
        if self.stopping or self._nursery is None:
            raise Refused(
                RejectReason.SHUTTING_DOWN,
                "cannot reload the configuration: the daemon shuts down",
            )
        self._config = config
        for name in difference.removed:
            pool = self.pools.pop(name)
            self._retired.append(pool)
            pool.drain()
            self._nursery.start_soon(self._see_off, pool)
        for name in difference.added:
            back = next((pool for pool in self._retired if pool.name == name), None)
            if back is None:
                self.pools[name] = self._make(name, config.pool[name])
                self._nursery.start_soon(self.pools[name].run)
            else:
                # It comes back before it was gone: its slots' names are still its own.
                self._retired.remove(back)
                self.pools[name] = back
                back.reconfigure(config.pool[name], self._launches(name), renew=True)
                back.scale(config.pool[name].workers)
                back.resume()
        for name, pool in self.pools.items():
            change = difference.changed.get(name)
            if change is not None:
                pool.reconfigure(config.pool[name], self._launches(name), renew=change.rolls)
            elif name not in difference.added:
                pool.note_launches(self._launches(name))
        self.pools = {name: self.pools[name] for name in config.pool}
        self._load()

    async def _see_off(self, pool: Pool) -> None:
        """Wait until a pool that is no more has finished, then end its task."""
        while pool in self._retired and not pool.finished:
            await self.wait_move()
        if pool in self._retired:
            self._retired.remove(pool)
            pool.close()
            self._moves.unpark_all()

    async def stop(self, hurry: trio.Event) -> bool:
        """Stop everything, in bounded time.

        Running work gets ``shutdown_drain`` seconds, or until ``hurry`` is set; what is left is
        cancelled and, where it does not end, torn down with its worker.

        Returns:
            Whether every worker is gone; if not, one could not be reaped.
        """
        self.stopping = True
        self._residence.stop()
        for pool in reversed(self._all_pools()):
            pool.begin_stop()
        with trio.move_on_after(self._config.daemon.shutdown_drain):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_cancel_when, hurry, nursery.cancel_scope)
                await self._wait_down()
                nursery.cancel_scope.cancel()
        for pool in reversed(self._all_pools()):
            pool.cancel_all(CancelledBy.SHUTDOWN)
        with trio.move_on_after(self._ladder_seconds()) as bound:
            await self._wait_down()
        if self._sweeps:
            await self._last_sweep()
        return not bound.cancelled_caught

    async def _wait_down(self) -> None:
        for pool in self._all_pools():
            await pool.wait_down()

    def _ladder_seconds(self) -> float:
        lengths = (_ladder_length(pool.config.cancel) for pool in self._all_pools())
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
        return {pid for pid in pids if pid is not None} | set(self._machine.children)


def _ladder_length(cancel: CancelConfig) -> float:
    cooperative = max(cancel.cooperative_grace, cancel.prefill_grace)
    return cooperative + cancel.terminate_grace * 2 + cancel.kill_grace + cancel.reap_grace


async def _cancel_when(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel()
