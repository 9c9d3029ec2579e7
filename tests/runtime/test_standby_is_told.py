"""The event log says which worker takes work and which stands by, whenever that changes."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from supervisord_llm.events import WorkerActivated, WorkerReady, WorkerRested
from tests.harness import QUICK, bench


async def test_a_standby_worker_that_steps_in_is_told(tmp_path: Path) -> None:
    """Once, and nothing is told of the start, where slots take work as they come."""
    async with bench(tmp_path, settings=f"standby = 1\n{QUICK}") as made:
        assert [] == [*made.events.all(WorkerActivated), *made.events.all(WorkerRested)]
        (serving,) = (slot for slot in made.pool.slots if slot.active)
        pid = serving.pid
        assert pid is not None

        os.kill(pid, signal.SIGKILL)

        activated = await made.events.wait(WorkerActivated)
        await made.events.wait(WorkerReady, worker=serving.name, generation=2)
        await made.wait_ready()
        assert [activated] == made.events.all(WorkerActivated)
        assert [activated.worker] == [slot.name for slot in made.pool.slots if slot.active]


async def test_a_worker_that_stands_by_from_now_on_is_told(tmp_path: Path) -> None:
    """Of two that take work one is to stand by when one is enough."""
    async with bench(tmp_path, workers=2, settings=f"standby = 1\n{QUICK}") as made:
        made.pool.scale(1)

        rested = await made.events.wait(WorkerRested)

        left = [slot for slot in made.pool.slots if not slot.leaving]
        assert [(rested.worker, rested.generation)] == [
            (slot.name, slot.generation) for slot in left if not slot.active
        ]
        assert [] == made.events.all(WorkerActivated)
