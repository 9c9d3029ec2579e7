"""Workers that cannot be cancelled: ended with their request, or left to finish it for nobody."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
import trio.testing

from supervisord_llm.core.words import (
    CancelledBy,
    FailureReason,
    Outcome,
    PlannedReason,
    QuarantineReason,
    RequestState,
    Resolution,
    SlotState,
)
from supervisord_llm.events import (
    CancelDelivered,
    CancelSettled,
    RequestFinished,
    RequestLateTerminal,
    RequestStarted,
    WorkerQuarantined,
    WorkerReady,
)
from supervisord_llm.runtime.request import Request, RequestSpec
from tests.harness import QUICK, SECONDS, Bench, bench, read_all, read_tokens

SOON = "x sim.tokens=30 sim.tps=60"
"""Half a second of work."""
ENDLESS = "x sim.tokens=100000 sim.tps=100"


def with_cancel(keys: str) -> str:
    """The quick settings with more keys of ``cancel``."""
    return QUICK.replace("cancel = {", f"cancel = {{ {keys},")


DETACH = with_cancel('on_uncancellable = "detach"')
AUTO = with_cancel('on_uncancellable = "auto"')


async def cancelled(made: Bench, prompt: str, tokens: int = 2, **spec: object) -> Request:
    """A request that was cancelled after some tokens, and has been answered."""
    asked = RequestSpec(prompt=prompt, **spec)  # type: ignore[arg-type]
    async with made.pool.request(asked) as stream:
        await read_tokens(stream, tokens)
        stream.request.cancel(CancelledBy.API)
        with trio.fail_after(SECONDS):
            record = await stream.request.wait_finished()
        assert (record.outcome, record.cancelled_by) == (Outcome.CANCELLED, CancelledBy.API)
    return stream.request


async def settled(request: Request) -> Resolution | None:
    """What became of the worker, once that is known."""
    with trio.fail_after(SECONDS):
        await request.wait_settled()
    return request.resolution


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ("--no_cancel", DETACH),
        ("", with_cancel('on_uncancellable = "detach", cancellation = "off"')),
    ],
    ids=["cannot", "may not"],
)
async def test_a_detached_worker_finishes_for_nobody(
    tmp_path: Path, options: str, settings: str
) -> None:
    """The client is answered at once, the slot works on unheard, then serves as if nothing was."""
    async with bench(tmp_path, options, settings=settings) as made:
        pid = made.slot().pid
        request = await cancelled(made, SOON)
        assert request.record is not None
        assert request.record.answered_by == "detach"
        assert request.record.cancel_elapsed_ms is not None
        assert request.record.cancel_elapsed_ms < 100
        assert (request.state, request.resolution) == (RequestState.HELD, None)
        assert (made.slot().state, made.slot().requests) == (SlotState.CANCELLING, [request.id])
        async with made.pool.request(RequestSpec(prompt="y sim.tokens=2")) as following:
            assert made.pool.queued == 1
            text, record = await read_all(following)
        assert (text, record.outcome) == ("t0 t1 ", Outcome.COMPLETED)
        assert request.resolution is Resolution.DETACHED
        [event] = made.events.all(CancelSettled)
        assert (event.request, event.resolution) == (request.id, "detached")
        assert event.elapsed_ms > 100
        assert request.tokens < 30, "what came for nobody was counted as delivered"
        assert made.slot().pid == pid
        for kind in (WorkerQuarantined, CancelDelivered, RequestLateTerminal):
            assert made.events.all(kind) == []


async def test_a_client_that_leaves_is_a_cancellation_too(tmp_path: Path) -> None:
    """Leaving a worker that is to be let alone ends the request at once, in its prefill as well."""
    async with bench(tmp_path, "--no_cancel", settings=DETACH) as made:
        pid = made.slot().pid
        async with made.pool.request(RequestSpec(prompt="x sim.prefill_ms=300")) as stream:
            await stream.next_batch()
        record = stream.request.record
        assert record is not None
        assert (record.cancelled_by, record.answered_by) == (CancelledBy.CLIENT, "detach")
        assert await settled(stream.request) is Resolution.DETACHED
        assert made.slot().pid == pid


async def test_a_neighbour_takes_the_work_of_a_detached_worker(tmp_path: Path) -> None:
    """Nothing waits for the detached one while another slot is free."""
    async with bench(tmp_path, "--no_cancel", settings=DETACH, workers=2) as made:
        request = await cancelled(made, ENDLESS)
        for _ in range(3):
            _, record = await made.generate("y sim.tokens=2")
            assert record.outcome is Outcome.COMPLETED
        assert request.state is RequestState.HELD
        served = {event.worker for event in made.events.all(RequestFinished, outcome="completed")}
        assert served == {"sim.1"}


async def test_a_session_does_not_wait_for_a_detached_worker(tmp_path: Path) -> None:
    """It begins anew on another one, as if its own were out of service."""
    async with bench(tmp_path, "--no_cancel --sessions 4", settings=DETACH, workers=2) as made:
        for session in ("one", "two", "three"):
            await made.generate("y sim.tokens=1", session_id=session)
        request = await cancelled(made, ENDLESS, session_id="three")
        assert request.worker == "sim.0"
        async with made.pool.request(RequestSpec(prompt="z sim.tokens=1", session_id="one")) as it:
            _, record = await read_all(it)
        assert (record.outcome, it.request.worker) == (Outcome.COMPLETED, "sim.1")
        homes = [event.worker for event in made.events.all(RequestStarted)]
        assert homes == ["sim.0", "sim.1", "sim.0", "sim.0", "sim.1"]


async def test_the_patience_with_a_detached_worker_has_an_end(tmp_path: Path) -> None:
    """After ``detach_timeout`` it is ended like any other that is unfit, and replaced."""
    settings = with_cancel('on_uncancellable = "detach", detach_timeout = "300ms"')
    async with bench(tmp_path, "--no_cancel", settings=settings) as made:
        request = await cancelled(made, ENDLESS)
        assert await settled(request) is Resolution.TERMINATED
        [event] = made.events.all(WorkerQuarantined)
        assert (event.reason, event.requests) == ("uncancellable", [request.id])
        assert event.detail is not None
        assert "detach_timeout (0.3 s)" in event.detail
        [finished] = made.events.all(RequestFinished)
        assert finished.outcome is Outcome.CANCELLED
        await made.events.wait(WorkerReady, generation=2)


async def test_a_detached_worker_that_hangs_is_found(tmp_path: Path) -> None:
    """Being let alone is not being forgotten: it is judged like one that has a client."""
    settings = DETACH + 'health.token_stall = "300ms"\n'
    async with bench(tmp_path, "--no_cancel", settings=settings) as made:
        request = await cancelled(made, "x sim.tokens=100 sim.hang=decode sim.hang_at=3")
        assert await settled(request) is Resolution.TERMINATED
        [event] = made.events.all(WorkerQuarantined)
        assert event.reason == "token_stall"


async def test_a_detached_worker_that_dies_is_replaced(tmp_path: Path) -> None:
    """Its client has been answered, so nobody fails with it."""
    async with bench(tmp_path, "--no_cancel", settings=DETACH) as made:
        request = await cancelled(made, "x sim.tokens=100 sim.tps=100 sim.exit=3 sim.at=20")
        await settled(request)
        [finished] = made.events.all(RequestFinished)
        assert finished.outcome is Outcome.CANCELLED
        _, record = await made.generate("y sim.tokens=2")
        assert record.outcome is Outcome.COMPLETED
        assert made.slot().generation == 2


async def test_a_client_that_does_not_read_costs_no_model(tmp_path: Path) -> None:
    """Its request fails alone; the worker that cannot be stopped finishes for nobody."""
    settings = DETACH + "queue.mailbox_tokens = 4\n"
    async with bench(tmp_path, "--no_cancel", settings=settings) as made:
        pid = made.slot().pid
        async with made.pool.request(RequestSpec(prompt="x sim.tokens=60 sim.tps=100")) as stream:
            with trio.fail_after(SECONDS):
                record = await stream.request.wait_finished()
            assert record.error is FailureReason.SLOW_CONSUMER
            await settled(stream.request)
        _, record = await made.generate("y sim.tokens=2")
        assert record.outcome is Outcome.COMPLETED
        assert made.slot().pid == pid


# auto -------------------------------------------------------------------------


async def test_auto_ends_a_worker_that_would_write_for_longer_than_a_load(tmp_path: Path) -> None:
    """At the pace that was seen the rest would take minutes; a load takes a moment."""
    async with bench(tmp_path, "--no_cancel", settings=AUTO) as made:
        request = await cancelled(made, ENDLESS, 4)
        assert request.record is not None
        assert request.record.answered_by == "grace"
        assert await settled(request) is Resolution.TERMINATED
        [event] = made.events.all(WorkerQuarantined)
        assert event.reason == "uncancellable"


@pytest.mark.parametrize(
    ("prompt", "tokens", "limit"),
    [
        ("x sim.tokens=20 sim.tps=100", 4, 20),
        ("x sim.tokens=1 sim.prefill_ms=300", 0, None),
    ],
    ids=["nearly done", "not yet known"],
)
async def test_auto_lets_a_worker_finish_that_is_sooner_than_a_load(
    tmp_path: Path, prompt: str, tokens: int, limit: int | None
) -> None:
    """What is left to write takes less than a load did, or nobody can tell what it takes."""
    async with bench(tmp_path, "--no_cancel --load_ms 300", settings=AUTO) as made:
        pid = made.slot().pid
        async with made.pool.request(RequestSpec(prompt=prompt, max_new_tokens=limit)) as stream:
            await read_tokens(stream, tokens)
            await made.events.wait(WorkerReady)
        assert stream.request.record is not None
        assert stream.request.record.answered_by == "detach"
        assert await settled(stream.request) is Resolution.DETACHED
        assert (made.slot().pid, made.events.all(WorkerQuarantined)) == (pid, [])


# Its slot is to go ------------------------------------------------------------


async def test_a_stop_does_not_wait_for_a_detached_worker(tmp_path: Path) -> None:
    """Nobody waits for its output, so it does not get the time that running work gets."""
    async with bench(tmp_path, "--no_cancel", settings=DETACH) as made:
        request = await cancelled(made, ENDLESS)
        with trio.fail_after(4):  # shutdown_drain alone is 5 s
            assert await made.supervisor.stop(trio.Event())
        assert made.slot().state is SlotState.STOPPED
        assert request.resolution is Resolution.TERMINATED


async def test_a_cancellation_during_the_stop_ends_the_worker(tmp_path: Path) -> None:
    """What is saved by leaving a worker alone, its loaded model, is lost anyway."""
    async with bench(tmp_path, "--no_cancel", settings=DETACH) as made:
        async with (
            made.pool.request(RequestSpec(prompt=ENDLESS)) as stream,
            trio.open_nursery() as nursery,
        ):
            await read_tokens(stream, 2)
            nursery.start_soon(made.supervisor.stop, trio.Event())
            await trio.testing.wait_all_tasks_blocked()
            assert made.slot().state is SlotState.DRAINING
            stream.request.cancel(CancelledBy.API)
            assert await settled(stream.request) is Resolution.TERMINATED
        [event] = made.events.all(WorkerQuarantined)
        assert event.reason == "uncancellable"


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
async def test_a_reload_does_not_wait_for_a_detached_worker(tmp_path: Path, before: bool) -> None:
    """Whether the client leaves before or after it is asked for; and it counts as no failure."""
    async with bench(tmp_path, "--no_cancel", settings=DETACH) as made:
        async with made.pool.request(RequestSpec(prompt=ENDLESS)) as stream:
            await read_tokens(stream, 2)
            if before:
                stream.request.cancel(CancelledBy.API)
            made.slot().reload()
            stream.request.cancel(CancelledBy.API)
        assert await settled(stream.request) is Resolution.TERMINATED
        await made.events.wait(WorkerReady, generation=2)
        assert made.slot().restarts == 0


async def test_a_drained_slot_gives_up_a_detached_worker(tmp_path: Path) -> None:
    """It is down in a moment, and comes back when it is asked to."""
    async with bench(tmp_path, "--no_cancel", settings=DETACH) as made:
        await cancelled(made, ENDLESS)
        made.slot().drain()
        with trio.fail_after(SECONDS):
            await made.slot().wait_down()
        assert (made.slot().state, made.slot().reason) == (
            SlotState.STOPPED,
            PlannedReason.DRAIN,
        )
        made.slot().resume()
        await made.wait_ready()


async def test_an_operator_can_end_a_detached_worker(tmp_path: Path) -> None:
    """Quarantine is for the worker, whoever waits for it."""
    async with bench(tmp_path, "--no_cancel", settings=DETACH) as made:
        request = await cancelled(made, ENDLESS)
        made.slot().quarantine()
        assert await settled(request) is Resolution.TERMINATED
        [event] = made.events.all(WorkerQuarantined)
        assert event.reason == QuarantineReason.OPERATOR
        [finished] = made.events.all(RequestFinished)
        assert finished.cancelled_by is CancelledBy.API
        await made.events.wait(WorkerReady, generation=2)
