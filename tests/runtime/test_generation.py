"""Requests on workers that behave."""

from __future__ import annotations

from pathlib import Path

import trio

from supervisord_llm.core.words import Outcome, RequestState
from supervisord_llm.events import RequestAccepted, RequestFinished, RequestStarted
from supervisord_llm.runtime.request import RequestSpec
from tests.harness import bench, read_all


async def test_a_request_gets_its_tokens_and_one_record(tmp_path: Path) -> None:
    """The whole output arrives in order, then the record, then nothing."""
    async with (
        bench(tmp_path) as made,
        made.pool.request(RequestSpec(prompt="hello sim.tokens=5")) as stream,
    ):
        text, record = await read_all(stream)
        assert await stream.next_batch() is None
    assert text == "t0 t1 t2 t3 t4 "
    assert (record.outcome, record.finish_reason) == (Outcome.COMPLETED, "length")
    assert record.usage is not None
    assert (record.usage.prompt_tokens, record.usage.generated_tokens) == (1, 5)
    [finished] = made.events.all(RequestFinished)
    assert (finished.tokens, sum(finished.gaps)) == (5, 4)


async def test_requests_share_the_slots(tmp_path: Path) -> None:
    """Two requests run on two slots at the same time; the third waits for one of them."""
    async with bench(tmp_path, "--tps 50", workers=2) as made:
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(made.generate, "a sim.tokens=10")
        started = made.events.all(RequestStarted)
        assert {event.worker for event in started[:2]} == {"sim.0", "sim.1"}
        assert len(started) == 3
        assert [event.queued for event in made.events.all(RequestAccepted)] == [0, 0, 0]


async def test_the_queue_is_first_in_first_out(tmp_path: Path) -> None:
    """With one slot, requests start in the order in which they came."""
    async with bench(tmp_path, "--tps 100") as made:
        async with (
            made.pool.request(RequestSpec(prompt="a sim.tokens=20")) as first,
            made.pool.request(RequestSpec(prompt="b sim.tokens=1")) as second,
            made.pool.request(RequestSpec(prompt="c sim.tokens=1")) as third,
        ):
            assert (first.queued, second.queued, third.queued) == (0, 0, 1)
            for stream in (third, second, first):
                await read_all(stream)
        started = [event.request for event in made.events.all(RequestStarted)]
        assert started == [first.request.id, second.request.id, third.request.id]


async def test_a_worker_error_is_local_to_its_request(tmp_path: Path) -> None:
    """An ``error`` reply fails that request; the same process serves the next one."""
    async with bench(tmp_path) as made:
        pid = made.slot().pid
        _, record = await made.generate("x sim.error=no_luck")
        assert (record.outcome, record.error) == (Outcome.FAILED, "engine_error")
        assert not record.retryable
        _, record = await made.generate("y sim.tokens=1")
        assert record.outcome is Outcome.COMPLETED
        assert made.slot().pid == pid


async def test_a_remembered_request_can_be_asked_about(tmp_path: Path) -> None:
    """After its end a request is found by its id, without its prompt."""
    async with bench(tmp_path) as made:
        async with made.pool.request(RequestSpec(prompt="secret sim.tokens=1")) as stream:
            await read_all(stream)
        found = made.supervisor.find_request(stream.request.id)
        assert (found.state, found.worker, found.spec.prompt) == (
            RequestState.FINISHED,
            "sim.0",
            "",
        )


async def test_utf8_and_emoji_arrive_whole(tmp_path: Path) -> None:
    """Characters that the engine splits over tokens are not broken on the way."""
    async with bench(tmp_path) as made:
        text, _ = await made.generate("x sim.utf8 sim.tokens=32")
        assert "\ufffd" not in text
        assert not text.isascii()


async def test_a_slow_reader_loses_only_its_own_request(tmp_path: Path) -> None:
    """A client that does not read fails with ``slow_consumer``; its worker serves on."""
    settings = 'queue = { mailbox_tokens = 64 }\ncancel = { cooperative_grace = "1s" }'
    async with bench(tmp_path, workers=2, settings=settings) as made:
        pids = [slot.pid for slot in made.pool.slots]
        async with made.pool.request(RequestSpec(prompt="a sim.tokens=100000")) as idle:
            _, other = await made.generate("b sim.tokens=10 sim.tps=20")
            assert other.outcome is Outcome.COMPLETED
            record = await idle.request.wait_finished()
            assert (record.outcome, record.error) == (Outcome.FAILED, "slow_consumer")
            await idle.request.wait_settled()
        assert [slot.pid for slot in made.pool.slots] == pids


async def test_a_fast_worker_does_not_overrun_a_client_that_reads(tmp_path: Path) -> None:
    """A client that reads as fast as it can gets everything of a worker that never pauses."""
    async with bench(tmp_path, settings="queue = { mailbox_tokens = 8 }") as made:
        text, record = await made.generate("a sim.tokens=50000")
    assert text.endswith("t49998 t49999 ")
    assert record.outcome is Outcome.COMPLETED
