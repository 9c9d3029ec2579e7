"""Workers that die, or do not, at a bad moment; the functions have the scenarios' names."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from supervisord_llm.core.words import (
    WIRE_ID_MAX,
    CancelledBy,
    Outcome,
    Resolution,
    SlotState,
    TeardownStage,
)
from supervisord_llm.events import (
    RequestLateTerminal,
    RequestStarted,
    WorkerExited,
    WorkerQuarantined,
    WorkerReady,
    WorkerReaped,
    WorkerRestartScheduled,
    WorkerSpawned,
    WorkerUnreapable,
)
from supervisord_llm.host import tree
from supervisord_llm.runtime.process import WorkerProcess
from supervisord_llm.runtime.request import RequestSpec
from tests.harness import QUICK, SECONDS, bench, read_all, read_tokens

LONG = "x sim.tokens=100000 sim.tps=200"
WEDGED = LONG + " sim.ignore_cancel sim.ignore_sigterm"
TINY = """
cancel.cooperative_grace = "100ms"
cancel.prefill_grace = "100ms"
cancel.terminate_grace = "100ms"
cancel.kill_grace = "100ms"
cancel.reap_grace = "100ms"
restart = { backoff_initial = "10ms", backoff_max = "10ms", max_restarts = 1000 }
queue.max_attempts = 1
"""
DONE = b'{"done":true,"prompt_tokens":1,"completion_tokens":0,"finish_reason":"stop"}\n'


@pytest.fixture
def undying(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """The exit of slot 0's first worker is not seen until the returned function is called."""
    seen = trio.Event()
    wait_exited = WorkerProcess.wait_exited

    async def wait(self: WorkerProcess) -> None:
        if str(self.generation) == "sim.0/1":
            await seen.wait()
        await wait_exited(self)

    monkeypatch.setattr(WorkerProcess, "wait_exited", wait)
    return seen.set


async def test_unreapable(tmp_path: Path, undying: Callable[[], None]) -> None:
    """Its slot stays occupied and says so, nothing is started in it, the pool serves on."""
    async with bench(tmp_path, workers=2, settings=TINY) as made:
        async with made.pool.request(RequestSpec(prompt=WEDGED)) as stream:
            assert stream.request.worker == "sim.0"
            await read_tokens(stream, 1)
            stream.request.cancel(CancelledBy.API)
            _, record = await read_all(stream)
            unreapable = await made.events.wait(WorkerUnreapable)
            assert record.outcome is Outcome.CANCELLED
            with trio.fail_after(SECONDS):
                await stream.request.wait_settled()
        assert stream.request.resolution is Resolution.UNREAPABLE
        slot = made.slot(0)
        assert (unreapable.worker, unreapable.pid) == ("sim.0", slot.pid)
        assert (slot.state, slot.stage) == (SlotState.QUARANTINED, TeardownStage.REAPING)
        _, other = await made.generate("y sim.tokens=1")
        assert other.outcome is Outcome.COMPLETED
        assert [event.worker for event in made.events.all(WorkerSpawned)] == ["sim.0", "sim.1"]
        undying()
        await made.events.wait(WorkerReaped, worker="sim.0")
        await made.events.wait(WorkerReady, worker="sim.0", generation=2)


async def test_failed_reap_surfaces(tmp_path: Path, undying: Callable[[], None]) -> None:
    """A stop that leaves a worker unreaped says so; the next one finds it gone."""
    async with bench(tmp_path, settings=TINY) as made:
        hurry = trio.Event()
        hurry.set()
        with trio.fail_after(SECONDS):
            assert not await made.supervisor.stop(hurry)
        assert len(made.events.all(WorkerUnreapable)) == 1
        assert made.slot().state is SlotState.QUARANTINED
        undying()
        with trio.fail_after(SECONDS):
            assert await made.supervisor.stop(hurry)
        assert made.slot().state is SlotState.STOPPED


@pytest.mark.parametrize("kind", ["spawn", "spawn_detached", "spawn_stubborn", "spawn_escaped"])
async def test_grandchild_holds_stdout(tmp_path: Path, kind: str) -> None:
    """The exit is seen in the process and not at the end of a pipe; its descendants go with it."""
    settings = QUICK.replace('terminate_grace = "500ms"', 'terminate_grace = "1h"')
    async with bench(tmp_path, settings=settings) as made:
        text, record = await made.generate(f"x sim.{kind}=2 sim.exit=0 sim.at=1")
        assert (text, record.error) == ("t0 ", "worker_exited")
        reaped = await made.events.wait(WorkerReaped)
        assert (reaped.exit, len(reaped.descendants)) == ("exit:0", 2)
        await made.events.wait(WorkerReady, generation=2)
        living = tree.scan()
        assert [pid for pid in reaped.descendants if pid in living and living[pid].living] == []


async def test_queued_on_dying_worker(tmp_path: Path) -> None:
    """Who waits is served by the neighbour while the worker is torn down, or by its successor."""
    async with (
        bench(tmp_path, workers=2) as made,
        made.pool.request(RequestSpec(prompt=WEDGED)) as wedged,
        made.pool.request(RequestSpec(prompt="n sim.tokens=10 sim.tps=100")) as neighbour,
    ):
        await read_tokens(wedged, 1)
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(made.generate, "q sim.tokens=1")
            await made.events.wait(RequestStarted, request=neighbour.request.id)
            wedged.request.cancel(CancelledBy.API)
        assert made.events.all(WorkerReaped) == []
        started = made.events.all(RequestStarted)[2:]
        assert [event.worker for event in started] == [neighbour.request.worker] * 3
        assert made.events.all(WorkerReady, generation=2) == []
        await read_all(neighbour)


async def test_queued_behind_the_only_worker(tmp_path: Path) -> None:
    """Where there is no neighbour they wait for the next generation; none is lost."""
    async with bench(tmp_path) as made, made.pool.request(RequestSpec(prompt=WEDGED)) as wedged:
        await read_tokens(wedged, 1)
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(made.generate, "q sim.tokens=1")
            wedged.request.cancel(CancelledBy.API)
        started = made.events.all(RequestStarted)[1:]
        assert [event.generation for event in started] == [2, 2, 2]


async def test_submit_vs_death(tmp_path: Path) -> None:
    """A worker is killed between the admission of a request and its first byte: one answer each."""
    async with bench(tmp_path, settings=TINY) as made:
        for generation in range(1, 21):
            async with made.pool.request(RequestSpec(prompt=LONG)) as stream:
                # Nothing was awaited since: the request is assigned and not yet written.
                assert stream.request.generation == generation
                os.kill(made.slot().pid or 0, signal.SIGKILL)
                text, record = await read_all(stream)
            assert (text, record.outcome, record.error) == ("", Outcome.FAILED, "worker_exited")
            await made.events.wait(WorkerReady, generation=generation + 1)


async def test_death_during_load(tmp_path: Path) -> None:
    """It is noticed at once, and is an exit and not a timeout."""
    async with bench(tmp_path, "--load_ms 3600000", ready=False) as made:
        spawned = await made.events.wait(WorkerSpawned)
        os.kill(spawned.pid, signal.SIGKILL)
        quarantined = await made.events.wait(WorkerQuarantined)
        assert quarantined.reason == "unexpected_exit"
        exited = await made.events.wait(WorkerExited)
        assert exited.exit == "signal:SIGKILL"
        await made.events.wait(WorkerRestartScheduled)


async def test_stale_incarnation_message(tmp_path: Path) -> None:
    """What is left of an old worker's output, with the wire id of a new request, reaches nobody."""
    async with bench(tmp_path) as made:
        async with made.pool.request(RequestSpec(prompt=LONG)) as first:
            await read_tokens(first, 1)
            old = made.slot().live().worker
            os.kill(made.slot().pid or 0, signal.SIGKILL)
            await read_all(first)
        await made.events.wait(WorkerReady, generation=2)
        async with made.pool.request(RequestSpec(prompt="y sim.tokens=9 sim.tps=100")) as second:
            await read_tokens(second, 1)
            assert second.request.wire_id == first.request.wire_id
            messages = old.connection.receive(b'{"token":"old"}\n' + DONE)
            assert len(messages) == 2
            old._on_messages(messages)
            text, record = await read_all(second)
        assert ("old" in text, record.outcome) == (False, Outcome.COMPLETED)
        assert made.events.all(RequestLateTerminal) == []
        assert len(made.events.all(WorkerQuarantined)) == 1


async def test_id_exhaustion(tmp_path: Path) -> None:
    """The last wire id works, cancel included; then a fresh worker takes over, none wraps."""
    async with bench(tmp_path) as made:
        made.slot().live().workload._next_wire_id = WIRE_ID_MAX
        async with made.pool.request(RequestSpec(prompt=LONG)) as stream:
            assert stream.request.wire_id == WIRE_ID_MAX
            await read_tokens(stream, 1)
            stream.request.cancel(CancelledBy.API)
            _, record = await read_all(stream)
        assert (record.outcome, record.answered_by) == (Outcome.CANCELLED, "worker")
        await made.events.wait(WorkerReady, generation=2)
        async with made.pool.request(RequestSpec(prompt="x sim.tokens=1")) as stream:
            assert stream.request.wire_id == 1
            _, record = await read_all(stream)
        assert record.outcome is Outcome.COMPLETED
        assert made.events.all(WorkerQuarantined) == []
