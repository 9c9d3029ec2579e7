"""Workers that harm what is around them: input not read, floods, memory, descendants."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest
import trio

from supervisord_llm.core.words import CancelledBy, Outcome, Resolution
from supervisord_llm.events import (
    WorkerLog,
    WorkerQuarantined,
    WorkerReady,
    WorkerReaped,
    WorkerSignalled,
    WorkerUsage,
)
from supervisord_llm.host import tree
from supervisord_llm.runtime.request import RequestSpec
from tests.harness import QUICK, SECONDS, bench, read_all, read_tokens
from tests.native.sim import wait_until

IMPATIENT = 'stdin_timeout = "300ms"\nhealth = { probe_interval = "1h" }\n' + QUICK
BIG = "word " * 100_000
"""More than a pipe holds."""


async def test_a_worker_that_does_not_read_is_torn_down(tmp_path: Path) -> None:
    """A request that does not get through costs its worker, not the daemon's patience."""
    async with bench(tmp_path, "--deaf", settings=IMPATIENT) as made:
        _, record = await made.generate(BIG)
        assert (record.outcome, record.error) == (Outcome.FAILED, "worker_quarantined")
        [quarantined] = made.events.all(WorkerQuarantined)
        assert quarantined.reason == "stdin_blocked"
        await made.events.wait(WorkerReady, generation=2)


async def test_what_is_not_read_can_be_cancelled(tmp_path: Path) -> None:
    """Half of it is in the pipe: the client is answered after the grace all the same."""
    settings = IMPATIENT.replace("300ms", "1h")
    async with bench(tmp_path, "--deaf", settings=settings) as made:
        async with made.pool.request(RequestSpec(prompt=BIG)) as stream:
            stream.request.cancel(CancelledBy.API)
            _, record = await read_all(stream)
            with trio.fail_after(SECONDS):
                await stream.request.wait_settled()
        assert (record.outcome, record.answered_by) == (Outcome.CANCELLED, "grace")
        assert stream.request.resolution is Resolution.TERMINATED


async def test_a_worker_that_stops_reading_fails_its_probe(tmp_path: Path) -> None:
    """It answered a request and would take the next one, but nobody is there to read it."""
    settings = 'health = { probe_interval = "100ms", probe_timeout = "300ms" }\n' + QUICK
    async with bench(tmp_path, settings=settings) as made:
        _, record = await made.generate("x sim.tokens=1 sim.deaf")
        assert record.outcome is Outcome.COMPLETED
        quarantined = await made.events.wait(WorkerQuarantined)
        assert quarantined.reason == "health_probe_failed"
        await made.events.wait(WorkerReady, generation=2)


async def test_a_flood_on_stderr_is_limited_and_harms_nobody(tmp_path: Path) -> None:
    """Requests are served, on the flooding worker as well; what was dropped is counted."""
    async with bench(tmp_path, workers=2) as made:
        _, record = await made.generate("x sim.tokens=1 sim.stderr_flood=1000000000")
        assert record.outcome is Outcome.COMPLETED
        for _ in range(10):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(made.generate, "a sim.tokens=20 sim.tps=200")
                nursery.start_soon(made.generate, "b sim.tokens=20 sim.tps=200")
        lines = made.events.all(WorkerLog)
        assert sum(event.dropped for event in lines) > len(lines)
        made.slot().reload()
        await made.events.wait(WorkerReady, worker="sim.0", generation=2)
        assert made.events.all(WorkerQuarantined) == []


async def test_growing_memory_is_seen(tmp_path: Path) -> None:
    """What a worker holds is told as it is."""
    async with bench(tmp_path) as made:
        await made.generate("x sim.tokens=1 sim.leak=100000000")
        before = made.events.all(WorkerUsage)[-1].rss
        process = psutil.Process(made.slot().pid)
        await trio.to_thread.run_sync(
            wait_until, lambda: process.memory_info().rss > before + 30_000_000
        )
        made.slot().live().worker.note_usage()
        assert made.events.all(WorkerUsage)[-1].rss > before + 30_000_000
        assert made.slot().usage is not None


@pytest.mark.parametrize("kind", ["spawn_stubborn", "spawn_escaped"])
async def test_descendants_that_resist_end_with_a_torn_down_worker(
    tmp_path: Path, kind: str
) -> None:
    """SIGTERM does not end or reach them: they are killed before the next worker starts."""
    async with bench(tmp_path) as made:
        async with made.pool.request(
            RequestSpec(prompt=f"x sim.{kind}=2 sim.ignore_cancel sim.tps=200 sim.tokens=100000")
        ) as stream:
            await read_tokens(stream, 1)
            stream.request.cancel(CancelledBy.API)
            await read_all(stream)
            with trio.fail_after(SECONDS):
                await stream.request.wait_settled()
        reaped = await made.events.wait(WorkerReaped)
        assert len(reaped.descendants) == 2
        await made.events.wait(WorkerReady, generation=2)
        living = tree.scan()
        assert [pid for pid in reaped.descendants if pid in living and living[pid].living] == []
        assert made.events.all(WorkerSignalled, signal="SIGTERM", target="pid") != []
