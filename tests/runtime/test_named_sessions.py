"""Named sessions: warm where their context is, in order, and never worth more than a cold start."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from supervisord_llm.core.words import CancelledBy, FailureReason, Outcome, QuarantineReason
from supervisord_llm.errors import InvalidRequest
from supervisord_llm.events import (
    RequestFinished,
    RequestStarted,
    WorkerQuarantined,
    WorkerReady,
    WorkerSpawned,
)
from supervisord_llm.runtime.request import RequestSpec, RequestStream
from tests.harness import QUICK, SECONDS, Bench, bench, read_all, read_tokens
from tests.runtime import keeper

KEEPS = "--sessions 4"
LONG = "x sim.tokens=100000 sim.tps=100"
TWICE = QUICK.replace("queue.max_attempts = 1", "queue.max_attempts = 2")


def said(words: str, more: str = "") -> str:
    """A prompt whose answer is empty, so that the next one has only to begin with these words."""
    return f"{words} sim.eos_at=0 {more}"


async def turn(made: Bench, session: str, words: str, more: str = "") -> int:
    """A request in a session that must be answered: how much of the prompt was there already."""
    _, record = await made.generate(said(words, more), session_id=session)
    assert record.outcome is Outcome.COMPLETED, record
    assert record.usage is not None
    return record.usage.reused_tokens


def last_worker(made: Bench) -> str:
    """Who has got the last request."""
    return made.events.all(RequestStarted)[-1].worker


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that is no event."""
    with trio.fail_after(SECONDS):
        while not condition():  # noqa: ASYNC110 - nothing tells of it
            await trio.sleep(0.005)


@asynccontextmanager
async def occupied(made: Bench) -> AsyncIterator[RequestStream]:
    """Keep the first of two workers busy; the second one is free."""
    async with (
        made.pool.request(RequestSpec(prompt=LONG)) as one,
        made.pool.request(RequestSpec(prompt=LONG)) as other,
    ):
        for each in (one, other):
            await read_tokens(each, 1)
        [on_first] = [each for each in (one, other) if each.request.worker == "sim.0"]
        [on_second] = [each for each in (one, other) if each is not on_first]
        on_second.request.cancel(CancelledBy.API)
        await on_second.request.wait_settled()
        yield on_first


async def test_a_session_goes_on_where_its_context_is(tmp_path: Path) -> None:
    """Only what was added is read; other sessions are elsewhere and have a context of their own."""
    async with bench(tmp_path, KEEPS, workers=2) as made:
        assert await turn(made, "s", "a b") == 0
        assert last_worker(made) == "sim.0"
        assert await turn(made, "other", "a b") == 0
        assert last_worker(made) == "sim.1"
        assert await turn(made, "s", "a b c") == 2
        assert last_worker(made) == "sim.0"
        assert await turn(made, "s", "a b c d") == 3
        assert made.pool.sessions == 2


async def test_a_session_waits_for_its_worker_though_another_is_free(tmp_path: Path) -> None:
    """Whoever has no context to lose does not wait with it."""
    async with bench(tmp_path, KEEPS, workers=2) as made:
        await turn(made, "s", "a b")
        async with occupied(made) as on_first:
            spec = RequestSpec(prompt=said("a b c"), session_id="s")
            async with made.pool.request(spec) as waiting:
                await made.generate("x sim.tokens=1")
                assert (last_worker(made), made.pool.queued) == ("sim.1", 1)
                on_first.request.cancel(CancelledBy.API)
                _, record = await read_all(waiting)
        assert record.usage is not None
        assert (last_worker(made), record.usage.reused_tokens) == ("sim.0", 2)


async def test_a_session_whose_worker_is_gone_begins_anew_elsewhere(tmp_path: Path) -> None:
    """Cold once, and warm again there; the worker that comes back holds nothing of it."""
    async with bench(tmp_path, KEEPS, workers=2) as made:
        await turn(made, "s", "a b")
        os.kill(made.slot(0).pid or 0, signal.SIGKILL)
        await made.events.wait(WorkerQuarantined, worker="sim.0")
        assert made.pool.sessions == 0
        assert await turn(made, "s", "a b c") == 0
        assert last_worker(made) == "sim.1"
        await made.events.wait(WorkerReady, worker="sim.0", generation=2)
        assert await turn(made, "s", "a b c d") == 3
        assert last_worker(made) == "sim.1"


async def test_a_session_survives_the_only_worker(tmp_path: Path) -> None:
    """Its request in flight is tried again on the next one, cold, and the one behind it follows."""
    async with bench(tmp_path, KEEPS, settings=TWICE) as made:
        await turn(made, "s", "a b")
        ask = partial(RequestSpec, session_id="s")
        async with (
            made.pool.request(ask(prompt=said("a b c", "sim.prefill_ms=300"))) as first,
            made.pool.request(ask(prompt=said("a b c d"))) as second,
        ):
            await made.events.wait(RequestStarted, count=2)
            os.kill(made.slot().pid or 0, signal.SIGKILL)
            records = [(await read_all(each))[1] for each in (first, second)]
        assert [record.outcome for record in records] == [Outcome.COMPLETED] * 2
        assert [record.usage and record.usage.reused_tokens for record in records] == [0, 3]
        assert first.request.attempt == 2


async def test_one_session_is_served_in_the_order_of_its_requests(tmp_path: Path) -> None:
    """One at a time, whatever their priorities and however many workers are free."""
    async with bench(tmp_path, KEEPS, workers=2) as made:
        ask = partial(RequestSpec, session_id="s")
        async with (
            made.pool.request(ask(prompt=said("a", "sim.prefill_ms=50"))) as first,
            made.pool.request(ask(prompt=said("a b", "sim.prefill_ms=50"))) as second,
            made.pool.request(ask(prompt=said("a b c"), priority=10)) as third,
        ):
            streams = (first, second, third)
            records = [(await read_all(each))[1] for each in streams]
        assert [record.usage and record.usage.reused_tokens for record in records] == [0, 1, 2]
        ids = [each.request.id for each in streams]
        told = [
            (type(event), event.request)
            for event in made.events.events
            if isinstance(event, RequestStarted | RequestFinished)
        ]
        assert told == [(kind, id_) for id_ in ids for kind in (RequestStarted, RequestFinished)]


@pytest.mark.parametrize("operation", ["reset", "close"])
async def test_an_operation_comes_between_its_neighbours(tmp_path: Path, operation: str) -> None:
    """After the generation in flight, and before the one that was asked for later."""
    async with bench(tmp_path, KEEPS, workers=2) as made:
        act = getattr(made.pool, f"{operation}_session")
        existed: list[bool] = []

        async def ask_for_it() -> None:
            existed.append(await act("s"))

        async with trio.open_nursery() as nursery:
            spec = RequestSpec(prompt=said("a b", "sim.prefill_ms=200"), session_id="s")
            async with made.pool.request(spec) as running:
                nursery.start_soon(ask_for_it)
                await wait_all_tasks_blocked()
                assert existed == []
                later = RequestSpec(prompt=said("a b c"), session_id="s")
                async with made.pool.request(later) as follower:
                    await read_all(running)
                    _, record = await read_all(follower)
        assert existed == [True]
        assert record.usage is not None
        assert record.usage.reused_tokens == 0
        assert await turn(made, "s", "a b c d") == 3


async def test_what_is_closed_is_gone_and_what_is_reset_is_not(tmp_path: Path) -> None:
    """Neither is an error for a session that there is not, and neither makes one."""
    async with bench(tmp_path, KEEPS) as made:
        await turn(made, "s", "a b")
        assert (await made.pool.reset_session("s"), made.pool.sessions) == (True, 1)
        assert await turn(made, "s", "a b c") == 0
        assert (await made.pool.close_session("s"), made.pool.sessions) == (True, 0)
        assert not await made.pool.close_session("s")
        assert not await made.pool.reset_session("s")
        assert made.pool.sessions == 0


async def test_a_full_worker_forgets_who_was_used_least_recently(tmp_path: Path) -> None:
    """Nobody is refused for want of room."""
    async with bench(tmp_path, "--sessions 2") as made:
        await turn(made, "a", "x y")
        await turn(made, "b", "x y")
        assert await turn(made, "a", "x y z") == 2
        assert await turn(made, "c", "x") == 0
        assert made.pool.sessions == 2
        assert await turn(made, "a", "x y z w") == 3
        assert await turn(made, "b", "x y z") == 0
        assert made.pool.sessions == 2


async def test_many_sessions_share_a_place_without_a_refusal(tmp_path: Path) -> None:
    """Each turn closes the one before; all at once they wait for each other."""
    async with bench(tmp_path, "--sessions 1", workers=2) as made:

        async def converse(session: str) -> None:
            for count in range(1, 6):
                await turn(made, session, "w " * count)

        async with trio.open_nursery() as nursery:
            for number in range(5):
                nursery.start_soon(converse, f"s{number}")
        assert made.pool.sessions <= 2
        assert len(made.events.all(WorkerSpawned)) == 2


async def test_what_a_session_left_behind_makes_room(tmp_path: Path) -> None:
    """A context that its session has gone on without, elsewhere, is no reason to refuse another."""
    async with bench(tmp_path, "--sessions 1", workers=2) as made:
        await turn(made, "s", "a b")
        async with occupied(made) as on_first:
            made.slot(0).drain()
            spec = RequestSpec(prompt=said("a b c", "sim.prefill_ms=500"), session_id="s")
            async with made.pool.request(spec) as running:
                await made.events.wait(RequestStarted, worker="sim.1", count=2)
                made.slot(0).resume()
                on_first.request.cancel(CancelledBy.API)
                await on_first.request.wait_settled()
                assert await turn(made, "other", "a") == 0
                assert (last_worker(made), made.pool.in_flight) == ("sim.0", 1)
                await read_all(running)
        assert made.pool.sessions == 2


async def test_an_idle_session_is_closed(tmp_path: Path) -> None:
    """Also the only one there ever was, with nothing else going on."""
    settings = QUICK + 'session_ttl = "200ms"\n'
    async with bench(tmp_path, KEEPS, settings=settings) as made:
        await turn(made, "s", "a b")
        assert made.pool.sessions == 1
        await until(lambda: made.pool.sessions == 0)
        assert await turn(made, "s", "a b c") == 0


async def test_a_session_in_use_is_not_idle(tmp_path: Path) -> None:
    """Its time counts from the end of its last request."""
    settings = QUICK + 'session_ttl = "300ms"\n'
    async with bench(tmp_path, KEEPS, settings=settings) as made:
        await turn(made, "s", "a b", "sim.prefill_ms=700")
        assert await turn(made, "s", "a b c") == 2


async def test_idle_sessions_are_closed_once_their_worker_has_time(tmp_path: Path) -> None:
    """What runs there is not disturbed by it."""
    settings = QUICK + 'session_ttl = "100ms"\n'
    async with bench(tmp_path, KEEPS, settings=settings) as made:
        for name in "abc":
            await turn(made, name, "x")
        _, record = await made.generate("x sim.tokens=30 sim.tps=100")
        assert record.outcome is Outcome.COMPLETED
        await until(lambda: made.pool.sessions == 0)


async def test_workers_without_sessions_refuse_them_once_that_is_known(tmp_path: Path) -> None:
    """Before, a request is served all the same: a session is a context and nothing else."""
    async with bench(tmp_path, "--sessions 0 --load_ms 200", ready=False) as made:
        assert await turn(made, "s", "a b") == 0
        assert made.pool.sessions == 0
        with pytest.raises(InvalidRequest, match="keep no named sessions") as refused:
            await made.generate("a", session_id="s")
        assert refused.value.param == "session_id"
        assert not await made.pool.close_session("s")
        await made.generate("a")


async def test_a_cancelled_session_begins_anew_where_it_was(tmp_path: Path) -> None:
    """Its worker stays, and nothing of the cancelled answer is in the next one."""
    async with bench(tmp_path, KEEPS) as made:
        await turn(made, "s", "a b")
        async with made.pool.request(RequestSpec(prompt=LONG, session_id="s")) as stream:
            await read_tokens(stream, 1)
            stream.request.cancel(CancelledBy.API)
            await stream.request.wait_settled()
        assert await turn(made, "s", "a b c") == 0
        assert await turn(made, "s", "a b c d") == 3
        assert len(made.events.all(WorkerSpawned)) == 1


async def test_a_worker_that_cannot_be_cancelled_takes_its_sessions_with_it(tmp_path: Path) -> None:
    """The cancelled one's and its neighbours': both begin anew."""
    async with bench(tmp_path, f"{KEEPS} --no_cancel") as made:
        await turn(made, "s", "a b")
        await turn(made, "other", "a b")
        async with made.pool.request(RequestSpec(prompt=LONG, session_id="s")) as stream:
            await read_tokens(stream, 1)
        await made.events.wait(WorkerReady, generation=2)
        assert made.pool.sessions == 0
        assert await turn(made, "other", "a b c") == 0
        assert await turn(made, "s", "a b c") == 0


async def test_probes_and_operations_take_turns(tmp_path: Path) -> None:
    """The idle probe of a worker without ``ping`` is an operation itself; nothing collides."""
    settings = QUICK + 'health.probe_interval = "10ms"\nhealth.probe_timeout = "5s"\n'
    options = f"{KEEPS} --no_ping"
    async with bench(tmp_path, options, workers=2, settings=settings) as made:

        async def converse(session: str) -> None:
            for _ in range(5):
                assert await turn(made, session, "a") == 0
                assert await turn(made, session, "a b") == 1
                await made.pool.reset_session(session)
                await trio.sleep(0.015)  # let a probe begin
            assert await made.pool.close_session(session)

        async with trio.open_nursery() as nursery:
            for name in "abcde":
                nursery.start_soon(converse, name)
        assert made.pool.sessions == 0
        assert len(made.events.all(WorkerSpawned)) == 2
        assert made.events.all(WorkerQuarantined) == []


async def held_by(made: Bench, session: str) -> None:
    """Let the first worker hold a session."""
    await made.generate("x", session_id=session)
    assert made.pool.sessions == 1


async def test_a_session_that_a_worker_has_no_memory_for_is_not_bound_to_it(tmp_path: Path) -> None:
    """Its client hears the worker's own code; the next request goes where there may be room."""
    async with bench(tmp_path, command=keeper.command(tmp_path / "gate"), workers=2) as made:
        _, record = await made.generate("x", session_id="full")
        assert record.error is FailureReason.ENGINE_ERROR
        assert "capacity_exhausted" in (record.detail or "")
        assert made.pool.sessions == 0
        await made.generate("x", session_id="other")
        _, record = await made.generate("x", session_id="full")
        assert (record.outcome, last_worker(made)) == (Outcome.COMPLETED, "sim.1")


async def test_a_worker_that_dies_of_being_idle_is_replaced(tmp_path: Path) -> None:
    """What is closed because nobody used it is an operation like any other."""
    settings = QUICK + 'session_ttl = "100ms"\n'
    command = keeper.command(tmp_path / "gate")
    async with bench(tmp_path, command=command, settings=settings) as made:
        await held_by(made, "die")
        await made.events.wait(WorkerReady, generation=2)
        assert made.pool.sessions == 0
        await held_by(made, "s")


async def test_a_worker_that_dies_off_an_operation_has_done_it(tmp_path: Path) -> None:
    """Whoever asked hears that it is done, for the session is gone; the slot comes back."""
    async with bench(tmp_path, command=keeper.command(tmp_path / "gate")) as made:
        await held_by(made, "die")
        with trio.fail_after(SECONDS):
            assert await made.pool.close_session("die")
        assert made.pool.sessions == 0
        await made.events.wait(WorkerReady, generation=2)
        text, _ = await made.generate("x", session_id="s")
        assert text == ""


async def test_an_operation_that_hangs_costs_the_worker(tmp_path: Path) -> None:
    """Within ``probe_timeout``; what waited behind it is served by the next one."""
    settings = TWICE + 'health.probe_timeout = "200ms"\n'
    command = keeper.command(tmp_path / "gate")
    async with bench(tmp_path, command=command, workers=2, settings=settings) as made:
        await held_by(made, "hang")
        with trio.fail_after(SECONDS):
            assert await made.pool.reset_session("hang")
        [condemned] = made.events.all(WorkerQuarantined)
        assert condemned.reason == QuarantineReason.HEALTH_PROBE_FAILED
        await made.generate("x", session_id="hang")
        assert last_worker(made) == "sim.1"


async def test_a_client_that_leaves_while_its_operation_waits_has_not_asked(tmp_path: Path) -> None:
    """The session stays as it is, and nobody behind is held up."""
    async with bench(tmp_path, KEEPS) as made:
        spec = RequestSpec(prompt=said("a b", "sim.prefill_ms=200"), session_id="s")
        async with made.pool.request(spec) as running:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(made.pool.reset_session, "s")
                await wait_all_tasks_blocked()
                nursery.cancel_scope.cancel()
            await read_all(running)
        assert await turn(made, "s", "a b c") == 2


async def test_a_client_that_leaves_during_its_operation_has_asked(tmp_path: Path) -> None:
    """The worker finishes it, and whatever comes next waits for that."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    async with bench(tmp_path, command=keeper.command(gate)) as made:
        await held_by(made, "wait")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(made.pool.close_session, "wait")
            await until(lambda: not made.slot().free)
            nursery.cancel_scope.cancel()
        async with made.pool.request(RequestSpec(prompt="x", session_id="wait")) as follower:
            await wait_all_tasks_blocked()
            assert (made.pool.queued, made.pool.sessions) == (1, 1)
            with trio.fail_after(SECONDS):
                await trio.to_thread.run_sync(gate.write_text, "", abandon_on_cancel=True)
            text, record = await read_all(follower)
        assert (text, record.outcome) == ("wait", Outcome.COMPLETED)
        assert made.pool.sessions == 1


async def test_a_stop_in_the_middle_of_an_operation_is_bounded(tmp_path: Path) -> None:
    """The worker is torn down with it, and whoever asked is answered."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    async with (
        bench(tmp_path, command=keeper.command(gate)) as made,
        trio.open_nursery() as nursery,
    ):
        await held_by(made, "wait")
        nursery.start_soon(made.pool.close_session, "wait")
        await until(lambda: not made.slot().free)
        with trio.fail_after(SECONDS):
            assert await made.supervisor.stop(trio.Event())
