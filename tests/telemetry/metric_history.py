"""A morning in the life of a daemon, as its events tell it."""

from __future__ import annotations

from supervisord_llm import events
from supervisord_llm.core.words import (
    CancelledBy,
    Dialect,
    FailureReason,
    FinishReason,
    Outcome,
    QuarantineReason,
    Resolution,
    SlotState,
)
from supervisord_llm.events import GAP_BUCKETS, Event

POOL = "smollm"


def added(pool: str, *indices: int) -> list[Event]:
    """A pool gets slots."""
    return [events.WorkerAdded(pool=pool, worker=f"{pool}.{index}") for index in indices]


def removed(pool: str, *indices: int) -> list[Event]:
    """A pool loses slots."""
    return [events.WorkerRemoved(pool=pool, worker=f"{pool}.{index}") for index in indices]


def moved(slot: str, from_: SlotState, to: SlotState) -> Event:
    """A slot moves."""
    pool, _, _ = slot.partition(".")
    return events.WorkerState(pool=pool, worker=slot, generation=1, from_=from_, to=to)


def loaded(slot: str, milliseconds: float) -> list[Event]:
    """A stopped slot comes up."""
    return [
        moved(slot, SlotState.STOPPED, SlotState.STARTING),
        moved(slot, SlotState.STARTING, SlotState.READY),
        events.WorkerReady(
            pool=slot.partition(".")[0],
            worker=slot,
            generation=1,
            load_ms=milliseconds,
            dialect=Dialect.SERIAL,
            extensions=[],
            capacity=1,
        ),
    ]


def used(slot: str, generation: int, rss: int, cpu_seconds: float) -> Event:
    """A worker was looked at."""
    return events.WorkerUsage(
        pool=slot.partition(".")[0],
        worker=slot,
        generation=generation,
        rss=rss,
        cpu_seconds=cpu_seconds,
    )


def accepted(request: str, pool: str = POOL) -> Event:
    """The queue takes a request."""
    return events.RequestAccepted(pool=pool, request=request, queued=0)


def started(request: str, queued_ms: float, attempt: int = 1, pool: str = POOL) -> Event:
    """A worker gets it."""
    return events.RequestStarted(
        pool=pool,
        worker=f"{pool}.0",
        generation=1,
        request=request,
        attempt=attempt,
        queued_ms=queued_ms,
    )


def first_token(request: str, milliseconds: float) -> Event:
    """It has output."""
    return events.RequestFirstToken(
        pool=POOL, worker="smollm.0", generation=1, request=request, ttft_ms=milliseconds
    )


def completed(request: str, pool: str = POOL) -> Event:
    """It ends well: 3 tokens, with gaps of 2 and 200 ms."""
    gaps = [0] * (len(GAP_BUCKETS) + 1)
    gaps[1] = gaps[7] = 1
    return events.RequestFinished(
        pool=pool,
        request=request,
        outcome=Outcome.COMPLETED,
        worker=f"{pool}.0",
        generation=1,
        finish_reason=FinishReason.STOP,
        tokens=3,
        prompt_tokens=20,
        reused_tokens=8,
        generated_tokens=4,
        queued_ms=3.0,
        ttft_ms=40.0,
        total_ms=300.0,
        gaps=gaps,
        gaps_ms=202.0,
    )


def settled(request: str, resolution: Resolution, milliseconds: float, pool: str = POOL) -> Event:
    """A cancellation's end is known."""
    return events.CancelSettled(
        pool=pool, request=request, resolution=resolution, elapsed_ms=milliseconds
    )


def restarted(slot: str, reason: str) -> Event:
    """A worker that failed gets a successor."""
    return events.WorkerRestartScheduled(
        pool=slot.partition(".")[0],
        worker=slot,
        generation=1,
        attempt=1,
        delay_ms=50.0,
        reason=reason,
    )


def reaped(slot: str) -> Event:
    """A worker is gone."""
    pool, _, _ = slot.partition(".")
    return events.WorkerReaped(pool=pool, worker=slot, generation=1, exit="exit:0")


def morning() -> list[Event]:
    """Two slots; requests that go well, go wrong, are cancelled, and one that is refused."""
    return [
        events.DaemonStarted(version="1.2.3", boot="b", pid=1, config="c", digest="d"),
        *added(POOL, 0, 1),
        *loaded("smollm.0", 2_300.0),
        *loaded("smollm.1", 700.0),
        events.DaemonReady(pools=[POOL]),
        used("smollm.0", 1, 4096, 1.5),
        used("smollm.1", 1, 2048, 0.5),
        used("smollm.0", 1, 8192, 2.0),
        # Goes well.
        accepted("req_1"),
        started("req_1", 3.0),
        moved("smollm.0", SlotState.READY, SlotState.BUSY),
        first_token("req_1", 40.0),
        completed("req_1"),
        moved("smollm.0", SlotState.BUSY, SlotState.READY),
        # Loses its worker, gets another, and is cancelled there.
        accepted("req_2"),
        started("req_2", 0.5),
        events.RequestRetried(
            pool=POOL,
            request="req_2",
            worker="smollm.0",
            generation=1,
            attempt=1,
            reason=FailureReason.WORKER_EXITED,
        ),
        moved("smollm.0", SlotState.READY, SlotState.QUARANTINED),
        reaped("smollm.0"),
        restarted("smollm.0", QuarantineReason.UNEXPECTED_EXIT),
        moved("smollm.0", SlotState.QUARANTINED, SlotState.BACKOFF),
        used("smollm.0", 2, 1024, 0.25),
        started("req_2", 90.0, attempt=2),
        first_token("req_2", 120.0),
        events.CancelRequested(pool=POOL, request="req_2", by=CancelledBy.CLIENT),
        events.RequestFinished(
            pool=POOL,
            request="req_2",
            outcome=Outcome.CANCELLED,
            worker="smollm.1",
            generation=1,
            tokens=1,
            queued_ms=0.5,
            ttft_ms=120.0,
            total_ms=150.0,
            gaps=[0] * (len(GAP_BUCKETS) + 1),
        ),
        settled("req_2", Resolution.COOPERATIVE, 7.0),
        # Waits for too long; another one still waits, and a third one runs.
        accepted("req_3"),
        events.RequestFinished(
            pool=POOL,
            request="req_3",
            outcome=Outcome.FAILED,
            error=FailureReason.QUEUE_TIMEOUT,
            queued_ms=30_000.0,
            total_ms=30_000.0,
        ),
        accepted("req_4"),
        accepted("req_5"),
        started("req_5", 1.0),
        # Were never accepted.
        events.RequestRejected(code="queue_full", pool=POOL),
        events.RequestRejected(code="unknown_model"),
        events.DaemonLoopLag(seconds=0.07),
        events.DaemonLoopLag(seconds=3.0),
    ]
