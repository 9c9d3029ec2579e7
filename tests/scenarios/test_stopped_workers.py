"""A worker that is stopped (SIGSTOP) in each phase of its life, with a cancellation and without.

What bounds each case is the order of the events, and the grace that the rung before it had: nobody
waits for a stopped process to speak.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest
import trio

from supervisord_llm.core.words import CancelledBy, Outcome, Resolution
from supervisord_llm.events import (
    CancelDelivered,
    CancelEscalated,
    CancelRequested,
    CancelSettled,
    Event,
    RequestFinished,
    RequestStarted,
    WorkerExited,
    WorkerLog,
    WorkerQuarantined,
    WorkerReady,
    WorkerReaped,
    WorkerRestartScheduled,
    WorkerSignalled,
)
from supervisord_llm.runtime.request import RequestSpec, RequestStream
from tests.harness import QUICK, SECONDS, Bench, bench, read_all, read_tokens
from tests.native.sim import wait_until

LONG = "x sim.tokens=100000 sim.tps=200"
PREFILL = "x sim.stderr=1 sim.prefill_ms=3600000"

STALLS = """
load_limits = { timeout = "1h", stall = "400ms" }
health = { first_token_stall = "400ms", token_stall = "400ms", probe_interval = "100ms", \
probe_timeout = "400ms" }
cancel = { terminate_grace = "1h" }
restart = { backoff_initial = "50ms" }
heartbeat = "50ms"
queue.max_attempts = 1
"""
"""SIGTERM alone has to be enough: SIGKILL would come after an hour."""


def in_order(made: Bench, *kinds: type[Event]) -> bool:
    """Whether the first events of these kinds came in this order."""
    happened = [type(event) for event in made.events.events]
    firsts = [happened.index(kind) for kind in kinds]
    return firsts == sorted(firsts)


async def stop_in(made: Bench, stream: RequestStream, phase: str) -> None:
    """Stop the worker in a phase of a request, and see that it stands still."""
    if phase == "prefill":
        await made.events.wait(RequestStarted)
        await made.events.wait(WorkerLog)  # which the worker writes when its prefill begins
    else:
        await read_tokens(stream, 3)
    pid = made.slot().pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    process = psutil.Process(pid)
    await trio.to_thread.run_sync(wait_until, lambda: process.status() == psutil.STATUS_STOPPED)


@pytest.mark.parametrize(
    ("options", "prompt", "reason"),
    [
        ("--signal=STOP --during=load", "", "load_stalled"),
        ("", "", "health_probe_failed"),
        ("", "x sim.signal=STOP sim.during=prefill", "first_token_stall"),
        ("", "x sim.signal=STOP sim.at=3", "token_stall"),
    ],
    ids=["load", "idle", "prefill", "decode"],
)
async def test_a_stopped_worker_is_found_out(
    tmp_path: Path, options: str, prompt: str, reason: str
) -> None:
    """Whatever it was doing, SIGTERM and SIGCONT end it; its request fails, once, before that."""
    settings = STALLS
    if prompt:  # what a request shows is to be the evidence, not the probe that waits beside it
        settings = settings.replace('probe_interval = "100ms"', 'probe_interval = "1h"')
    async with bench(tmp_path, options, settings=settings, ready=not options) as made:
        if prompt:
            text, record = await made.generate(prompt)
            assert (record.outcome, record.error) == (Outcome.FAILED, "stalled")
            assert text == ("" if "prefill" in prompt else "t0 t1 t2 ")
        elif not options:
            os.kill(made.slot().pid or 0, signal.SIGSTOP)
        quarantined = await made.events.wait(WorkerQuarantined)
        assert quarantined.reason == reason
        reaped = await made.events.wait(WorkerReaped)
        assert reaped.exit == "signal:SIGTERM"
        await made.events.wait(WorkerRestartScheduled)
        assert in_order(
            made,
            WorkerQuarantined,
            CancelEscalated,
            WorkerSignalled,
            WorkerExited,
            WorkerReaped,
            WorkerRestartScheduled,
        )
        if prompt:
            assert in_order(made, WorkerQuarantined, RequestFinished, WorkerExited)


@pytest.mark.parametrize(
    ("phase", "prompt"), [("prefill", PREFILL), ("decode", LONG)], ids=["prefill", "decode"]
)
@pytest.mark.parametrize("stubborn", [False, True], ids=["terminated", "killed"])
async def test_a_cancellation_does_not_wait_for_a_stopped_worker(
    tmp_path: Path, phase: str, prompt: str, stubborn: bool
) -> None:
    """Its client is answered when the grace is over and before the first signal is sent."""
    prompt += " sim.ignore_sigterm" if stubborn else ""
    async with bench(tmp_path) as made:
        async with made.pool.request(RequestSpec(prompt=prompt)) as stream:
            await stop_in(made, stream, phase)
            stream.request.cancel(CancelledBy.API)
            _, record = await read_all(stream)
            assert (record.outcome, record.answered_by) == (Outcome.CANCELLED, "grace")
            assert record.cancel_elapsed_ms is not None
            assert record.cancel_elapsed_ms >= 500
            with trio.fail_after(SECONDS):
                await stream.request.wait_settled()
        expected = Resolution.KILLED if stubborn else Resolution.TERMINATED
        assert stream.request.resolution is expected
        assert in_order(
            made,
            CancelRequested,
            CancelDelivered,
            RequestFinished,
            WorkerSignalled,
            WorkerExited,
            WorkerReaped,
            CancelSettled,
        )
        [quarantined] = made.events.all(WorkerQuarantined)
        assert quarantined.reason == "cancel_grace_missed"
        reaped = await made.events.wait(WorkerReaped)
        assert reaped.exit == ("signal:SIGKILL" if stubborn else "signal:SIGTERM")
        await made.events.wait(WorkerReady, generation=2)


@pytest.mark.parametrize(
    ("phase", "prompt"), [("prefill", PREFILL), ("decode", LONG)], ids=["prefill", "decode"]
)
async def test_a_worker_that_goes_on_within_the_grace_is_kept(
    tmp_path: Path, phase: str, prompt: str
) -> None:
    """The frame waits in the pipe; whoever is continued in time reads it and obeys."""
    settings = QUICK.replace('cooperative_grace = "500ms"', 'cooperative_grace = "15s"')
    async with bench(tmp_path, settings=settings) as made:
        pid = made.slot().pid
        assert pid is not None
        async with made.pool.request(RequestSpec(prompt=prompt)) as stream:
            await stop_in(made, stream, phase)
            stream.request.cancel(CancelledBy.API)
            await made.events.wait(CancelDelivered)
            os.kill(pid, signal.SIGCONT)
            _, record = await read_all(stream)
            assert (record.outcome, record.answered_by) == (Outcome.CANCELLED, "worker")
            with trio.fail_after(SECONDS):
                await stream.request.wait_settled()
        assert stream.request.resolution is Resolution.COOPERATIVE
        _, after = await made.generate("y sim.tokens=1")
        assert (after.outcome, made.slot().pid) == (Outcome.COMPLETED, pid)
