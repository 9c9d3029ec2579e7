"""How long a request may wait and run: ``deadline`` and ``queue_timeout``, and who says so."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from supervisord_llm.core.words import CancelledBy, FailureReason, Outcome, Resolution
from supervisord_llm.events import CancelRequested, RequestStarted, WorkerQuarantined
from supervisord_llm.runtime.request import RequestSpec
from tests.harness import QUICK, SECONDS, bench, read_all, read_tokens
from tests.runtime.faulty import some_faulty

ENDLESS = "x sim.tokens=100000 sim.tps=100"


@pytest.mark.parametrize(
    ("settings", "own"),
    [
        (QUICK + 'queue.deadline = "300ms"\n', None),
        (QUICK, 0.3),
        (QUICK + 'queue.deadline = "10ms"\n', 0.3),
    ],
    ids=["of the pool", "its own", "its own, longer than the pool's"],
)
async def test_a_deadline_ends_what_runs(tmp_path: Path, settings: str, own: float | None) -> None:
    """It is cancelled like by anybody else, and the worker serves on."""
    async with bench(tmp_path, settings=settings) as made:
        pid = made.slot().pid
        async with made.pool.request(RequestSpec(prompt=ENDLESS, deadline=own)) as stream:
            text, record = await read_all(stream)
            await stream.request.wait_settled()
        assert (record.outcome, record.cancelled_by, record.answered_by) == (
            Outcome.CANCELLED,
            CancelledBy.DEADLINE,
            "worker",
        )
        assert text.startswith("t0 t1 ")
        assert 300 <= record.total_ms < 800
        assert stream.request.resolution is Resolution.COOPERATIVE
        _, record = await made.generate("y sim.tokens=2", deadline=10.0)
        assert (record.outcome, made.slot().pid) == (Outcome.COMPLETED, pid)
        [asked] = made.events.all(CancelRequested)
        assert asked.by is CancelledBy.DEADLINE


async def test_a_deadline_ends_what_waits(tmp_path: Path) -> None:
    """In the queue it touches no worker; the request that runs there goes on."""
    async with (
        bench(tmp_path) as made,
        made.pool.request(RequestSpec(prompt="x sim.tokens=60 sim.tps=100")) as running,
    ):
        _, record = await made.generate("y", deadline=0.2)
        assert (record.outcome, record.cancelled_by, record.answered_by) == (
            Outcome.CANCELLED,
            CancelledBy.DEADLINE,
            "queue",
        )
        _, record = await read_all(running)
        assert record.outcome is Outcome.COMPLETED
        assert len(made.events.all(RequestStarted)) == 1


async def test_the_wait_counts_towards_the_deadline(tmp_path: Path) -> None:
    """It is told from the acceptance, not from the worker on."""
    async with bench(tmp_path) as made:
        async with made.pool.request(RequestSpec(prompt="x sim.tokens=30 sim.tps=100")):
            _, record = await made.generate("y " + ENDLESS, deadline=0.6)
        assert record.cancelled_by is CancelledBy.DEADLINE
        assert record.queued_ms >= 200
        assert 600 <= record.total_ms < 1100


async def test_the_deadline_holds_over_a_lost_worker(tmp_path: Path) -> None:
    """A second attempt does not begin it anew."""
    command = some_faulty("sim.0/1", "--exit 3 --during prefill --prefill_ms 0")
    settings = QUICK.replace("queue.max_attempts = 1", "queue.max_attempts = 2")
    async with bench(tmp_path, command=command, settings=settings) as made:
        async with made.pool.request(RequestSpec(prompt=ENDLESS, deadline=0.8)) as stream:
            _, record = await read_all(stream)
        assert record.cancelled_by is CancelledBy.DEADLINE
        assert 800 <= record.total_ms < 1400
        assert stream.request.attempt == 2


async def test_the_deadline_of_a_deaf_worker_is_answered_in_time(tmp_path: Path) -> None:
    """The grace is added, no more; the worker pays for it."""
    async with bench(tmp_path) as made:
        async with made.pool.request(
            RequestSpec(prompt=ENDLESS + " sim.ignore_cancel", deadline=0.2)
        ) as stream:
            _, record = await read_all(stream)
        assert (record.cancelled_by, record.answered_by) == (CancelledBy.DEADLINE, "grace")
        assert 700 <= record.total_ms < 1500
        [event] = made.events.all(WorkerQuarantined)
        assert event.reason == "cancel_grace_missed"


async def test_a_deadline_that_is_not_reached_does_nothing(tmp_path: Path) -> None:
    """It is forgotten with its request."""
    async with bench(tmp_path) as made:
        for _ in range(3):
            _, record = await made.generate("x sim.tokens=2", deadline=0.25)
            assert record.outcome is Outcome.COMPLETED
        async with made.pool.request(RequestSpec(prompt="y sim.tokens=50 sim.tps=100")) as stream:
            _, record = await read_all(stream)
        assert record.outcome is Outcome.COMPLETED
        assert made.events.all(CancelRequested) == []


@pytest.mark.parametrize(
    ("settings", "own"),
    [
        (QUICK + 'queue.queue_timeout = "200ms"\n', None),
        (QUICK, 0.2),
        (QUICK + 'queue.queue_timeout = "10ms"\n', 0.2),
    ],
    ids=["of the pool", "its own", "its own, longer than the pool's"],
)
async def test_waiting_has_an_end(tmp_path: Path, settings: str, own: float | None) -> None:
    """It fails, may be sent again, and no worker has heard of it."""
    async with (
        bench(tmp_path, settings=settings) as made,
        made.pool.request(RequestSpec(prompt=ENDLESS)) as running,
    ):
        await read_tokens(running, 1)
        _, record = await made.generate("y", queue_timeout=own)
        assert (record.outcome, record.error, record.retryable) == (
            Outcome.FAILED,
            FailureReason.QUEUE_TIMEOUT,
            True,
        )
        assert 200 <= record.total_ms < 600
        assert len(made.events.all(RequestStarted)) == 1
        assert made.pool.queued == 0


async def test_the_bound_on_waiting_is_none_on_running(tmp_path: Path) -> None:
    """Once a worker has it, it may take its time."""
    async with bench(tmp_path) as made:
        _, record = await made.generate("x sim.tokens=40 sim.tps=100", queue_timeout=0.1)
        assert record.outcome is Outcome.COMPLETED


async def test_waiting_for_room_for_a_session_does_not_begin_anew(tmp_path: Path) -> None:
    """A worker that has to forget another session first, and does not, is waited for no longer."""
    async with bench(tmp_path, "--sessions 1") as made:
        await made.generate("x sim.tokens=1", session_id="one")
        async with made.pool.request(RequestSpec(prompt="z sim.deaf sim.tokens=50 sim.tps=100")):
            with trio.fail_after(SECONDS):
                _, record = await made.generate("y", session_id="two", queue_timeout=0.8)
        assert record.error is FailureReason.QUEUE_TIMEOUT
        assert 800 <= record.total_ms < 1200
