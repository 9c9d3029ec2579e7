"""Cancelling, rung by rung, with real processes."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
import trio

from supervisord_llm.core.words import CancelledBy, Outcome, Resolution, SlotState
from supervisord_llm.events import (
    CancelDelivered,
    CancelEscalated,
    CancelRequested,
    CancelSettled,
    RequestFinished,
    RequestLateTerminal,
    RequestStarted,
    WorkerLog,
    WorkerQuarantined,
    WorkerReady,
    WorkerReaped,
    WorkerState,
)
from supervisord_llm.runtime.request import Request, RequestSpec
from tests.harness import QUICK, Bench, bench, read_all, read_tokens

LONG = "x sim.tokens=100000 sim.tps=200"


async def leave_after(made: Bench, prompt: str, tokens: int) -> Request:
    """Read some tokens and leave, as a client that goes away does."""
    async with made.pool.request(RequestSpec(prompt=prompt)) as stream:
        await made.events.wait(RequestStarted, request=stream.request.id)
        if "sim.stderr" in prompt:  # which the worker writes when its prefill begins
            await made.events.wait(WorkerLog)
        if tokens:
            await read_tokens(stream, tokens)
    with trio.fail_after(10):
        await stream.request.wait_settled()
    return stream.request


@pytest.mark.parametrize(
    ("prompt", "tokens"),
    [(LONG, 3), ("x sim.stderr=1 sim.prefill_ms=60000", 0)],
    ids=["decode", "prefill"],
)
async def test_a_client_that_leaves_frees_the_slot(
    tmp_path: Path, prompt: str, tokens: int
) -> None:
    """The worker is asked, obeys, and serves the next request in the same process."""
    async with bench(tmp_path) as made:
        pid = made.slot().pid
        request = await leave_after(made, prompt, tokens)
        record = request.record
        assert record is not None
        assert (record.outcome, record.cancelled_by, record.answered_by) == (
            Outcome.CANCELLED,
            CancelledBy.CLIENT,
            "worker",
        )
        assert request.resolution is Resolution.COOPERATIVE
        text, _ = await made.generate("y sim.tokens=2")
        assert (text, made.slot().pid) == ("t0 t1 ", pid)
        assert [event.by for event in made.events.all(CancelRequested)] == ["client"]
        assert len(made.events.all(CancelDelivered)) == 1
        assert made.events.all(WorkerQuarantined) == []


async def test_asking_twice_is_asking_once(tmp_path: Path) -> None:
    """Many cancellations of one request are one, with one record and one settlement."""
    async with bench(tmp_path) as made:
        async with made.pool.request(RequestSpec(prompt=LONG)) as stream:
            await read_tokens(stream, 1)
            for _ in range(50):
                stream.request.cancel(CancelledBy.API)
            _, record = await read_all(stream)
            await stream.request.wait_settled()
            stream.request.cancel(CancelledBy.OPERATOR)
        assert record.cancelled_by is CancelledBy.API
        for kind in (CancelRequested, CancelDelivered, RequestFinished, CancelSettled):
            assert len(made.events.all(kind)) == 1


async def test_a_queued_request_is_cancelled_without_touching_a_worker(tmp_path: Path) -> None:
    """It leaves the queue at once; the one before it runs on."""
    async with (
        bench(tmp_path) as made,
        made.pool.request(RequestSpec(prompt="x sim.tokens=50 sim.tps=100")) as running,
    ):
        async with made.pool.request(RequestSpec(prompt="never")) as waiting:
            assert made.pool.queued == 1
            waiting.request.cancel(CancelledBy.API)
            assert made.pool.queued == 0
            _, record = await read_all(waiting)
        assert (record.outcome, record.answered_by) == (Outcome.CANCELLED, "queue")
        assert waiting.request.resolution is Resolution.QUEUED
        assert waiting.request.worker is None
        _, record = await read_all(running)
        assert record.outcome is Outcome.COMPLETED


async def test_a_deaf_worker_is_terminated_and_replaced(tmp_path: Path) -> None:
    """Grace missed: the client is answered, the worker gets SIGTERM, its neighbour works on."""
    async with (
        bench(tmp_path, workers=2) as made,
        made.pool.request(RequestSpec(prompt="n sim.tokens=100 sim.tps=50")) as neighbour,
    ):
        await read_tokens(neighbour, 1)
        request = await leave_after(made, LONG + " sim.ignore_cancel", 1)
        record = request.record
        assert record is not None
        assert (record.outcome, record.answered_by) == (Outcome.CANCELLED, "grace")
        assert request.resolution is Resolution.TERMINATED
        assert record.cancel_elapsed_ms is not None
        assert 500 <= record.cancel_elapsed_ms < 2000
        [quarantined] = made.events.all(WorkerQuarantined)
        assert (quarantined.reason, quarantined.requests) == (
            "cancel_grace_missed",
            [request.id],
        )
        [escalated] = made.events.all(CancelEscalated)
        assert (escalated.from_, escalated.to) == ("cooperative", "terminate")
        ready = await made.events.wait(WorkerReady, worker=quarantined.worker, generation=2)
        assert ready.generation == 2
        _, record = await read_all(neighbour)
        assert record.outcome is Outcome.COMPLETED


async def test_a_worker_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    """Both graces pass, then SIGKILL ends it; every rung is told."""
    async with bench(tmp_path) as made:
        request = await leave_after(made, LONG + " sim.ignore_cancel sim.ignore_sigterm", 1)
        assert request.resolution is Resolution.KILLED
        assert [(event.from_, event.to) for event in made.events.all(CancelEscalated)] == [
            ("cooperative", "terminate"),
            ("terminate", "kill"),
        ]
        reaped = await made.events.wait(WorkerReaped)
        assert reaped.exit == "signal:SIGKILL"
        await made.wait_ready()
        assert made.slot().generation == 2


async def test_a_late_done_of_an_unfit_worker_changes_nothing(tmp_path: Path) -> None:
    """What a quarantined worker says is counted and never delivered."""
    settings = QUICK.replace('terminate_grace = "500ms"', 'terminate_grace = "3s"')
    async with bench(tmp_path, settings=settings) as made:
        request = await leave_after(made, LONG + " sim.late_done=900 sim.ignore_sigterm", 1)
        assert request.record is not None
        assert request.record.outcome is Outcome.CANCELLED
        assert request.resolution in (Resolution.TERMINATED, Resolution.KILLED)
        late = made.events.all(RequestLateTerminal)
        assert [(event.request, event.kind) for event in late] == [(request.id, "done")]
        assert len(made.events.all(RequestFinished)) == 1


async def test_a_worker_without_cancellation_is_terminated_at_once(tmp_path: Path) -> None:
    """There is nobody to ask: the client is answered and the process ended."""
    async with bench(tmp_path, "--no_cancel") as made:
        assert made.slot().dialect == "serial"
        request = await leave_after(made, LONG, 1)
        [quarantined] = made.events.all(WorkerQuarantined)
        assert quarantined.reason == "uncancellable"
        assert request.resolution is Resolution.TERMINATED
        await made.wait_ready()


async def test_an_uninterruptible_prefill_does_not_cost_the_model(tmp_path: Path) -> None:
    """The client is answered within the cooperative grace, the worker kept for its longer one."""
    async with bench(tmp_path, "--no_cancel_prefill") as made:
        pid = made.slot().pid
        request = await leave_after(made, "x sim.stderr=1 sim.prefill_ms=1200", 0)
        record = request.record
        assert record is not None
        assert record.answered_by == "grace"
        assert request.resolution is Resolution.COOPERATIVE
        assert made.events.all(WorkerQuarantined) == []
        await made.events.wait(WorkerState, to=SlotState.READY, count=2)
        assert made.slot().pid == pid


async def test_a_prefill_beyond_its_grace_costs_the_worker(tmp_path: Path) -> None:
    """The longer allowance has an end too."""
    async with bench(tmp_path, "--no_cancel_prefill") as made:
        request = await leave_after(made, "x sim.stderr=1 sim.prefill_ms=60000", 0)
        assert request.resolution is Resolution.TERMINATED
        [quarantined] = made.events.all(WorkerQuarantined)
        assert quarantined.reason == "cancel_grace_missed"


async def test_a_full_control_pipe_is_tried_again(tmp_path: Path) -> None:
    """EAGAIN costs a fifth of a second, not the worker."""
    refusals = iter([True, True])

    def write(descriptor: int, data: bytes) -> int:
        if next(refusals, False):
            raise BlockingIOError(errno.EAGAIN, "full")
        return os.write(descriptor, data)

    async with bench(tmp_path, write=write) as made:
        pid = made.slot().pid
        request = await leave_after(made, LONG, 1)
        assert request.resolution is Resolution.COOPERATIVE
        assert made.slot().pid == pid


@pytest.mark.parametrize("written", [0, 4, None], ids=["nothing", "half", "EPIPE"])
async def test_a_broken_control_pipe_goes_straight_to_sigterm(
    tmp_path: Path, written: int | None
) -> None:
    """After part of a frame, or an error, no later frame could be trusted."""

    def write(_descriptor: int, _data: bytes) -> int:
        if written is None:
            raise BrokenPipeError(errno.EPIPE, "broken")
        return written

    async with bench(tmp_path, write=write) as made:
        request = await leave_after(made, LONG, 1)
        assert request.resolution is Resolution.TERMINATED
        [quarantined] = made.events.all(WorkerQuarantined)
        assert quarantined.reason == "control_pipe_broken"


async def test_a_cancellation_that_loses_the_race_is_a_completion(tmp_path: Path) -> None:
    """A ``done`` without ``cancelled`` within the grace completes the request, once."""
    async with bench(tmp_path) as made:
        for _ in range(30):
            async with made.pool.request(RequestSpec(prompt="x sim.tokens=1")) as stream:
                batch = await stream.next_batch()
                assert batch is not None
                stream.request.cancel(CancelledBy.API)
                record = await stream.request.wait_finished()
                await stream.request.wait_settled()
            if record.outcome is Outcome.COMPLETED:
                raced = record.cancel_raced or stream.request.cancel_asked_at is None
                assert raced
            else:
                assert record.outcome is Outcome.CANCELLED
        assert made.events.all(WorkerQuarantined) == []
        assert len(made.events.all(RequestFinished)) == 30


async def test_cancelling_right_after_the_previous_end_always_works(tmp_path: Path) -> None:
    """Dispatch and cancel at once, many times: no cancel is lost, no worker pays for it."""
    async with bench(tmp_path) as made:
        pid = made.slot().pid
        for _ in range(100):
            await made.generate("a sim.tokens=1")
            request = await leave_after(made, LONG, 0)
            assert request.resolution is Resolution.COOPERATIVE
        assert made.slot().pid == pid
