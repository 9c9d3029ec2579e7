"""What people suffer from who run model servers, as tests that bear their reports' numbers."""

from __future__ import annotations

import json
import signal
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import trio

from supervisord_llm.core.words import CancelledBy, Outcome
from supervisord_llm.events import (
    CancelDelivered,
    CancelRequested,
    RequestFinished,
    RequestStarted,
    WorkerQuarantined,
    WorkerReady,
    WorkerReaped,
    WorkerRestartScheduled,
)
from supervisord_llm.host import tree
from supervisord_llm.runtime.channel import Channel
from supervisord_llm.runtime.request import RequestSpec
from tests.daemon.running import daemon, until
from tests.harness import QUICK, SCRIPTS, SECONDS, bench, read_all, read_tokens

LONG = "x sim.tokens=100000 sim.tps=200"
"""Work that nobody waits out."""


def test_health_tells_of_an_engine_that_does_not_answer(tmp_path: Path) -> None:
    """Field report 1: the requests fail, and health says why, instead of silence and "healthy"."""
    settings = QUICK + 'health = { token_stall = "300ms" }\n'
    with daemon(tmp_path, "--load_ms=2000", settings=settings) as running:
        assert running.client.get("/health").json()["status"] == "healthy"
        body = {"pool": "sim", "prompt": "x sim.hang=decode sim.hang_at=1"}
        reply = running.client.post("/api/v1/generate", json=body)
        end = json.loads(reply.text.splitlines()[-1])
        assert (end["outcome"], end["error"]["code"]) == ("failed", "stalled")
        health = running.client.get("/health")
        assert (health.status_code, health.json()["status"]) == (503, "unavailable")
        assert "sim.0" in health.json()["pools"]["sim"]["reason"]
        assert running.client.get("/readyz").status_code == 503
        until(lambda: running.client.get("/health").status_code == 200, "health")


async def test_a_queued_client_that_leaves_touches_nobody_else(tmp_path: Path) -> None:
    """Field report 6: leaving the queue is nothing to the request that runs."""
    async with (
        bench(tmp_path) as made,
        made.pool.request(RequestSpec(prompt="r sim.tokens=60 sim.tps=200")) as running,
    ):
        await read_tokens(running, 1)
        for _ in range(20):
            async with made.pool.request(RequestSpec(prompt="q")):
                pass
        _, record = await read_all(running)
        assert record.outcome is Outcome.COMPLETED
        assert running.request.tokens == 60
        assert made.events.all(CancelDelivered) == []
        asked = {event.request for event in made.events.all(CancelRequested)}
        assert len(asked) == 20 and running.request.id not in asked


async def test_whoever_is_on_a_worker_that_another_request_kills_is_told(tmp_path: Path) -> None:
    """Field report 6: the victim of a worker's end gets an error, not silence."""
    async with bench(tmp_path, workers=2) as made, AsyncExitStack() as stack:
        streams = [
            await stack.enter_async_context(made.pool.request(RequestSpec(prompt=prompt)))
            for prompt in (LONG, LONG + " sim.ignore_cancel sim.ignore_sigterm")
        ]
        for stream in streams:
            await read_tokens(stream, 1)
        streams[1].request.cancel(CancelledBy.API)
        _, cancelled = await read_all(streams[1])
        assert cancelled.outcome is Outcome.CANCELLED
        await made.events.wait(WorkerQuarantined)
        assert streams[0].request.record is None
        made.slot(0).quarantine()
        _, other = await read_all(streams[0])
        assert (other.outcome, other.cancelled_by) == (Outcome.CANCELLED, CancelledBy.OPERATOR)


async def test_churn_leaves_no_process(tmp_path: Path) -> None:
    """Field report 15: many generations with children that leave them, and none piles up."""
    async with bench(tmp_path, "--spawn_escaped=1 --spawn_detached=1") as made:
        for generation in range(1, 16):
            await made.events.wait(WorkerReady, generation=generation)
            if generation % 2:
                made.slot().reload()
            else:
                made.slot().quarantine()
        await made.events.wait(WorkerReady, generation=16)
        reaped = made.events.all(WorkerReaped)
        assert [event.generation for event in reaped] == list(range(1, 16))
        gone = {pid for event in reaped for pid in event.descendants}
        # One that ends with its guardian before it was looked at is not told of.
        assert len(gone) > 15
        living = tree.scan()
        assert [pid for pid in gone if pid in living and living[pid].living] == []


def test_a_command_that_cannot_work_does_not_silence_the_daemon(tmp_path: Path) -> None:
    """Field report 16: tried again for ever, without a pause to speak of, and it answers."""
    settings = (
        'restart = { backoff_initial = "1ms", backoff_max = "1ms", max_restarts = 1000000 }\n'
        "required = false\n"
    )
    with daemon(tmp_path, "--exit=1 --during=load", settings=settings) as running:
        running.wait("worker.restart_scheduled", count=20)
        before = len(running.events("worker.spawned"))
        for _ in range(50):
            assert running.client.get("/api/v1/workers").status_code == 200
            assert running.client.get("/livez").status_code == 200
        running.wait("worker.spawned", count=before + 20)


async def test_a_cause_that_clears_is_survived_without_an_operator(tmp_path: Path) -> None:
    """Field report 17: what fails for a while and is allowed to, comes back by itself."""
    cure = tmp_path / "cure"
    sim = SCRIPTS / "sllm-sim-worker"
    command = ["/bin/sh", "-c", f"test -e {cure} || exit 1; exec {sim}"]
    settings = QUICK.replace('"200ms" }', '"200ms", max_restarts = 1000000 }')
    async with bench(tmp_path, command=command, settings=settings, ready=False) as made:
        await made.events.wait(WorkerRestartScheduled, count=8)
        delays = [event.delay_ms for event in made.events.all(WorkerRestartScheduled)]
        assert max(delays) <= 240  # 200 ms and a fifth
        cure.touch()
        await made.events.wait(WorkerReady)
        _, record = await made.generate("x sim.tokens=1")
        assert record.outcome is Outcome.COMPLETED


async def test_probes_are_not_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Field report 20: a probe leaves nothing in the engine, and its worker is not busy with it."""
    sent = trio.Event()
    count = 0
    ping = Channel.ping

    def counted(self: Channel, nonce: int) -> None:
        nonlocal count
        ping(self, nonce)
        count += 1
        if count == 10:
            sent.set()

    monkeypatch.setattr(Channel, "ping", counted)
    settings = QUICK + 'health = { probe_interval = "20ms", probe_timeout = "5s" }\n'
    async with bench(tmp_path, settings=settings) as made:
        with trio.fail_after(SECONDS):
            await sent.wait()
        assert made.slot().served == 0
        assert made.events.all(RequestStarted) == []
        await made.generate("x sim.tokens=1")
        assert (made.slot().served, made.slot().generation) == (1, 1)


async def test_a_load_that_shows_progress_may_take_long(tmp_path: Path) -> None:
    """Field report 21: many times the stall budget, and in service at the first attempt."""
    settings = QUICK.replace('stall = "5s"', 'stall = "300ms"') + 'heartbeat = "50ms"\n'
    async with bench(tmp_path, "--load_ms=1500", settings=settings) as made:
        [ready] = made.events.all(WorkerReady)
        assert (ready.generation, ready.load_ms >= 1500) == (1, True)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_stream_never_ends_without_its_last_line(
    tmp_path: Path, number: signal.Signals
) -> None:
    """Field report 25: the worker is gone, or silent, in the midst of a token: one failure each."""
    settings = QUICK + 'health = { token_stall = "300ms" }\n'
    async with bench(tmp_path, workers=2, settings=settings) as made, AsyncExitStack() as stack:
        streams = [
            await stack.enter_async_context(made.pool.request(RequestSpec(prompt=LONG)))
            for _ in range(2)
        ]
        for slot, stream in zip(made.pool.slots, streams, strict=True):
            await read_tokens(stream, 1)
            facts = tree.read(slot.pid or 0)
            assert facts is not None
            tree.send_signal(facts.pid, facts.start_time, number)
        for stream in streams:
            _, record = await read_all(stream)
            assert record.outcome is Outcome.FAILED
            assert await stream.next_batch() is None
        assert len(made.events.all(RequestFinished)) == 2
