"""A request without output survives the death of its worker; one with output does not."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import trio

from supervisord_llm.core.words import (
    CancelledBy,
    FailureReason,
    Outcome,
    QuarantineReason,
    RequestState,
    Resolution,
    SlotState,
)
from supervisord_llm.events import (
    RequestFinished,
    RequestRetried,
    RequestStarted,
    WorkerQuarantined,
    WorkerReady,
    WorkerState,
)
from supervisord_llm.runtime.request import Request, RequestSpec
from supervisord_llm.schema import Started
from tests.api.house import ask, house
from tests.harness import QUICK, SECONDS, Bench, bench, read_all, read_tokens
from tests.runtime.faulty import some_faulty
from tests.scenarios.puppet import puppet

TWICE = QUICK.replace("queue.max_attempts = 1", "queue.max_attempts = 2")
STALLING = TWICE + 'heartbeat = "50ms"\nhealth.first_token_stall = "500ms"\n'
DIES = "--exit 3 --during prefill"
SLOWLY = "x sim.prefill_ms=60000"


async def lost(made: Bench, request: Request) -> None:
    """Kill the worker that has a request, and wait until the request waits again."""
    slot = next(slot for slot in made.pool.slots if slot.name == request.worker)
    os.kill(slot.pid or 0, signal.SIGKILL)
    await made.events.wait(RequestRetried, request=request.id)


@pytest.mark.parametrize(
    ("fault", "reason", "quarantined"),
    [
        (DIES, FailureReason.WORKER_EXITED, QuarantineReason.UNEXPECTED_EXIT),
        ("--signal SEGV --at 0", FailureReason.WORKER_EXITED, QuarantineReason.UNEXPECTED_EXIT),
        ("--half_line --at 0", FailureReason.WORKER_EXITED, QuarantineReason.UNEXPECTED_EXIT),
        ("--garbage --at 0", FailureReason.PROTOCOL_ERROR, QuarantineReason.PROTOCOL_ERROR),
        ("--close_stdout --at 0", FailureReason.PROTOCOL_ERROR, QuarantineReason.PROTOCOL_ERROR),
        ("--hang prefill", FailureReason.STALLED, QuarantineReason.FIRST_TOKEN_STALL),
    ],
)
async def test_whatever_ends_the_worker_another_one_answers(
    tmp_path: Path, fault: str, reason: FailureReason, quarantined: QuarantineReason
) -> None:
    """Its client sees one answer; the log has both attempts and why there were two."""
    command = some_faulty("sim.0/1", fault)
    async with bench(tmp_path, command=command, workers=2, settings=STALLING) as made:
        text, record = await made.generate("x sim.tokens=3")
        assert (text, record.outcome) == ("t0 t1 t2 ", Outcome.COMPLETED)
        [condemned] = made.events.all(WorkerQuarantined)
        assert (condemned.worker, condemned.reason) == ("sim.0", quarantined)
        started = [(event.worker, event.attempt) for event in made.events.all(RequestStarted)]
        assert started == [("sim.0", 1), ("sim.1", 2)]
        [retried] = made.events.all(RequestRetried)
        assert (retried.worker, retried.generation, retried.attempt) == ("sim.0", 1, 1)
        assert retried.reason == reason
        [finished] = made.events.all(RequestFinished)
        assert (finished.worker, finished.suspect) == ("sim.1", False)
        await made.events.wait(WorkerReady, worker="sim.0", generation=2)


async def test_a_killed_worker_hands_its_request_on(tmp_path: Path) -> None:
    """SIGKILL from outside while it reads the prompt; the next worker of the only slot has it."""
    async with bench(tmp_path, settings=TWICE) as made:
        async with made.pool.request(RequestSpec(prompt="x sim.prefill_ms=300")) as stream:
            await made.events.wait(RequestStarted)
            await lost(made, stream.request)
            assert (stream.request.state, made.pool.queued) == (RequestState.QUEUED, 1)
            _, record = await read_all(stream)
        assert record.outcome is Outcome.COMPLETED
        assert (stream.request.attempt, stream.request.generation) == (2, 2)


async def test_the_old_place_in_the_queue_is_kept(tmp_path: Path) -> None:
    """Those that came later wait until the one that lost its worker has another."""
    async with bench(tmp_path, settings=TWICE) as made:
        async with (
            made.pool.request(RequestSpec(prompt="a sim.prefill_ms=300")) as first,
            made.pool.request(RequestSpec(prompt="b")) as second,
        ):
            await made.events.wait(RequestStarted)
            await lost(made, first.request)
            assert made.pool.order() == [first.request.id, second.request.id]
            await read_all(second)
            await read_all(first)
        started = [event.request for event in made.events.all(RequestStarted)]
        assert started == [first.request.id, first.request.id, second.request.id]


async def test_after_the_first_token_it_fails_and_may_be_sent_again(tmp_path: Path) -> None:
    """Nobody can tell where a second answer would have to go on."""
    async with bench(tmp_path, workers=2, settings=TWICE) as made:
        text, record = await made.generate("x sim.exit=3 sim.at=2")
        assert (text, record.outcome) == ("t0 t1 ", Outcome.FAILED)
        assert (record.error, record.retryable) == (FailureReason.WORKER_EXITED, True)
        assert not record.suspect
        assert made.events.all(RequestRetried) == []
        assert len(made.events.all(RequestStarted)) == 1


async def test_attempts_have_an_end(tmp_path: Path) -> None:
    """A request that meets one broken worker after the other fails with the last one's reason."""
    settings = QUICK.replace("max_attempts = 1", "max_attempts = 3")
    async with bench(tmp_path, "--garbage --at 0", workers=2, settings=settings) as made:
        text, record = await made.generate("x")
        assert (text, record.outcome) == ("", Outcome.FAILED)
        assert (record.error, record.retryable) == (FailureReason.PROTOCOL_ERROR, True)
        assert [event.attempt for event in made.events.all(RequestStarted)] == [1, 2, 3]
        assert len(made.events.all(RequestFinished)) == 1


async def test_a_client_that_leaves_between_two_attempts_ends_it(tmp_path: Path) -> None:
    """It waits like any other: it is out of the queue at once, and no worker hears of it again."""
    slow = some_faulty("sim.0/1", "", "--load_ms 60000")
    async with bench(tmp_path, command=slow, settings=TWICE) as made:
        async with made.pool.request(RequestSpec(prompt=SLOWLY)) as stream:
            await made.events.wait(RequestStarted)
            await lost(made, stream.request)
        assert made.pool.queued == 0
        record = stream.request.record
        assert record is not None
        assert (record.outcome, record.answered_by) == (Outcome.CANCELLED, "queue")
        assert stream.request.resolution is Resolution.QUEUED
        assert len(made.events.all(RequestStarted)) == 1


async def test_the_wait_for_another_worker_is_bounded(tmp_path: Path) -> None:
    """From the loss on it may wait for ``queue_timeout``, and is told what happened."""
    slow = some_faulty("sim.0/1", "", "--load_ms 60000")
    async with (
        bench(tmp_path, command=slow, settings=TWICE) as made,
        made.pool.request(RequestSpec(prompt=SLOWLY, queue_timeout=0.3)) as stream,
    ):
        await made.events.wait(RequestStarted)
        await lost(made, stream.request)
        _, record = await read_all(stream)
        assert (record.outcome, record.error) == (Outcome.FAILED, FailureReason.QUEUE_TIMEOUT)
        assert "its worker was lost" in (record.detail or "")


async def test_a_stop_ends_what_has_lost_its_worker(tmp_path: Path) -> None:
    """There will be no other worker: its client hears of the shutdown, and at once."""
    async with (
        bench(tmp_path, settings=TWICE) as made,
        made.pool.request(RequestSpec(prompt=SLOWLY)) as stream,
        trio.open_nursery() as nursery,
    ):
        await made.events.wait(RequestStarted)
        nursery.start_soon(made.supervisor.stop, trio.Event())
        await made.events.wait(WorkerState, to=SlotState.DRAINING)
        os.kill(made.slot().pid or 0, signal.SIGKILL)
        _, record = await read_all(stream)
        assert (record.outcome, record.cancelled_by) == (Outcome.CANCELLED, CancelledBy.SHUTDOWN)


async def test_a_drained_pool_ends_what_has_lost_its_worker(tmp_path: Path) -> None:
    """It goes down, so nobody would come for the request before its time is over."""
    async with (
        bench(tmp_path, settings=TWICE) as made,
        made.pool.request(RequestSpec(prompt=SLOWLY)) as stream,
    ):
        await made.events.wait(RequestStarted)
        made.pool.drain()
        await made.events.wait(WorkerState, to=SlotState.DRAINING)
        os.kill(made.slot().pid or 0, signal.SIGKILL)
        with trio.fail_after(SECONDS):
            _, record = await read_all(stream)
        assert (record.outcome, record.error) == (Outcome.FAILED, FailureReason.POOL_UNAVAILABLE)
        assert "drained" in (record.detail or "")


async def test_the_client_hears_who_has_its_request_now(tmp_path: Path) -> None:
    """Each attempt is a ``started`` line; the request itself counts them."""
    command = some_faulty("sim.0/1", "--garbage --at 0", "--prefill_ms 100")
    async with house(tmp_path, command=command, workers=2, settings=TWICE) as at:
        async with at.client.generate(ask("x sim.tokens=2")) as stream:
            lines = [line async for line in stream]
        started = [line for line in lines if isinstance(line, Started)]
        assert [(line.worker, line.attempt) for line in started][-1] == ("sim.1", 2)
        [accepted] = {line.id for line in started}
        shown = await at.client.request(accepted)
        assert (shown.worker, shown.attempt, shown.outcome) == ("sim.1", 2, "completed")


async def test_a_token_that_comes_with_the_end_of_its_worker_counts(tmp_path: Path) -> None:
    """A token and garbage in one write: the token was delivered, so there is no second attempt."""
    command = puppet('{"ready": true}', '{"token": "a"}|rubbish')
    async with bench(tmp_path, command=command, settings=TWICE) as made:
        async with made.pool.request(RequestSpec(prompt="x")) as stream:
            assert await read_tokens(stream, 1) == ["a"]
            record = await stream.request.wait_finished()
        assert (record.error, record.retryable) == (FailureReason.PROTOCOL_ERROR, True)
        assert made.events.all(RequestRetried) == []
