"""Whole pools and daemons at bad moments; the functions have the scenarios' names."""

from __future__ import annotations

import os
import signal
from contextlib import AsyncExitStack
from pathlib import Path

import trio

from supervisord_llm.core.words import CancelledBy, Outcome
from supervisord_llm.events import CancelDelivered, RequestFirstToken, RequestStarted
from supervisord_llm.runtime.request import RequestSpec
from tests.daemon.running import Running, daemon, until
from tests.harness import SECONDS, bench, read_all, read_tokens

LONG = "x sim.tokens=100000 sim.tps=200"


async def test_shutdown_phases(tmp_path: Path) -> None:
    """A stop finds requests in every phase: each gets its one record, nobody waits for another."""
    async with bench(tmp_path, workers=3) as made, AsyncExitStack() as stack:
        unread = await stack.enter_async_context(
            made.pool.request(RequestSpec(prompt="u sim.tokens=3"))
        )
        await unread.request.wait_settled()
        prefill, decode, wedged, queued = [
            await stack.enter_async_context(made.pool.request(RequestSpec(prompt=prompt)))
            for prompt in (
                "p sim.slow=prefill",
                LONG,
                LONG + " sim.ignore_cancel sim.ignore_sigterm",
                "q",
            )
        ]
        await made.events.wait(RequestStarted, count=4)
        await read_tokens(decode, 1)
        await made.events.wait(RequestFirstToken, request=wedged.request.id)
        wedged.request.cancel(CancelledBy.API)
        await made.events.wait(CancelDelivered)
        hurry = trio.Event()
        hurry.set()
        with trio.fail_after(SECONDS):
            assert await made.supervisor.stop(hurry)
        records = [
            (await read_all(stream))[1] for stream in (unread, prefill, decode, wedged, queued)
        ]
        assert [(each.outcome, each.cancelled_by, each.answered_by) for each in records] == [
            (Outcome.COMPLETED, None, None),
            (Outcome.CANCELLED, CancelledBy.SHUTDOWN, "worker"),
            (Outcome.CANCELLED, CancelledBy.SHUTDOWN, "worker"),
            (Outcome.CANCELLED, CancelledBy.API, "grace"),
            (Outcome.CANCELLED, CancelledBy.SHUTDOWN, "queue"),
        ]


def statuses(running: Running) -> tuple[int, int, int, str]:
    """What the probes answer: alive, ready, healthy, and the word for it."""
    health = running.client.get("/health")
    return (
        running.client.get("/livez").status_code,
        running.client.get("/readyz").status_code,
        health.status_code,
        health.json()["status"],
    )


def test_health_transitions(tmp_path: Path) -> None:
    """A cancellation changes nothing, a lost worker degrades, two are unready; then it heals."""
    # A lost worker is replaced at once, so it is the loading that takes a while.
    with daemon(tmp_path, "--load_ms 2000", workers=2) as running:
        running.wait("worker.ready", count=2)
        assert statuses(running) == (200, 200, 200, "healthy")
        body = {"pool": "sim", "prompt": LONG}
        with running.client.stream("POST", "/api/v1/generate", json=body) as reply:
            next(reply.iter_lines())
        running.wait("cancel.settled")
        assert statuses(running) == (200, 200, 200, "healthy")
        first, second = running.worker_pids()
        os.kill(first, signal.SIGKILL)
        running.wait("worker.restart_scheduled")
        assert statuses(running) == (200, 200, 200, "degraded")
        os.kill(second, signal.SIGKILL)
        running.wait("worker.restart_scheduled", count=2)
        assert statuses(running) == (200, 503, 503, "unavailable")
        running.wait("worker.ready", count=4)
        until(lambda: statuses(running) == (200, 200, 200, "healthy"), "health")
