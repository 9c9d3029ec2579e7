"""What an operator does to a whole pool over the API, with real workers in the slots."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from supervisord_llm.client import ApiError
from supervisord_llm.core.words import CancelledBy, FailureReason, Outcome, SlotState
from supervisord_llm.events import ControlOperation, RequestAccepted
from supervisord_llm.schema import Finished, GenerateRequest, Token
from tests.api.house import House, ask, house, next_of, read
from tests.harness import SECONDS


async def keep_asking(at: House, ends: list[Finished], enough: trio.Event) -> None:
    """Send one short generation after the other until told to stop."""
    while not enough.is_set():
        async with at.client.generate(ask("x sim.tokens=20 sim.tps=200")) as stream:
            _, finished = await read(stream)
        ends.append(finished)


async def test_a_pool_is_reloaded_under_load_without_losing_a_request(tmp_path: Path) -> None:
    """When it has been waited for, every slot has a worker of the new revision."""
    ends: list[Finished] = []
    enough = trio.Event()
    async with house(tmp_path, workers=2) as at, trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(keep_asking, at, ends, enough)
        await at.wait(RequestAccepted, 3)
        with trio.fail_after(SECONDS):
            reply = await at.client.reload_pool("sim", wait=True)
        workers = (await at.client.workers()).workers
        pool = await at.client.pool("sim")
        enough.set()
    assert (False, reply.revision) == (reply.reloading, pool.revision)
    assert {reply.revision} == {worker.revision for worker in workers}
    assert {Outcome.COMPLETED} == {finished.outcome for finished in ends}


async def test_a_pool_grows_and_shrinks(tmp_path: Path) -> None:
    """Waiting for either ends when there are as many workers as were asked for."""
    async with house(tmp_path) as at:
        with trio.fail_after(SECONDS):
            grown = await at.client.scale("sim", 3, wait=True)
            many = (await at.client.workers()).workers
            shrunk = await at.client.scale("sim", 1, wait=True)
            few = (await at.client.workers()).workers
        details = [operation.detail for operation in at.all(ControlOperation)]
    assert (3, {SlotState.READY: 3}) == (grown.target, grown.states)
    assert (1, {SlotState.READY: 1}) == (shrunk.target, shrunk.states)
    assert (3, 1) == (len(many), len(few))
    assert ["3 workers", "1 workers"] == details


async def test_a_drained_pool_finishes_and_refuses_until_it_is_resumed(tmp_path: Path) -> None:
    """What runs completes; what comes is refused, with a word on what brings the pool back."""
    async with house(tmp_path) as at:
        async with at.client.generate(ask("x sim.tokens=50 sim.tps=200")) as stream:
            await next_of(stream, Token)
            assert (await at.client.drain_pool("sim")).drained
            with pytest.raises(ApiError, match="resume") as refused:
                async with at.client.generate(ask("y")):
                    pass
            _, finished = await read(stream)
        with trio.fail_after(SECONDS):
            drained = await at.client.drain_pool("sim", wait=True)
        assert (503, "pool_unavailable") == (refused.value.status, refused.value.code)
        assert (Outcome.COMPLETED, True) == (finished.outcome, drained.drained)
        assert not (await at.client.resume_pool("sim")).drained
        await at.wait_serving(1)
        async with at.client.generate(ask("z sim.tokens=1")) as stream:
            _, finished = await read(stream)
    assert Outcome.COMPLETED == finished.outcome


async def test_a_slot_is_drained_and_stays_down(tmp_path: Path) -> None:
    """Until it is resumed; its neighbour serves meanwhile."""
    async with house(tmp_path, workers=2) as at:
        await at.client.drain("sim.0")
        with trio.fail_after(SECONDS):
            while at.supervisor.slots["sim.0"].state is not SlotState.STOPPED:
                await at.ring.wait_appended()
        worker = await at.client.worker("sim.0")
        async with at.client.generate(ask("x sim.tokens=1")) as stream:
            _, finished = await read(stream)
        assert ("drain", None) == (worker.reason, worker.pid)
        await at.client.resume("sim.0")
        await at.wait_serving(2)
    assert Outcome.COMPLETED == finished.outcome


async def test_a_deadline_cancels_and_a_full_queue_is_not_waited_for(tmp_path: Path) -> None:
    """The one on the worker is cancelled in time, the one behind it fails in the queue."""
    async with (
        house(tmp_path) as at,
        at.client.generate(
            GenerateRequest(pool="sim", prompt="x sim.tps=100 sim.tokens=100000", deadline_ms=1000)
        ) as running,
        at.client.generate(
            GenerateRequest(pool="sim", prompt="y", queue_timeout_ms=100, priority=10)
        ) as waiting,
    ):
        _, expired = await read(waiting)
        _, finished = await read(running)
    assert expired.error is not None
    assert (Outcome.FAILED, FailureReason.QUEUE_TIMEOUT) == (expired.outcome, expired.error.code)
    assert (Outcome.CANCELLED, CancelledBy.DEADLINE) == (finished.outcome, finished.cancelled_by)


async def test_a_session_is_warm_until_it_is_reset_or_closed(tmp_path: Path) -> None:
    """Its next request reuses what its worker has read; afterwards it begins anew."""

    async def reused(at: House, words: str) -> int:
        # An answer of no tokens, so that the next prompt continues this one and nothing else.
        prompt = f"{words} sim.eos_at=0"
        request = GenerateRequest(pool="sim", prompt=prompt, session_id="trip")
        async with at.client.generate(request) as stream:
            _, finished = await read(stream)
        assert finished.usage is not None
        return finished.usage.reused_tokens

    async with house(tmp_path, "--sessions 2", workers=2) as at:
        cold, warm = await reused(at, "a b c"), await reused(at, "a b c d")
        held = (await at.client.pool("sim")).sessions
        was_reset = await at.client.reset_session("trip")
        after_reset = await reused(at, "a b c d e")
        closed = await at.client.close_session("trip")
        again = await at.client.close_session("trip", model="sim")
    assert (0, 0) == (cold, after_reset)
    assert (3, 1) == (warm, held)
    assert (True, True, False) == (was_reset.existed, closed.existed, again.existed)
