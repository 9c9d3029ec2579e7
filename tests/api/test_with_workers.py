"""The HTTP front over the real runtime: sim workers behind it, the real client before it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import trio

from supervisord_llm.core.words import (
    CancelledBy,
    FailureReason,
    FinishReason,
    Outcome,
    RequestState,
    Resolution,
    SlotState,
)
from supervisord_llm.events import (
    CancelSettled,
    RequestAccepted,
    RequestFinished,
    WorkerQuarantined,
    WorkerReady,
)
from supervisord_llm.schema import GenerateRequest, Message, Started, Token
from tests.api.house import ask, house, next_of, read
from tests.api.raw import post, read_until
from tests.harness import QUICK, SECONDS


async def test_a_generation_passes_through_unchanged(tmp_path: Path) -> None:
    """Every token of a long answer, in order, and the worker's own count of them."""
    async with house(tmp_path) as at, at.client.generate(ask("a b c sim.tokens=5000")) as stream:
        text, finished = await read(stream)
    assert [f"t{number}" for number in range(5000)] == text.split()
    assert (Outcome.COMPLETED, FinishReason.LENGTH) == (finished.outcome, finished.finish_reason)
    assert finished.usage is not None
    assert (3, 5000) == (finished.usage.prompt_tokens, finished.usage.generated_tokens)
    assert finished.timings.ttft_ms is not None
    assert finished.timings.queued_ms <= finished.timings.ttft_ms <= finished.timings.total_ms


async def test_messages_go_through_the_workers_template(tmp_path: Path) -> None:
    """The template is what the worker said when it was ready; its words are the prompt."""
    template = "--chat_template={{{{messages[0].content}}}}_{{{{messages[0].role}}}}"
    async with house(tmp_path, template) as at:
        turn = Message(role="user", content="x sim.text=yes,")
        request = GenerateRequest(pool="sim", messages=[turn])
        async with at.client.generate(request) as stream:
            text, _ = await read(stream)
    assert "yes, user" == text


async def test_the_control_routes_show_a_running_generation(tmp_path: Path) -> None:
    """Status, pools, workers and the request itself agree, and decode into the client's types."""
    async with house(tmp_path, workers=2) as at:
        async with at.client.generate(ask("x sim.tokens=100000 sim.tps=200")) as stream:
            started = await next_of(stream, Started)
            await next_of(stream, Token)
            status, pools = await at.client.status(), await at.client.pools()
            worker = await at.client.worker(started.worker)
            request = await at.client.request(stream.accepted.id)
        assert {SlotState.BUSY: 1, SlotState.READY: 1} == status.pools[0].states
        assert ("running", 1, 1) == (
            status.state,
            status.totals.accepted,
            status.pools[0].in_flight,
        )
        assert [stream.accepted.id] == worker.requests
        assert (SlotState.BUSY, True) == (worker.state, worker.pid is not None)
        assert (RequestState.STREAMING, started.worker, None) == (
            request.state,
            request.worker,
            request.outcome,
        )
        assert request.timings.ttft_ms is not None
        assert pools.pools[0].model is not None
        assert 2 == pools.pools[0].config["workers"]


@pytest.mark.parametrize("prompt", ["x sim.tokens=100000 sim.tps=200", "x sim.slow=prefill"])
async def test_a_client_that_leaves_frees_its_worker(tmp_path: Path, prompt: str) -> None:
    """In decode and in prefill: cancelled as the client, cooperatively, and the slot serves on."""
    async with house(tmp_path) as at:
        async with at.client.generate(ask(prompt)) as stream:
            await next_of(stream, Started)
        settled = await at.wait(CancelSettled)
        finished = await at.wait(RequestFinished)
        assert (Resolution.COOPERATIVE, Outcome.CANCELLED, CancelledBy.CLIENT) == (
            settled.resolution,
            finished.outcome,
            finished.cancelled_by,
        )
        async with at.client.generate(ask("y sim.tokens=2")) as stream:
            text, _ = await read(stream)
    assert "t0 t1" == text.strip()
    assert 1 == len(at.all(WorkerReady))


async def test_a_client_that_leaves_the_queue_never_reaches_a_worker(tmp_path: Path) -> None:
    """Its request is dropped before it starts; the one before it is untouched."""
    async with (
        house(tmp_path) as at,
        at.client.generate(ask("x sim.tokens=60 sim.tps=200")) as first,
    ):
        await next_of(first, Started)
        async with at.client.generate(ask("y")) as second:
            assert 0 == second.accepted.queued
        settled = await at.wait(CancelSettled)
        _, finished = await read(first)
    assert (Resolution.QUEUED, second.accepted.id) == (settled.resolution, settled.request)
    assert Outcome.COMPLETED == finished.outcome


async def test_cancel_by_the_api_is_one_terminal_for_everybody(tmp_path: Path) -> None:
    """The stream's last line and the answer to wait=true tell the same."""
    async with (
        house(tmp_path) as at,
        at.client.generate(ask("x sim.tokens=100000 sim.tps=200")) as stream,
    ):
        await next_of(stream, Token)
        info = await at.client.cancel(stream.accepted.id, wait=True)
        _, finished = await read(stream)
    assert (Outcome.CANCELLED, CancelledBy.API) == (finished.outcome, finished.cancelled_by)
    assert (finished.outcome, finished.cancel) == (info.outcome, info.cancel)


async def test_a_wedged_worker_costs_its_client_only_the_grace(tmp_path: Path) -> None:
    """The answer comes with the grace; the request settles when the process is gone."""
    async with house(tmp_path, "--ignore_cancel") as at:
        async with at.client.generate(ask("x sim.tokens=100000 sim.tps=200")) as stream:
            await next_of(stream, Token)
            info = await at.client.cancel(stream.accepted.id, wait=True)
            _, finished = await read(stream)
        assert finished.cancel is not None
        assert "grace" == finished.cancel.answered_by
        assert info.cancel == finished.cancel
        await at.wait(WorkerReady, 2)
        settled = await at.client.request(stream.accepted.id)
    assert Resolution.TERMINATED == settled.resolution


async def test_reload_replaces_one_worker(tmp_path: Path) -> None:
    """202 at once, the next generation in the same slot, the other slot untouched."""
    async with house(tmp_path, workers=2) as at:
        reply = await at.client.reload("sim.1")
        assert ("sim.1", 1) == (reply.slot, reply.generation)
        await at.wait(WorkerReady, 3)
        generations = [worker.generation for worker in (await at.client.workers()).workers]
    assert [1, 2] == generations
    assert not at.all(WorkerQuarantined)


async def test_a_daemon_that_loads_is_live_but_not_ready(tmp_path: Path) -> None:
    """The sockets serve while models load."""
    async with house(tmp_path, "--never_ready", ready=False) as at:
        status = await at.client.status()
        assert ("starting", {SlotState.STARTING: 1}) == (status.state, status.pools[0].states)
        for path, code in [("/livez", b"200"), ("/readyz", b"503"), ("/health", b"503")]:
            async with await trio.open_unix_socket(at.socket) as stream:
                await stream.send_all(b"GET %s HTTP/1.1\r\nhost: a\r\n\r\n" % path.encode())
                assert code == (await read_until(stream, b"\r\n"))[9:12]


async def test_a_client_that_does_not_read_loses_its_own_request_only(tmp_path: Path) -> None:
    """Its mailbox overflows; another client's stream is complete meanwhile."""
    async with house(tmp_path, workers=2) as at, await trio.open_unix_socket(at.socket) as lazy:
        body = b'{"pool": "sim", "prompt": "x sim.tokens=100000", "max_new_tokens": 100000}'
        await lazy.send_all(post("/api/v1/generate", body))
        await read_until(lazy, b"started")
        async with at.client.generate(ask("y sim.tokens=3000")) as stream:
            text, finished = await read(stream)
        await at.wait(RequestFinished, 2)
    assert (3000, Outcome.COMPLETED) == (len(text.split()), finished.outcome)
    failed = [event for event in at.all(RequestFinished) if event.outcome is Outcome.FAILED]
    assert [FailureReason.SLOW_CONSUMER] == [event.error for event in failed]


async def test_many_clients_that_leave_at_any_moment(tmp_path: Path) -> None:
    """Each accepted request has one end, no connection stays, and every slot serves again."""
    settings = QUICK + "queue.max_queued = 100\n"
    chance = random.Random(7)
    async with house(tmp_path, workers=2, settings=settings) as at:

        async def client(patience: float) -> None:
            with trio.move_on_after(patience):
                async with await trio.open_unix_socket(at.socket) as stream:
                    body = b'{"pool": "sim", "prompt": "x sim.tokens=20 sim.tps=500"}'
                    await stream.send_all(post("/api/v1/generate", body))
                    await read_until(stream, b'"finished"')

        async with trio.open_nursery() as nursery:
            for _ in range(60):
                nursery.start_soon(client, chance.uniform(0.0, 0.6))
        await at.wait_serving(2)
        accepted = {event.request for event in at.all(RequestAccepted)}
        with trio.fail_after(SECONDS):
            while len(at.all(RequestFinished)) < len(accepted):
                await at.ring.wait_appended()
        finished = sorted(event.request for event in at.all(RequestFinished))
        status = await at.client.status()
    assert sorted(accepted) == finished
    assert (0, 0) == (status.queued, status.pools[0].in_flight)
    assert not at.all(WorkerQuarantined)
