"""What the ledger knows of a request, and the record that it makes of that."""

from __future__ import annotations

import msgspec

from supervisord_llm.core.ledger_events import Done
from supervisord_llm.core.record import Record
from supervisord_llm.core.words import (
    AnsweredBy,
    CancelledBy,
    FailureReason,
    FinishReason,
    Outcome,
    RequestState,
    Resolution,
)


class State(msgspec.Struct, frozen=True, kw_only=True):
    """One request; times are seconds on the daemon's monotonic clock."""

    kind: RequestState = RequestState.QUEUED
    accepted_at: float
    attempts_left: int = 0
    """How many more workers it may have if it loses one before it has any output."""
    attempt: int = 0
    """How many workers it has had, the present one included."""
    assigned_at: float | None = None
    """When a slot first took it; its time in the queue ended then, also if it had to go back."""
    requeued_at: float | None = None
    """When it last went back into the queue."""
    charged_at: float | None = None
    """When a worker ended by itself that had nothing but this request, if that was charged to it.
    """
    first_at: float | None = None
    cancelled_by: CancelledBy | None = None
    cancel_at: float | None = None
    detached: bool = False
    """Whether its worker, which cannot be cancelled, was left to end it unheard."""
    record: Record | None = None
    resolution: Resolution | None = None


def milliseconds(seconds: float) -> float:
    """A duration as records and announcements have it, to the microsecond."""
    return round(seconds * 1000.0, 3)


def cancel_ms(state: State, now: float) -> float:
    """How long ago the cancellation was asked for; 0 if it was not."""
    return 0.0 if state.cancel_at is None else milliseconds(now - state.cancel_at)


def record_of(
    state: State,
    now: float,
    outcome: Outcome,
    *,
    finish_reason: FinishReason | None = None,
    answered_by: AnsweredBy | None = None,
    error: FailureReason | None = None,
    detail: str | None = None,
    done: Done | None = None,
    suspect: bool = False,
) -> Record:
    """The terminal record of a request that ends now; the state says what came before."""
    left_queue_at = now if state.assigned_at is None else state.assigned_at
    first_at = state.first_at
    cancelled = outcome is Outcome.CANCELLED
    return Record(
        outcome=outcome,
        finish_reason=finish_reason,
        cancelled_by=state.cancelled_by if cancelled else None,
        answered_by=answered_by,
        cancel_elapsed_ms=cancel_ms(state, now) if cancelled else None,
        cancel_raced=outcome is Outcome.COMPLETED and state.cancelled_by is not None,
        error=error,
        detail=detail,
        suspect=suspect,
        usage=None if done is None else done.usage,
        queued_ms=milliseconds(left_queue_at - state.accepted_at),
        ttft_ms=None if first_at is None else milliseconds(first_at - state.accepted_at),
        total_ms=milliseconds(now - state.accepted_at),
        prefill_ms=None if done is None else done.prefill_ms,
        decode_ms=None if done is None else done.decode_ms,
    )
