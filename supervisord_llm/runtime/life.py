"""One worker and what drives it: process, work and way down, put together at its spawn."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import msgspec
import trio

from supervisord_llm.config.launch import SlotLaunch
from supervisord_llm.config.schema import PoolConfig
from supervisord_llm.core import escalation
from supervisord_llm.core.words import Generation, Resolution, SlotName
from supervisord_llm.errors import SpawnError
from supervisord_llm.host.cgroups import WorkerGroup
from supervisord_llm.runtime.channel import Write
from supervisord_llm.runtime.clock import Clock
from supervisord_llm.runtime.ladder import Ladder, Reaped
from supervisord_llm.runtime.machine import Machine
from supervisord_llm.runtime.process import spawn
from supervisord_llm.runtime.records import RecordKeeper
from supervisord_llm.runtime.request import Publish
from supervisord_llm.runtime.scans import Scans
from supervisord_llm.runtime.timers import Timers
from supervisord_llm.runtime.turn import Turn
from supervisord_llm.runtime.worker import Watcher, Worker
from supervisord_llm.runtime.workload import Keeper, Workload


class Tools(msgspec.Struct, frozen=True):
    """What every slot of a daemon shares."""

    clock: Clock
    turn: Turn
    publish: Publish
    launcher: Path
    records: RecordKeeper
    scans: Scans
    moves: trio.lowlevel.ParkingLot
    """Where tasks wait for any slot to change its state.

    Whoever looks and then parks without a checkpoint in between cannot miss a move.
    """
    random: random.Random
    write: Write
    machine: Machine
    on_demand: Callable[[], None]
    """Look whether a pool is to be loaded or unloaded; something has changed."""
    numbers: dict[SlotName, int]
    """Each slot's last generation, also of slots that are no more: one name never means two."""


class Life(msgspec.Struct, frozen=True):
    """A worker from its spawn to its reaping."""

    worker: Worker
    workload: Workload
    ladder: Ladder
    group: WorkerGroup | None
    """The control group that is its own, where there is one."""


def begin(
    launch: SlotLaunch,
    generation: Generation,
    config: PoolConfig,
    tools: Tools,
    *,
    slot: Keeper,
    ears: Watcher,
    nursery: trio.Nursery,
    timers: Timers,
    on_reaped: Reaped,
) -> Life:
    """Spawn a worker and start its tasks in the slot's nursery.

    Raises:
        SpawnError: if no process could be started; nothing is left of the attempt.
    """
    group = tools.machine.group_for(generation, config.limits.memory_hard)
    if group is not None and group.memory_max is not None:
        # The group counts what is touched; the limit of a process, all that is asked for.
        launch = msgspec.structs.replace(launch, rlimits=())
    try:
        process, pipes = spawn(
            launch,
            generation,
            launcher=tools.launcher,
            heartbeat=config.heartbeat,
            cancellation=config.cancel.cancellation != "off",
            cgroup=None if group is None else group.path,
        )
    except SpawnError:
        if group is not None:
            nursery.start_soon(tools.machine.remove, group)
        raise
    tools.records.remember(process)
    worker = Worker(
        process,
        pipes,
        config,
        ears,
        tools.write,
        tools.scans,
        gpu_memory=lambda: tools.machine.gpu_memory,
        true_cause=lambda cause: tools.machine.cause(
            cause, process.pid, group, killed_by_us=ladder.killed
        ),
    )
    cancel = config.cancel
    workload = Workload(
        launch.pool,
        worker,
        cancel,
        slot,
        clock=tools.clock,
        timers=timers,
        turn=tools.turn,
        publish=tools.publish,
    )
    ladder = Ladder(
        launch.pool,
        worker,
        escalation.Graces(cancel.terminate_grace, cancel.kill_grace, cancel.reap_grace),
        nursery=nursery,
        timers=timers,
        turn=tools.turn,
        publish=tools.publish,
        on_reaped=on_reaped,
        on_unreapable=lambda: workload.release(Resolution.UNREAPABLE),
    )
    nursery.start_soon(worker.run)
    return Life(worker, workload, ladder, group)
