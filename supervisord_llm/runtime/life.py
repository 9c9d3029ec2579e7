"""One worker and what drives it: process, work and way down, put together at its spawn."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Protocol

import msgspec
import trio

from supervisord_llm.config.launch import SlotLaunch
from supervisord_llm.config.schema import PoolConfig
from supervisord_llm.core import escalation
from supervisord_llm.core.words import Generation, Resolution
from supervisord_llm.runtime.channel import Write
from supervisord_llm.runtime.clock import Clock
from supervisord_llm.runtime.ladder import Ladder, Reaped
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


class Life(msgspec.Struct, frozen=True):
    """A worker from its spawn to its reaping."""

    worker: Worker
    workload: Workload
    ladder: Ladder


class Host(Watcher, Keeper, Protocol):
    """The slot, as its worker's parts see it."""


def begin(
    launch: SlotLaunch,
    generation: Generation,
    config: PoolConfig,
    tools: Tools,
    *,
    slot: Host,
    nursery: trio.Nursery,
    timers: Timers,
    on_reaped: Reaped,
) -> Life:
    """Spawn a worker and start its tasks in the slot's nursery.

    Raises:
        SpawnError: if no process could be started; nothing is left of the attempt.
    """
    process, pipes = spawn(
        launch,
        generation,
        launcher=tools.launcher,
        heartbeat=config.heartbeat,
        cancellation=config.cancel.cancellation != "off",
    )
    tools.records.remember(process)
    worker = Worker(process, pipes, config, slot, tools.write, tools.scans)
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
    return Life(worker, workload, ladder)
