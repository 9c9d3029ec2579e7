"""What the ledger's rows are written with: moments, events, records, and common answers."""

from __future__ import annotations

from typing import Any

import msgspec

from supervisord_llm.core.ledger import (
    Acquit,
    AskWorker,
    Assigned,
    CancelAsked,
    Done,
    EngineError,
    FirstOutput,
    GraceMissed,
    Over,
    Overflowed,
    PoolLost,
    QueueExpired,
    Released,
    Seal,
    State,
    StopFound,
    TellCancel,
    TellFirstOutput,
    TellRetried,
    TellSettled,
    Withdraw,
    WorkerLost,
)
from supervisord_llm.core.record import Record
from supervisord_llm.core.words import (
    AnsweredBy,
    CancelledBy,
    FailureReason,
    FinishReason,
    Outcome,
    RequestState,
    Resolution,
    Usage,
)
from tests.core.golden import (
    Expected,
    cannot,
    goes,
    ignores,
)

ACCEPTED, ASSIGNED, FIRST, CANCELLED, NOW = 100.0, 100.25, 100.5, 101.0, 102.0
LOST_BEFORE = 100.375
USAGE = Usage(prompt_tokens=7, reused_tokens=3, generated_tokens=11)
DONE = Done(
    now=NOW,
    cancelled=False,
    finish_reason=FinishReason.LENGTH,
    usage=USAGE,
    prefill_ms=40.0,
    decode_ms=800.0,
)
DONE_CANCELLED = msgspec.structs.replace(DONE, cancelled=True)
ASSIGN, OUTPUT = Assigned(NOW), FirstOutput(NOW)
CANCEL, CANCEL_AGAIN = CancelAsked(NOW, CancelledBy.CLIENT), CancelAsked(NOW, CancelledBy.API)
STOP = StopFound(NOW)
ENGINE = EngineError(NOW, "decode failed")
TOO_LONG = EngineError(NOW, "too long", FailureReason.CONTEXT_LENGTH_EXCEEDED)
MISSED, DETACH = GraceMissed(NOW), GraceMissed(NOW, AnsweredBy.DETACH)
LOST = WorkerLost(NOW, FailureReason.WORKER_EXITED, "the worker ended: exit:3")
LOST_ALONE = WorkerLost(NOW, FailureReason.WORKER_EXITED, "the worker ended: exit:3", alone=True)
RELEASED = Released(NOW, Resolution.KILLED)
OVERFLOW, EXPIRED = Overflowed(NOW), QueueExpired(NOW)
POOL_LOST = PoolLost(NOW, "smollm.0 parked")
UNFIT = PoolLost(NOW, "cannot be a prompt", FailureReason.INVALID_REQUEST)

COUNTED: dict[str, Any] = {"usage": USAGE, "prefill_ms": 40.0, "decode_ms": 800.0}
QUEUED_RECORD: dict[str, Any] = {"queued_ms": 2000.0, "ttft_ms": None, "total_ms": 2000.0}
SILENT_RECORD: dict[str, Any] = {"queued_ms": 250.0, "ttft_ms": None, "total_ms": 2000.0}
SPEAKING_RECORD: dict[str, Any] = {"queued_ms": 250.0, "ttft_ms": 500.0, "total_ms": 2000.0}


def finishes(
    record: Record, *, first: tuple[object, ...] = (), acquitted: tuple[Acquit, ...] = ()
) -> Expected:
    """Sealed and over in one move."""
    return goes(RequestState.FINISHED, *first, Seal(record), *acquitted, Over(), record=record)


def held(
    record: Record,
    *,
    first: tuple[object, ...] = (),
    acquitted: tuple[Acquit, ...] = (),
    detached: bool = False,
) -> Expected:
    """Sealed, while a worker holds it."""
    return goes(
        RequestState.HELD, *first, Seal(record), *acquitted, record=record, detached=detached
    )


def running_answers(
    times: dict[str, Any], *acquitted: Acquit, attempts_left: bool = False
) -> dict[object, Expected]:
    """What a request that is on a worker answers, whether there has been output or not.

    A loss is not among the answers of one that would go back into the queue.
    """
    lost = Record(
        outcome=Outcome.FAILED,
        error=FailureReason.WORKER_EXITED,
        detail="the worker ended: exit:3",
        **times,
    )
    slow = Record(
        outcome=Outcome.FAILED,
        error=FailureReason.SLOW_CONSUMER,
        detail="the client did not read the output in time; read faster or ask for less",
        **times,
    )
    return {
        CANCEL: goes(
            RequestState.CANCELLING,
            TellCancel(CancelledBy.CLIENT),
            AskWorker(),
            cancelled_by=CancelledBy.CLIENT,
            cancel_at=NOW,
        ),
        DONE: finishes(
            Record(
                outcome=Outcome.COMPLETED, finish_reason=FinishReason.LENGTH, **COUNTED, **times
            ),
            acquitted=acquitted,
        ),
        DONE_CANCELLED: finishes(
            Record(
                outcome=Outcome.FAILED,
                error=FailureReason.PROTOCOL_ERROR,
                detail=(
                    "the worker says that the request was cancelled, but nobody asked for that"
                ),
                **COUNTED,
                **times,
            ),
            acquitted=acquitted,
        ),
        ENGINE: finishes(
            Record(
                outcome=Outcome.FAILED,
                error=FailureReason.ENGINE_ERROR,
                detail="decode failed",
                **times,
            ),
            acquitted=acquitted,
        ),
        TOO_LONG: finishes(
            Record(
                outcome=Outcome.FAILED,
                error=FailureReason.CONTEXT_LENGTH_EXCEEDED,
                detail="too long",
                **times,
            ),
            acquitted=acquitted,
        ),
        **({} if attempts_left else {LOST: held(lost, acquitted=acquitted)}),
        OVERFLOW: held(slow, first=(AskWorker(),), acquitted=acquitted),
        **ignores(EXPIRED, POOL_LOST),
        **cannot(ASSIGN, MISSED, DETACH, RELEASED),
    }


def streaming_answers(*acquitted: Acquit) -> dict[object, Expected]:
    """What a request with output answers: it never goes back, whatever attempts it has left."""
    answers = running_answers(SPEAKING_RECORD, *acquitted)
    return {
        **answers,
        LOST_ALONE: answers[LOST],
        STOP: goes(RequestState.STOPPING, AskWorker()),
        **cannot(OUTPUT),
    }


def stopping_answers(*acquitted: Acquit) -> dict[object, Expected]:
    """What a request answers in whose output a stop string was found: it is complete, always."""
    stopped = STOPPED_RECORD
    counted = msgspec.structs.replace(stopped, **COUNTED)
    refused = msgspec.structs.replace(stopped, detail="decode failed")
    lost = msgspec.structs.replace(stopped, detail="the worker ended: exit:3")
    return {
        DONE: finishes(counted, acquitted=acquitted),
        DONE_CANCELLED: finishes(counted, acquitted=acquitted),
        ENGINE: finishes(refused, acquitted=acquitted),
        MISSED: held(stopped, acquitted=acquitted),
        DETACH: held(stopped, acquitted=acquitted, detached=True),
        LOST: held(lost, acquitted=acquitted),
        LOST_ALONE: held(lost, acquitted=acquitted),
        **ignores(CANCEL, CANCEL_AGAIN, STOP, OVERFLOW, EXPIRED, POOL_LOST),
        **cannot(ASSIGN, OUTPUT, RELEASED),
    }


def cancelled(
    answered_by: AnsweredBy,
    times: dict[str, Any],
    *,
    elapsed_ms: float = 1000.0,
    detail: str | None = None,
    counted: dict[str, Any] | None = None,
) -> Record:
    """The record of a request that a client cancelled."""
    return Record(
        outcome=Outcome.CANCELLED,
        cancelled_by=CancelledBy.CLIENT,
        answered_by=answered_by,
        cancel_elapsed_ms=elapsed_ms,
        detail=detail,
        **(counted or {}),
        **times,
    )


def settles(record: Record, resolution: Resolution, *acquitted: Acquit) -> Expected:
    """Sealed, settled and over in one move."""
    return goes(
        RequestState.FINISHED,
        Seal(record),
        *acquitted,
        TellSettled(resolution, 1000.0),
        Over(),
        record=record,
        resolution=resolution,
    )


def cancelling_answers(times: dict[str, Any], *acquitted: Acquit) -> dict[object, Expected]:
    """What a request that is being cancelled answers, except to its first output."""
    missed, left = cancelled(AnsweredBy.GRACE, times), cancelled(AnsweredBy.DETACH, times)
    lost = cancelled(AnsweredBy.GRACE, times, detail="the worker ended: exit:3")
    raced = Record(
        outcome=Outcome.COMPLETED,
        finish_reason=FinishReason.LENGTH,
        cancel_raced=True,
        **COUNTED,
        **times,
    )
    return {
        DONE: settles(raced, Resolution.RACED, *acquitted),
        DONE_CANCELLED: settles(
            cancelled(AnsweredBy.WORKER, times, counted=COUNTED),
            Resolution.COOPERATIVE,
            *acquitted,
        ),
        ENGINE: settles(
            cancelled(AnsweredBy.WORKER, times, detail="decode failed"),
            Resolution.COOPERATIVE,
            *acquitted,
        ),
        MISSED: held(missed, acquitted=acquitted),
        DETACH: held(left, acquitted=acquitted, detached=True),
        LOST: held(lost, acquitted=acquitted),
        LOST_ALONE: held(lost, acquitted=acquitted),
        OVERFLOW: held(missed, acquitted=acquitted),
        **ignores(CANCEL_AGAIN, STOP, EXPIRED, POOL_LOST),
        **cannot(ASSIGN, RELEASED),
    }


def waiting_answers(
    times: dict[str, Any],
    expired_detail: str,
    *acquitted: Acquit,
    attempt: int,
    assigned_at: float = ASSIGNED,
) -> dict[object, Expected]:
    """What a request in the queue answers; its next worker is its ``attempt``-th."""
    withdrawn = cancelled(AnsweredBy.QUEUE, times, elapsed_ms=0.0)
    expired = Record(
        outcome=Outcome.FAILED,
        error=FailureReason.QUEUE_TIMEOUT,
        detail=expired_detail,
        **times,
    )
    lost = Record(
        outcome=Outcome.FAILED,
        error=FailureReason.POOL_UNAVAILABLE,
        detail="smollm.0 parked",
        **times,
    )
    return {
        ASSIGN: goes(RequestState.DISPATCHED, assigned_at=assigned_at, attempt=attempt),
        CANCEL: goes(
            RequestState.FINISHED,
            Withdraw(),
            TellCancel(CancelledBy.CLIENT),
            Seal(withdrawn),
            *acquitted,
            TellSettled(Resolution.QUEUED, 0.0),
            Over(),
            cancelled_by=CancelledBy.CLIENT,
            cancel_at=NOW,
            record=withdrawn,
            resolution=Resolution.QUEUED,
        ),
        EXPIRED: finishes(expired, first=(Withdraw(),), acquitted=acquitted),
        POOL_LOST: finishes(lost, first=(Withdraw(),), acquitted=acquitted),
        UNFIT: finishes(
            msgspec.structs.replace(
                lost, error=FailureReason.INVALID_REQUEST, detail="cannot be a prompt"
            ),
            first=(Withdraw(),),
            acquitted=acquitted,
        ),
        **cannot(OUTPUT, STOP, DONE, DONE_CANCELLED, ENGINE, MISSED, LOST, RELEASED, OVERFLOW),
    }


def state(kind: RequestState, **facts: object) -> State:
    """A request that was assigned to a slot, with these facts besides."""
    plain = State(kind=kind, accepted_at=ACCEPTED, assigned_at=ASSIGNED, attempt=1)
    return msgspec.structs.replace(plain, **facts)


ASKED = {"cancelled_by": CancelledBy.CLIENT, "cancel_at": CANCELLED}
FAILED_RECORD = Record(
    outcome=Outcome.FAILED, error=FailureReason.WORKER_EXITED, detail="gone", **SPEAKING_RECORD
)
GRACE_RECORD = cancelled(AnsweredBy.GRACE, SPEAKING_RECORD)
DETACH_RECORD = cancelled(AnsweredBy.DETACH, SPEAKING_RECORD, elapsed_ms=0.0)
STOPPED_RECORD = Record(
    outcome=Outcome.COMPLETED, finish_reason=FinishReason.STOP, **SPEAKING_RECORD
)
SUSPECT_RECORD = Record(
    outcome=Outcome.FAILED,
    error=FailureReason.WORKER_EXITED,
    detail=(
        "the worker ended: exit:3; another worker had ended before, and each had nothing but this "
        "request, which seems to be what ends them: change it before you send it again"
    ),
    suspect=True,
    **SILENT_RECORD,
)
SPOKE = {"first_at": FIRST}
AGAIN: dict[str, object] = {"attempt": 2, "requeued_at": LOST_BEFORE}
CHARGED = {**AGAIN, "charged_at": LOST_BEFORE}
ACQUITTED = Acquit(LOST_BEFORE)
RETRIED = TellRetried(FailureReason.WORKER_EXITED)
NO_SECOND = "its worker was lost, and no worker became free in time; try again later"
LATER_LOSSES = ignores(LOST, LOST_ALONE)
HEARD_AND_IGNORED_ONCE_SEALED = {
    **ignores(CANCEL, STOP, MISSED, DETACH, OVERFLOW, EXPIRED, POOL_LOST),
    **LATER_LOSSES,
}
SETTLES_DETACHED = goes(
    RequestState.FINISHED,
    TellSettled(Resolution.DETACHED, 1000.0),
    Over(),
    resolution=Resolution.DETACHED,
)
FIRST_OUTPUT: dict[object, Expected] = {
    OUTPUT: goes(RequestState.STREAMING, TellFirstOutput(2000.0), first_at=NOW)
}
