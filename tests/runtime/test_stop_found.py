"""Stop strings that are found outside the worker: the answer is whole, and the worker is freed."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from supervisord_llm.core.record import Record
from supervisord_llm.core.words import CancelledBy, FinishReason, Outcome, RequestState, SlotState
from supervisord_llm.events import (
    CancelDelivered,
    CancelEscalated,
    CancelRequested,
    CancelSettled,
    RequestFinished,
    RequestLateTerminal,
    WorkerQuarantined,
    WorkerReady,
)
from supervisord_llm.runtime.request import Request, RequestSpec
from tests.harness import QUICK, SECONDS, Bench, bench, read_all, read_tokens

LONG = "x sim.tokens=100000 sim.tps=200"
DETACH = QUICK.replace("cancel = {", 'cancel = { on_uncancellable = "detach",')


async def stopped(made: Bench, prompt: str = LONG, **spec: object) -> tuple[Request, Record]:
    """Find a stop after the first tokens; the request, when no worker holds it, and its record."""
    asked = RequestSpec(prompt=prompt, **spec)  # type: ignore[arg-type]
    async with made.pool.request(asked) as stream:
        await read_tokens(stream, 3)
        stream.stop_found()
        rest, record = await read_all(stream)
    assert rest == ""
    with trio.fail_after(SECONDS):
        await stream.request.wait_settled()
    return stream.request, record


async def test_the_answer_is_complete_and_the_worker_is_free(tmp_path: Path) -> None:
    """It is asked like one whose request is cancelled; what it has used is in the record."""
    async with bench(tmp_path) as made:
        pid = made.slot().pid
        request, record = await stopped(made)
        assert (record.outcome, record.finish_reason) == (Outcome.COMPLETED, FinishReason.STOP)
        assert (record.cancelled_by, record.cancel_raced) == (None, False)
        assert record.usage is not None
        assert record.usage.prompt_tokens == 1
        assert 3 <= record.usage.generated_tokens < 1000
        assert record.decode_ms is not None
        assert request.resolution is None
        text, _ = await made.generate("y sim.tokens=2")
        assert (text, made.slot().pid) == ("t0 t1 ", pid)
        assert len(made.events.all(CancelDelivered, request=request.id)) == 1
        for kind in (CancelRequested, CancelSettled, WorkerQuarantined):
            assert made.events.all(kind) == []


async def test_what_comes_after_a_stop_is_for_nobody(tmp_path: Path) -> None:
    """Neither what waits unread nor what the worker still writes reaches the client."""
    async with bench(tmp_path) as made:
        async with made.pool.request(RequestSpec(prompt="x sim.tokens=50")) as stream:
            await stream.request.wait_finished()
            stream.stop_found()
            text, record = await read_all(stream)
        assert (text, record.outcome) == ("", Outcome.COMPLETED)
        assert record.finish_reason is FinishReason.LENGTH, "the worker had its own end before"


async def test_finding_it_again_or_leaving_changes_nothing(tmp_path: Path) -> None:
    """A cancellation that comes after the stop is too late: the client has what it wanted."""
    async with bench(tmp_path) as made:
        async with made.pool.request(RequestSpec(prompt=LONG)) as stream:
            await read_tokens(stream, 1)
            stream.stop_found()
            assert stream.request.state is RequestState.STOPPING
            stream.stop_found()
            stream.request.cancel(CancelledBy.DEADLINE)
        with trio.fail_after(SECONDS):
            record = await stream.request.wait_finished()
        assert (record.outcome, record.finish_reason) == (Outcome.COMPLETED, FinishReason.STOP)
        assert made.events.all(CancelRequested) == []


async def test_a_cancellation_that_came_first_stays_one(tmp_path: Path) -> None:
    """Whoever asked for it is told so."""
    async with (
        bench(tmp_path) as made,
        made.pool.request(RequestSpec(prompt=LONG)) as stream,
    ):
        await read_tokens(stream, 1)
        stream.request.cancel(CancelledBy.API)
        stream.stop_found()
        text, record = await read_all(stream)
    assert (text, record.outcome, record.cancelled_by) == ("", Outcome.CANCELLED, "api")


async def test_a_deaf_worker_pays_for_it_and_the_answer_does_not(tmp_path: Path) -> None:
    """After its grace the client has its answer, without the worker's count, and it is replaced."""
    async with bench(tmp_path) as made:
        request, record = await stopped(made, LONG + " sim.ignore_cancel")
        assert (record.outcome, record.finish_reason) == (Outcome.COMPLETED, FinishReason.STOP)
        assert record.usage is None
        [quarantined] = made.events.all(WorkerQuarantined)
        assert (quarantined.reason, quarantined.requests) == ("cancel_grace_missed", [request.id])
        [escalated] = made.events.all(CancelEscalated)
        assert (escalated.request, escalated.to) == (request.id, "terminate")
        assert made.events.all(CancelSettled) == []
        await made.events.wait(WorkerReady, generation=2)


@pytest.mark.parametrize("settings", [QUICK, DETACH], ids=["terminate", "detach"])
async def test_a_worker_that_cannot_be_asked_keeps_nobody_waiting(
    tmp_path: Path, settings: str
) -> None:
    """The answer is there at once; the pool's setting decides what becomes of the worker."""
    async with bench(tmp_path, "--no_cancel", settings=settings) as made:
        async with made.pool.request(RequestSpec(prompt="x sim.tokens=30 sim.tps=60")) as stream:
            await read_tokens(stream, 2)
            stream.stop_found()
            record = stream.request.record
            assert record is not None
            assert (record.outcome, record.finish_reason) == (Outcome.COMPLETED, FinishReason.STOP)
            assert stream.request.state is RequestState.HELD
            assert (await read_all(stream))[1] == record
        with trio.fail_after(SECONDS):
            await stream.request.wait_settled()
        text, _ = await made.generate("y sim.tokens=2")
        assert text == "t0 t1 "
        assert made.slot().generation == (2 if settings is QUICK else 1)
        assert made.events.all(RequestLateTerminal) == []


async def test_a_worker_that_dies_of_it_takes_nothing_from_the_answer(tmp_path: Path) -> None:
    """The end of its process is its own affair, and the slot's."""
    patient = QUICK.replace('cooperative_grace = "500ms"', 'cooperative_grace = "10s"')
    async with bench(tmp_path, settings=patient) as made:
        prompt = "x sim.tokens=100000 sim.tps=100 sim.exit=3 sim.at=60 sim.ignore_cancel"
        _, record = await stopped(made, prompt)
        assert (record.outcome, record.finish_reason) == (Outcome.COMPLETED, FinishReason.STOP)
        assert (record.usage, record.error) == (None, None)
        assert record.detail is not None
        assert "exit:3" in record.detail
        [event] = made.events.all(WorkerQuarantined)
        assert event.reason == "unexpected_exit"


async def test_a_session_survives_a_stop(tmp_path: Path) -> None:
    """Its worker has written more than was shown, so its next turn is read from the beginning."""
    async with bench(tmp_path, "--sessions 2") as made:
        _, record = await stopped(made, session_id="s")
        assert record.outcome is Outcome.COMPLETED
        _, following = await made.generate("x y sim.tokens=2", session_id="s")
        assert following.outcome is Outcome.COMPLETED
        assert following.usage is not None
        assert following.usage.reused_tokens == 0


async def test_stopping_often_costs_no_worker(tmp_path: Path) -> None:
    """Stop and next request, many times over: all are complete, and the process stays."""
    async with bench(tmp_path) as made:
        pid = made.slot().pid
        for _ in range(20):
            _, record = await stopped(made, "x sim.tokens=100000 sim.tps=2000")
            assert record.finish_reason is FinishReason.STOP
            assert record.usage is not None
        assert (made.slot().pid, made.slot().state) == (pid, SlotState.READY)
        assert len(made.events.all(RequestFinished, outcome=Outcome.COMPLETED)) == 20
