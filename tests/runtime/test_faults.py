"""What goes wrong with a worker, and what it costs."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import trio

from supervisord_llm.core.words import CancelledBy, Outcome, SlotState
from supervisord_llm.errors import Refused
from supervisord_llm.events import (
    DaemonWarning,
    WorkerExited,
    WorkerLog,
    WorkerParked,
    WorkerQuarantined,
    WorkerReady,
    WorkerReaped,
    WorkerRestartScheduled,
    WorkerResumed,
    WorkerState,
)
from supervisord_llm.runtime.request import RequestSpec
from tests.harness import QUICK, bench, read_all, read_tokens

LONG = "x sim.tokens=100000 sim.tps=100"

STALLS = """
load_limits = { timeout = "10s", stall = "400ms" }
health = { first_token_stall = "500ms", token_stall = "500ms", probe_interval = "60s" }
cancel = { terminate_grace = "500ms" }
restart = { backoff_initial = "50ms" }
heartbeat = "50ms"
queue.max_attempts = 1
"""


async def test_a_killed_worker_fails_its_request_and_comes_back(tmp_path: Path) -> None:
    """SIGKILL from outside: one typed record, a new generation, the neighbour untouched."""
    async with bench(tmp_path, workers=2) as made:
        async with (
            made.pool.request(RequestSpec(prompt=LONG)) as victim,
            made.pool.request(RequestSpec(prompt="y sim.tokens=60 sim.tps=100")) as neighbour,
        ):
            await read_tokens(victim, 3)
            slot = next(slot for slot in made.pool.slots if slot.name == victim.request.worker)
            assert slot.pid is not None
            os.kill(slot.pid, signal.SIGKILL)
            _, record = await read_all(victim)
            assert (record.outcome, record.error) == (Outcome.FAILED, "worker_exited")
            assert record.retryable
            await made.events.wait(WorkerReady, worker=slot.name, generation=2)
            _, record = await read_all(neighbour)
            assert record.outcome is Outcome.COMPLETED
        assert slot.last_exit is not None
        assert (slot.last_exit.exit, slot.last_exit.reason) == (
            "signal:SIGKILL",
            "unexpected_exit",
        )


async def test_an_idle_worker_that_dies_is_replaced(tmp_path: Path) -> None:
    """Nobody has to ask for it to be noticed."""
    async with bench(tmp_path) as made:
        assert made.slot().pid is not None
        os.kill(made.slot().pid or 0, signal.SIGSEGV)
        exited = await made.events.wait(WorkerExited)
        assert exited.exit in ("signal:SIGSEGV", "core_dumped:SIGSEGV")
        await made.events.wait(WorkerReady, generation=2)


async def test_a_stopped_worker_is_found_stuck_and_replaced(tmp_path: Path) -> None:
    """SIGSTOP in the middle of a generation: no beats, so it is stuck and not slow."""
    async with bench(tmp_path, settings=STALLS) as made:
        async with made.pool.request(RequestSpec(prompt=LONG)) as stream:
            await read_tokens(stream, 3)
            os.kill(made.slot().pid or 0, signal.SIGSTOP)
            _, record = await read_all(stream)
        assert (record.outcome, record.error) == (Outcome.FAILED, "stalled")
        reaped = await made.events.wait(WorkerReaped)
        assert reaped.exit == "signal:SIGTERM"
        await made.events.wait(WorkerReady, generation=2)


async def test_a_stopped_idle_worker_fails_its_probe(tmp_path: Path) -> None:
    """A worker that does not answer pings is unfit, although nobody uses it."""
    settings = 'health = { probe_interval = "100ms", probe_timeout = "300ms" }'
    async with bench(tmp_path, settings=settings) as made:
        os.kill(made.slot().pid or 0, signal.SIGSTOP)
        quarantined = await made.events.wait(WorkerQuarantined)
        assert quarantined.reason == "health_probe_failed"
        await made.events.wait(WorkerReady, generation=2)


async def test_probes_leave_a_worker_without_ping_alone(tmp_path: Path) -> None:
    """The probe of a plain upstream worker is acknowledged, and requests go on between probes."""
    settings = 'health = { probe_interval = "20ms", probe_timeout = "2s" }'
    async with bench(tmp_path, "--no_extensions", settings=settings) as made:
        for _ in range(20):
            _, record = await made.generate("x sim.tokens=3 sim.tps=100")
            assert record.outcome is Outcome.COMPLETED
        assert made.slot().generation == 1


@pytest.mark.parametrize(
    ("prompt", "reason"),
    [
        ("x sim.hang=prefill", "first_token_stall"),
        ("x sim.hang=decode sim.hang_at=2", "token_stall"),
    ],
)
async def test_a_hung_engine_is_found(tmp_path: Path, prompt: str, reason: str) -> None:
    """A worker whose engine makes no step for its budget is torn down."""
    async with bench(tmp_path, settings=STALLS) as made:
        _, record = await made.generate(prompt)
        assert record.error == "stalled"
        [quarantined] = made.events.all(WorkerQuarantined)
        assert quarantined.reason == reason
        await made.wait_ready()


async def test_a_slow_prefill_that_beats_is_never_touched(tmp_path: Path) -> None:
    """Four times the budget, but with signs of life: it may take its time."""
    async with bench(tmp_path, settings=STALLS) as made:
        _, record = await made.generate("x sim.prefill_ms=2000 sim.tokens=1")
        assert record.outcome is Outcome.COMPLETED
        assert made.events.all(WorkerQuarantined) == []


async def test_a_hung_load_is_ended(tmp_path: Path) -> None:
    """No sign of life while loading: load_stalled, and the slot tries again."""
    async with bench(tmp_path, "--hang load", settings=STALLS, ready=False) as made:
        quarantined = await made.events.wait(WorkerQuarantined)
        assert quarantined.reason == "load_stalled"
        await made.events.wait(WorkerRestartScheduled)


async def test_a_load_over_its_total_time_is_ended(tmp_path: Path) -> None:
    """Signs of life do not extend the total."""
    settings = STALLS.replace('timeout = "10s"', 'timeout = "600ms"')
    async with bench(tmp_path, "--load_ms 60000", settings=settings, ready=False) as made:
        quarantined = await made.events.wait(WorkerQuarantined)
        assert quarantined.reason == "load_timeout"


@pytest.mark.parametrize(
    ("prompt", "error", "reason"),
    [
        ("x sim.garbage sim.at=2", "protocol_error", "protocol_error"),
        ("x sim.half_line sim.at=2", "worker_exited", "unexpected_exit"),
        ("x sim.exit=3 sim.at=2", "worker_exited", "unexpected_exit"),
        ("x sim.exit=0 sim.at=2", "worker_exited", "unexpected_exit"),
        ("x sim.abort sim.at=2", "worker_exited", "unexpected_exit"),
    ],
)
async def test_a_worker_that_breaks_off_fails_its_request(
    tmp_path: Path, prompt: str, error: str, reason: str
) -> None:
    """Whatever way it breaks, there is one record and a fresh process."""
    async with bench(tmp_path) as made:
        _, record = await made.generate(prompt)
        assert (record.outcome, record.error) == (Outcome.FAILED, error)
        [quarantined] = made.events.all(WorkerQuarantined)
        assert quarantined.reason == reason
        await made.wait_ready()
        assert made.slot().generation == 2


async def test_a_crash_loop_parks_the_slot_with_its_last_lines(tmp_path: Path) -> None:
    """After too many starts the slot stays down, its queue is answered, a reload brings it back."""
    settings = 'restart = { backoff_initial = "10ms", max_restarts = 2, restart_window = "1m" }'
    async with bench(tmp_path, "--exit 7 --during load", settings=settings, ready=False) as made:
        parked = await made.events.wait(WorkerParked)
        assert (parked.reason, parked.exit, parked.restarts) == ("unexpected_exit", "exit:7", 3)
        assert made.slot().state is SlotState.PARKED
        with pytest.raises(Refused, match=r"no slot of pool 'sim' can serve \(sim.0 parked"):
            async with made.pool.request(RequestSpec(prompt="x")):
                pass
        made.slot().reload()
        await made.events.wait(WorkerResumed)
        await made.events.wait(WorkerParked, count=2)


async def test_a_queue_that_nobody_can_serve_is_answered(tmp_path: Path) -> None:
    """A request that waited for a slot fails when the last slot is parked."""
    settings = 'restart = { backoff_initial = "100ms", max_restarts = 1 }'
    async with bench(tmp_path, "--exit 1 --during load", settings=settings, ready=False) as made:
        _, record = await made.generate("x")
        assert (record.outcome, record.error) == (Outcome.FAILED, "pool_unavailable")


async def test_a_queued_request_has_an_end(tmp_path: Path) -> None:
    """Waiting is bounded by queue_timeout; a full queue refuses."""
    settings = 'queue.max_queued = 1\nqueue.queue_timeout = "200ms"\n' + QUICK
    async with (
        bench(tmp_path, settings=settings) as made,
        made.pool.request(RequestSpec(prompt=LONG)),
        made.pool.request(RequestSpec(prompt="w")) as waiting,
    ):
        with pytest.raises(Refused, match="is full"):
            async with made.pool.request(RequestSpec(prompt="z")):
                pass
        _, record = await read_all(waiting)
        assert (record.outcome, record.error) == (Outcome.FAILED, "queue_timeout")


async def test_reload_drains_first(tmp_path: Path) -> None:
    """A reload lets the running request end, then a new process starts; no failure is counted."""
    async with bench(tmp_path) as made:
        async with made.pool.request(RequestSpec(prompt="x sim.tokens=30 sim.tps=100")) as stream:
            await read_tokens(stream, 1)
            made.slot().reload()
            assert made.slot().state is SlotState.DRAINING
            _, record = await read_all(stream)
            assert record.outcome is Outcome.COMPLETED
        await made.events.wait(WorkerReady, generation=2)
        assert made.slot().restarts == 0
        exited = made.events.all(WorkerExited)
        assert [(event.exit, event.expected) for event in exited] == [("exit:0", True)]


async def test_shutdown_lets_running_work_end(tmp_path: Path) -> None:
    """Within the drain a running request completes; a queued one is cancelled; new ones refused."""
    async with bench(tmp_path) as made:
        async with (
            made.pool.request(RequestSpec(prompt="x sim.tokens=40 sim.tps=100")) as running,
            made.pool.request(RequestSpec(prompt="y")) as queued,
            trio.open_nursery() as nursery,
        ):
            await read_tokens(running, 1)
            nursery.start_soon(made.supervisor.stop, trio.Event())
            _, record = await read_all(queued)
            assert (record.outcome, record.cancelled_by) == (
                Outcome.CANCELLED,
                CancelledBy.SHUTDOWN,
            )
            with pytest.raises(Refused, match="shutting down"):
                async with made.pool.request(RequestSpec(prompt="z")):
                    pass
            with pytest.raises(Refused, match="shuts down"):
                made.slot().reload()
            _, record = await read_all(running)
            assert record.outcome is Outcome.COMPLETED
        assert made.slot().state is SlotState.STOPPED


async def test_a_hurried_shutdown_cancels(tmp_path: Path) -> None:
    """The second signal ends the drain: running work is cancelled by the shutdown."""
    async with (
        bench(tmp_path) as made,
        made.pool.request(RequestSpec(prompt=LONG)) as running,
        trio.open_nursery() as nursery,
    ):
        await read_tokens(running, 1)
        hurry = trio.Event()
        nursery.start_soon(made.supervisor.stop, hurry)
        await made.events.wait(WorkerState, to=SlotState.DRAINING)
        hurry.set()
        _, record = await read_all(running)
        assert record.cancelled_by is CancelledBy.SHUTDOWN


async def test_shutdown_while_loading_leaves_nothing(tmp_path: Path) -> None:
    """A worker that still loads is ended at once."""
    async with bench(tmp_path, "--load_ms 60000", ready=False) as made:
        await made.events.wait(WorkerState, to=SlotState.STARTING)
    [exited] = made.events.all(WorkerExited)
    assert exited.exit == "signal:SIGTERM"


async def test_a_missing_command_is_a_story_not_a_spin(tmp_path: Path) -> None:
    """A binary that does not exist parks the slot, and its last line says what is wrong."""
    settings = 'restart = { backoff_initial = "10ms", max_restarts = 1 }'
    async with bench(tmp_path, settings=settings) as made:
        pass
    path = tmp_path / "second"
    path.mkdir()
    async with bench(path, "--no-such-option", settings=settings, ready=False) as made:
        parked = await made.events.wait(WorkerParked)
        assert parked.exit == "exit:2"
        assert any("no-such-option" in line for line in parked.last_lines)
        assert made.events.all(DaemonWarning) == []
        assert any("no-such-option" in event.line for event in made.events.all(WorkerLog))


async def test_an_operator_can_quarantine_a_worker(tmp_path: Path) -> None:
    """It is torn down at once; its request is cancelled by the operator; a fresh one comes."""
    async with bench(tmp_path, workers=2) as made:
        async with made.pool.request(RequestSpec(prompt=LONG)) as stream:
            await read_tokens(stream, 1)
            slot = next(slot for slot in made.pool.slots if slot.name == stream.request.worker)
            slot.quarantine()
            assert slot.state is SlotState.QUARANTINED
            _, record = await read_all(stream)
            assert (record.outcome, record.cancelled_by, record.answered_by) == (
                Outcome.CANCELLED,
                CancelledBy.OPERATOR,
                "grace",
            )
        [quarantined] = made.events.all(WorkerQuarantined)
        assert quarantined.reason == "operator"
        await made.events.wait(WorkerReady, worker=slot.name, generation=2)


async def test_resume_brings_a_parked_slot_back_and_keeps_its_lines(tmp_path: Path) -> None:
    """What the failed workers wrote can still be read; there is nothing to quarantine meanwhile."""
    settings = 'restart = { backoff_initial = "10ms", max_restarts = 0 }'
    options = "--no-such-option"
    async with bench(tmp_path, options, settings=settings, ready=False) as made:
        await made.events.wait(WorkerParked)
        with pytest.raises(Refused, match="it is parked and has no worker"):
            made.slot().quarantine()
        made.slot().resume()
        await made.events.wait(WorkerResumed)
        await made.events.wait(WorkerParked, count=2)
        generations = {line.generation for line in made.slot().logs.last(100)}
        assert generations == {1, 2}
        assert made.slot().restarts == 0


async def test_resume_ends_a_drain_that_has_work_left(tmp_path: Path) -> None:
    """The worker goes on as if nothing had been asked."""
    async with bench(tmp_path) as made:
        pid = made.slot().pid
        async with made.pool.request(RequestSpec(prompt="x sim.tokens=30 sim.tps=100")) as stream:
            await read_tokens(stream, 1)
            made.slot().reload()
            made.slot().resume()
            assert made.slot().state is SlotState.BUSY
            await read_all(stream)
        _, record = await made.generate("y sim.tokens=1")
        assert record.outcome is Outcome.COMPLETED
        assert made.slot().pid == pid
