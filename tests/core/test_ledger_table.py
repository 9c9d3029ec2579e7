"""The golden table of the ledger."""

from __future__ import annotations

import msgspec
import pytest

from supervisord_llm.core import ledger
from supervisord_llm.core.ledger import (
    AskWorker,
    Assigned,
    CancelAsked,
    Charge,
    FirstOutput,
    GraceMissed,
    Over,
    Requeue,
    State,
    TellCancel,
    TellFirstOutput,
    TellLate,
    TellSettled,
)
from supervisord_llm.core.record import Record
from supervisord_llm.core.words import (
    AnsweredBy,
    CancelledBy,
    FailureReason,
    Outcome,
    RequestState,
    Resolution,
)
from tests.core.golden import (
    Sample,
    cannot,
    differences,
    goes,
    ignores,
    stays,
    unexamined,
)
from tests.core.ledger_rows import (
    ACCEPTED,
    ACQUITTED,
    ASKED,
    ASSIGN,
    CHARGED,
    DETACH_RECORD,
    DONE,
    DONE_CANCELLED,
    ENGINE,
    FAILED_RECORD,
    FIRST_OUTPUT,
    GRACE_RECORD,
    HEARD_AND_IGNORED_ONCE_SEALED,
    LATER_LOSSES,
    LOST,
    LOST_ALONE,
    LOST_BEFORE,
    MISSED,
    NO_SECOND,
    NOW,
    OUTPUT,
    QUEUED_RECORD,
    RELEASED,
    RETRIED,
    SETTLES_DETACHED,
    SILENT_RECORD,
    SPEAKING_RECORD,
    SPOKE,
    STOP,
    STOPPED_RECORD,
    SUSPECT_RECORD,
    cancelling_answers,
    held,
    running_answers,
    state,
    stopping_answers,
    streaming_answers,
    waiting_answers,
)

SAMPLES = [
    Sample(
        "queued",
        State(accepted_at=ACCEPTED),
        waiting_answers(
            QUEUED_RECORD,
            "no worker became free in time; try again later",
            attempt=1,
            assigned_at=NOW,
        ),
    ),
    Sample(
        "queued again",
        state(RequestState.QUEUED, requeued_at=LOST_BEFORE),
        waiting_answers(SILENT_RECORD, NO_SECOND, attempt=2),
    ),
    Sample(
        "queued again, the end of its worker charged to it",
        state(RequestState.QUEUED, requeued_at=LOST_BEFORE, charged_at=LOST_BEFORE),
        waiting_answers(SILENT_RECORD, NO_SECOND, ACQUITTED, attempt=2),
    ),
    Sample(
        "dispatched",
        state(RequestState.DISPATCHED),
        {
            **running_answers(SILENT_RECORD),
            **FIRST_OUTPUT,
            **cannot(STOP),
            LOST_ALONE: held(
                msgspec.structs.replace(FAILED_RECORD, detail=LOST.detail, **SILENT_RECORD)
            ),
        },
    ),
    Sample(
        "dispatched, with attempts left",
        state(RequestState.DISPATCHED, attempts_left=2),
        {
            **running_answers(SILENT_RECORD, attempts_left=True),
            **FIRST_OUTPUT,
            LOST: goes(RequestState.QUEUED, RETRIED, Requeue(), attempts_left=1, requeued_at=NOW),
            LOST_ALONE: goes(
                RequestState.QUEUED,
                Charge(),
                RETRIED,
                Requeue(),
                attempts_left=1,
                requeued_at=NOW,
                charged_at=NOW,
            ),
        },
    ),
    Sample(
        "dispatched again, the end of its first worker charged to it",
        state(RequestState.DISPATCHED, **CHARGED),
        {
            **running_answers(SILENT_RECORD, ACQUITTED),
            **FIRST_OUTPUT,
            LOST_ALONE: held(SUSPECT_RECORD, first=(Charge(),)),
        },
    ),
    Sample(
        "dispatched again, with attempts left, the end of its first worker charged to it",
        state(RequestState.DISPATCHED, attempts_left=1, **CHARGED),
        {
            **running_answers(SILENT_RECORD, ACQUITTED, attempts_left=True),
            **FIRST_OUTPUT,
            LOST: goes(RequestState.QUEUED, RETRIED, Requeue(), attempts_left=0, requeued_at=NOW),
            LOST_ALONE: held(SUSPECT_RECORD, first=(Charge(),)),
        },
    ),
    *(
        Sample(
            f"streaming, with {attempts_left} attempts left",
            state(RequestState.STREAMING, attempts_left=attempts_left, **SPOKE),
            streaming_answers(),
        )
        for attempts_left in (0, 1)
    ),
    Sample(
        "streaming, the end of its first worker charged to it",
        state(RequestState.STREAMING, attempts_left=1, **SPOKE, **CHARGED),
        streaming_answers(ACQUITTED),
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
        "cancelling, no output yet, with attempts left",
        state(RequestState.CANCELLING, attempts_left=1, **ASKED),
        cancelling_answers(SILENT_RECORD),
    ),
    Sample(
        "cancelling, the end of its first worker charged to it",
        state(RequestState.CANCELLING, attempts_left=1, **ASKED, **CHARGED),
        {
            **cancelling_answers(SILENT_RECORD, ACQUITTED),
            OUTPUT: stays(TellFirstOutput(2000.0), first_at=NOW),
        },
    ),
    Sample(
        "cancelling in mid-stream",
        state(RequestState.CANCELLING, **SPOKE, **ASKED),
        {**cancelling_answers(SPEAKING_RECORD), **ignores(OUTPUT)},
    ),
    *(
        Sample(
            f"stopping, with {attempts_left} attempts left",
            state(RequestState.STOPPING, attempts_left=attempts_left, **SPOKE),
            stopping_answers(),
        )
        for attempts_left in (0, 1)
    ),
    Sample(
        "stopping, the end of its first worker charged to it",
        state(RequestState.STOPPING, attempts_left=1, **SPOKE, **CHARGED),
        stopping_answers(ACQUITTED),
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
        "held by a worker that was left alone",
        state(RequestState.HELD, **SPOKE, **ASKED, record=DETACH_RECORD, detached=True),
        {
            **dict.fromkeys((DONE, DONE_CANCELLED, ENGINE), SETTLES_DETACHED),
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
        "held after a stop by a worker that was left alone",
        state(RequestState.HELD, **SPOKE, record=STOPPED_RECORD, detached=True),
        {
            **dict.fromkeys((DONE, DONE_CANCELLED, ENGINE), goes(RequestState.FINISHED, Over())),
            RELEASED: goes(RequestState.FINISHED, Over()),
            **HEARD_AND_IGNORED_ONCE_SEALED,
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
    Sample(
        "held as a suspect",
        state(RequestState.HELD, attempts_left=1, **CHARGED, record=SUSPECT_RECORD),
        {RELEASED: goes(RequestState.FINISHED, Over()), **LATER_LOSSES},
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


OWN_DOING = (
    FailureReason.ENGINE_ERROR,
    FailureReason.INVALID_REQUEST,
    FailureReason.CONTEXT_LENGTH_EXCEEDED,
)


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
        *((each, False) for each in OWN_DOING),
        *((each, True) for each in FailureReason if each not in OWN_DOING),
    ],
)
def test_only_what_was_not_the_request_s_own_doing_is_worth_a_retry(
    error: FailureReason | None, *, retryable: bool
) -> None:
    """An engine that refuses a request once will do so again."""
    outcome = Outcome.COMPLETED if error is None else Outcome.FAILED
    record = Record(outcome=outcome, error=error, **SPEAKING_RECORD)
    assert retryable == record.retryable


def test_a_suspect_is_not_worth_a_retry_though_its_worker_s_end_would_be() -> None:
    """Whoever sends it again as it is ends two more workers."""
    assert FAILED_RECORD.retryable
    assert not SUSPECT_RECORD.retryable


@pytest.mark.parametrize("by", CancelledBy)
@pytest.mark.parametrize("kind", [RequestState.QUEUED, RequestState.DISPATCHED])
def test_whoever_asks_for_the_end_gets_it_in_the_same_way(
    by: CancelledBy, kind: RequestState
) -> None:
    """A deadline is a cancellation like another, on a worker and in the queue."""
    asked, effects = ledger.step(state(kind, first_at=None), CancelAsked(NOW, by))
    if kind is RequestState.DISPATCHED:
        assert (TellCancel(by), AskWorker()) == effects
        asked, _ = ledger.step(asked, MISSED)
    answered_by = AnsweredBy.QUEUE if kind is RequestState.QUEUED else AnsweredBy.GRACE
    assert asked.record is not None
    assert (Outcome.CANCELLED, by, answered_by) == (
        asked.record.outcome,
        asked.record.cancelled_by,
        asked.record.answered_by,
    )


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
