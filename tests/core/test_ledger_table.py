"""The golden table of the ledger."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from supervisord_llm.core import ledger
from supervisord_llm.core.ledger import (
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
    TellCancel,
    TellFirstOutput,
    TellLate,
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
    Sample,
    cannot,
    differences,
    goes,
    ignores,
    stays,
    unexamined,
)

ACCEPTED, ASSIGNED, FIRST, CANCELLED, NOW = 100.0, 100.25, 100.5, 101.0, 102.0
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
ENGINE = EngineError(NOW, "decode failed")
MISSED = GraceMissed(NOW)
LOST = WorkerLost(NOW, FailureReason.WORKER_EXITED, "the worker ended: exit:3")
RELEASED = Released(NOW, Resolution.KILLED)
OVERFLOW, EXPIRED = Overflowed(NOW), QueueExpired(NOW)
POOL_LOST = PoolLost(NOW, "smollm.0 parked")

COUNTED: dict[str, Any] = {"usage": USAGE, "prefill_ms": 40.0, "decode_ms": 800.0}
QUEUED_RECORD: dict[str, Any] = {"queued_ms": 2000.0, "ttft_ms": None, "total_ms": 2000.0}
SILENT_RECORD: dict[str, Any] = {"queued_ms": 250.0, "ttft_ms": None, "total_ms": 2000.0}
SPEAKING_RECORD: dict[str, Any] = {"queued_ms": 250.0, "ttft_ms": 500.0, "total_ms": 2000.0}


def finishes(record: Record, *, first: tuple[object, ...] = ()) -> Expected:
    """Sealed and over in one move."""
    return goes(RequestState.FINISHED, *first, Seal(record), Over(), record=record)


def running_answers(times: dict[str, Any]) -> dict[object, Expected]:
    """What a request that is on a worker answers, whether there has been output or not."""
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
            Record(outcome=Outcome.COMPLETED, finish_reason=FinishReason.LENGTH, **COUNTED, **times)
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
            )
        ),
        ENGINE: finishes(
            Record(
                outcome=Outcome.FAILED,
                error=FailureReason.ENGINE_ERROR,
                detail="decode failed",
                **times,
            )
        ),
        LOST: goes(RequestState.HELD, Seal(lost), record=lost),
        OVERFLOW: goes(RequestState.HELD, AskWorker(), Seal(slow), record=slow),
        **ignores(EXPIRED, POOL_LOST),
        **cannot(ASSIGN, MISSED, RELEASED),
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


def settles(record: Record, resolution: Resolution) -> Expected:
    """Sealed, settled and over in one move."""
    return goes(
        RequestState.FINISHED,
        Seal(record),
        TellSettled(resolution, 1000.0),
        Over(),
        record=record,
        resolution=resolution,
    )


def cancelling_answers(times: dict[str, Any]) -> dict[object, Expected]:
    """What a request that is being cancelled answers, except to its first output."""
    missed = cancelled(AnsweredBy.GRACE, times)
    lost = cancelled(AnsweredBy.GRACE, times, detail="the worker ended: exit:3")
    raced = Record(
        outcome=Outcome.COMPLETED,
        finish_reason=FinishReason.LENGTH,
        cancel_raced=True,
        **COUNTED,
        **times,
    )
    return {
        DONE: settles(raced, Resolution.RACED),
        DONE_CANCELLED: settles(
            cancelled(AnsweredBy.WORKER, times, counted=COUNTED), Resolution.COOPERATIVE
        ),
        ENGINE: settles(
            cancelled(AnsweredBy.WORKER, times, detail="decode failed"), Resolution.COOPERATIVE
        ),
        MISSED: goes(RequestState.HELD, Seal(missed), record=missed),
        LOST: goes(RequestState.HELD, Seal(lost), record=lost),
        OVERFLOW: goes(RequestState.HELD, Seal(missed), record=missed),
        **ignores(CANCEL_AGAIN, EXPIRED, POOL_LOST),
        **cannot(ASSIGN, RELEASED),
    }


def state(kind: RequestState, **facts: object) -> State:
    """A request that was assigned to a slot, with these facts besides."""
    plain = State(kind=kind, accepted_at=ACCEPTED, assigned_at=ASSIGNED)
    return msgspec.structs.replace(plain, **facts)


WITHDRAWN = msgspec.structs.replace(
    cancelled(AnsweredBy.QUEUE, QUEUED_RECORD, elapsed_ms=0.0), cancelled_by=CancelledBy.CLIENT
)
EXPIRED_RECORD = Record(
    outcome=Outcome.FAILED,
    error=FailureReason.QUEUE_TIMEOUT,
    detail="no worker became free in time; try again later",
    **QUEUED_RECORD,
)
POOL_RECORD = Record(
    outcome=Outcome.FAILED,
    error=FailureReason.POOL_UNAVAILABLE,
    detail="smollm.0 parked",
    **QUEUED_RECORD,
)
ASKED = {"cancelled_by": CancelledBy.CLIENT, "cancel_at": CANCELLED}
FAILED_RECORD = Record(
    outcome=Outcome.FAILED, error=FailureReason.WORKER_EXITED, detail="gone", **SPEAKING_RECORD
)
GRACE_RECORD = cancelled(AnsweredBy.GRACE, SPEAKING_RECORD)
SPOKE = {"first_at": FIRST}
HEARD_AND_IGNORED_ONCE_SEALED = ignores(CANCEL, MISSED, LOST, OVERFLOW, EXPIRED, POOL_LOST)

SAMPLES = [
    Sample(
        "queued",
        State(accepted_at=ACCEPTED),
        {
            ASSIGN: goes(RequestState.DISPATCHED, assigned_at=NOW),
            CANCEL: goes(
                RequestState.FINISHED,
                Withdraw(),
                TellCancel(CancelledBy.CLIENT),
                Seal(WITHDRAWN),
                TellSettled(Resolution.QUEUED, 0.0),
                Over(),
                cancelled_by=CancelledBy.CLIENT,
                cancel_at=NOW,
                record=WITHDRAWN,
                resolution=Resolution.QUEUED,
            ),
            EXPIRED: finishes(EXPIRED_RECORD, first=(Withdraw(),)),
            POOL_LOST: finishes(POOL_RECORD, first=(Withdraw(),)),
            **cannot(OUTPUT, DONE, DONE_CANCELLED, ENGINE, MISSED, LOST, RELEASED, OVERFLOW),
        },
    ),
    Sample(
        "dispatched",
        state(RequestState.DISPATCHED),
        {
            **running_answers(SILENT_RECORD),
            OUTPUT: goes(RequestState.STREAMING, TellFirstOutput(2000.0), first_at=NOW),
        },
    ),
    Sample(
        "streaming",
        state(RequestState.STREAMING, **SPOKE),
        {**running_answers(SPEAKING_RECORD), **cannot(OUTPUT)},
    ),
    Sample(
        "cancelling, no output yet",
        state(RequestState.CANCELLING, **ASKED),
        {
            **cancelling_answers(SILENT_RECORD),
            OUTPUT: stays(TellFirstOutput(2000.0), first_at=NOW),
        },
    ),
    Sample(
        "cancelling in mid-stream",
        state(RequestState.CANCELLING, **SPOKE, **ASKED),
        {**cancelling_answers(SPEAKING_RECORD), **ignores(OUTPUT)},
    ),
    Sample(
        "held after a cancellation",
        state(RequestState.HELD, **SPOKE, **ASKED, record=GRACE_RECORD),
        {
            DONE: goes(
                RequestState.FINISHED,
                TellLate("done"),
                TellSettled(Resolution.COOPERATIVE, 1000.0),
                Over(),
                resolution=Resolution.COOPERATIVE,
            ),
            DONE_CANCELLED: goes(
                RequestState.FINISHED,
                TellLate("done"),
                TellSettled(Resolution.COOPERATIVE, 1000.0),
                Over(),
                resolution=Resolution.COOPERATIVE,
            ),
            ENGINE: goes(
                RequestState.FINISHED,
                TellLate("error"),
                TellSettled(Resolution.COOPERATIVE, 1000.0),
                Over(),
                resolution=Resolution.COOPERATIVE,
            ),
            RELEASED: goes(
                RequestState.FINISHED,
                TellSettled(Resolution.KILLED, 1000.0),
                Over(),
                resolution=Resolution.KILLED,
            ),
            **HEARD_AND_IGNORED_ONCE_SEALED,
            **ignores(OUTPUT),
            **cannot(ASSIGN),
        },
    ),
    Sample(
        "held after a failure",
        state(RequestState.HELD, **SPOKE, record=FAILED_RECORD),
        {
            DONE: goes(RequestState.FINISHED, TellLate("done"), Over()),
            DONE_CANCELLED: goes(RequestState.FINISHED, TellLate("done"), Over()),
            ENGINE: goes(RequestState.FINISHED, TellLate("error"), Over()),
            RELEASED: goes(RequestState.FINISHED, Over()),
            **HEARD_AND_IGNORED_ONCE_SEALED,
            **ignores(OUTPUT),
            **cannot(ASSIGN),
        },
    ),
    Sample(
        "held before there was any output",
        state(RequestState.HELD, **ASKED, record=GRACE_RECORD),
        ignores(OUTPUT),
    ),
    *(
        Sample(
            title,
            state(RequestState.FINISHED, **SPOKE, **facts),
            {
                DONE: stays(TellLate("done")),
                DONE_CANCELLED: stays(TellLate("done")),
                ENGINE: stays(TellLate("error")),
                **HEARD_AND_IGNORED_ONCE_SEALED,
                **ignores(RELEASED),
                **cannot(ASSIGN, OUTPUT),
            },
        )
        for title, facts in (
            ("finished after a failure", {"record": FAILED_RECORD}),
            (
                "finished after a cancellation",
                {**ASKED, "record": GRACE_RECORD, "resolution": Resolution.KILLED},
            ),
        )
    ),
]


def test_every_cell_of_the_ledger_answers_as_its_row_says() -> None:
    """Next state and effects are those of the rows, in the order of the rows."""
    assert [] == differences(ledger.TABLE, SAMPLES)


def test_every_cell_of_the_ledger_has_a_row() -> None:
    """A new cell needs an expectation."""
    assert [] == unexamined(ledger.TABLE, SAMPLES)


@pytest.mark.parametrize(
    ("error", "retryable"),
    [
        (None, False),
        (FailureReason.ENGINE_ERROR, False),
        *((each, True) for each in FailureReason if each is not FailureReason.ENGINE_ERROR),
    ],
)
def test_only_what_was_not_the_request_s_own_doing_is_worth_a_retry(
    error: FailureReason | None, *, retryable: bool
) -> None:
    """An engine that refuses a request once will do so again."""
    outcome = Outcome.COMPLETED if error is None else Outcome.FAILED
    record = Record(outcome=outcome, error=error, **SPEAKING_RECORD)
    assert retryable == record.retryable


def test_durations_are_milliseconds_to_the_microsecond() -> None:
    """Finer digits are noise of the clock, and of sums of floats."""
    state = State(accepted_at=1.0)
    for event in (Assigned(1.0001234), FirstOutput(1.2), CancelAsked(2.0, CancelledBy.API)):
        state, _ = ledger.step(state, event)
    state, _ = ledger.step(state, GraceMissed(4.0000016))
    assert state.record is not None
    expected = (0.123, 200.0, 3000.002, 2000.002)
    assert expected == (
        state.record.queued_ms,
        state.record.ttft_ms,
        state.record.total_ms,
        state.record.cancel_elapsed_ms,
    )
