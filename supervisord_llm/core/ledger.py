"""Who answers a request, exactly once, and when it is over.

One cell per accepted request. Everybody else (the worker, the ladder, the queue, the client's
connection) only proposes an ending; the first proposal that the table takes is sealed, later ones
are told as late and change nothing.

Two facts end a request: its client is *answered* (the record is sealed) and no worker *holds* it
any more. Usually both come with the worker's terminal. A client whose worker does not react is
answered first; the request is then ``held`` until the worker speaks or its process is reaped.

    queued ──assigned──► dispatched ──first output──► streaming
       │                     │                            │
       │ withdrawn           └── cancel ──► cancelling ◄──┘
       ▼                                        │ answered by grace, or the worker is lost
    finished ◄──── the worker's terminal ───────┴──► held ──released──► finished
"""

from __future__ import annotations

import msgspec

from supervisord_llm.core.record import Record
from supervisord_llm.core.table import Cell, Move, Table, ignored, illegal
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


class State(msgspec.Struct, frozen=True, kw_only=True):
    """One request; times are seconds on the daemon's monotonic clock."""

    kind: RequestState = RequestState.QUEUED
    accepted_at: float
    assigned_at: float | None = None
    first_at: float | None = None
    cancelled_by: CancelledBy | None = None
    cancel_at: float | None = None
    record: Record | None = None
    resolution: Resolution | None = None


class Assigned(msgspec.Struct, frozen=True):
    """A slot took the request."""

    now: float


class FirstOutput(msgspec.Struct, frozen=True):
    """The worker produced its first token."""

    now: float


class CancelAsked(msgspec.Struct, frozen=True):
    """Somebody wants the request's end."""

    now: float
    by: CancelledBy


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """The worker's well-formed ``done``."""

    now: float
    cancelled: bool
    finish_reason: FinishReason
    usage: Usage
    prefill_ms: float | None = None
    decode_ms: float | None = None


class EngineError(msgspec.Struct, frozen=True):
    """The worker's well-formed ``error``: local to this request."""

    now: float
    message: str


class GraceMissed(msgspec.Struct, frozen=True):
    """The worker did not react in time: the client is answered without it."""

    now: float


class WorkerLost(msgspec.Struct, frozen=True):
    """The worker was condemned, or exited, with this request on it."""

    now: float
    error: FailureReason
    detail: str


class Released(msgspec.Struct, frozen=True):
    """No worker holds the request any more; ``resolution`` is how that was reached."""

    now: float
    resolution: Resolution


class Overflowed(msgspec.Struct, frozen=True):
    """The client reads more slowly than the worker writes; its mailbox is full."""

    now: float


class QueueExpired(msgspec.Struct, frozen=True):
    """The request waited in the queue for longer than it may."""

    now: float


class PoolLost(msgspec.Struct, frozen=True):
    """No slot of the pool can ever take the request as things stand."""

    now: float
    detail: str


class Seal(msgspec.Struct, frozen=True):
    """Deliver the terminal record."""

    record: Record


class Withdraw(msgspec.Struct, frozen=True):
    """Take the request out of the queue; no worker has heard of it."""


class AskWorker(msgspec.Struct, frozen=True):
    """Ask the slot that has the request to stop working on it."""


class TellFirstOutput(msgspec.Struct, frozen=True):
    """Announce the time to the first token."""

    ttft_ms: float


class TellCancel(msgspec.Struct, frozen=True):
    """Announce that a cancellation was asked for."""

    by: CancelledBy


class TellSettled(msgspec.Struct, frozen=True):
    """Announce what became of the worker that the cancellation was aimed at."""

    resolution: Resolution
    elapsed_ms: float


class TellLate(msgspec.Struct, frozen=True):
    """Count and announce an ending that came after the seal."""

    kind: str


class Over(msgspec.Struct, frozen=True):
    """Answered and released: forget the request's claims."""


Effect = Seal | Withdraw | AskWorker | TellFirstOutput | TellCancel | TellSettled | TellLate | Over
_Move = Move[State, Effect]


def _ms(seconds: float) -> float:
    return round(seconds * 1000.0, 3)


def _cancel_ms(state: State, now: float) -> float:
    return 0.0 if state.cancel_at is None else _ms(now - state.cancel_at)


def _record(
    state: State,
    now: float,
    outcome: Outcome,
    *,
    finish_reason: FinishReason | None = None,
    answered_by: AnsweredBy | None = None,
    error: FailureReason | None = None,
    detail: str | None = None,
    done: Done | None = None,
) -> Record:
    left_queue_at = now if state.assigned_at is None else state.assigned_at
    cancelled = outcome is Outcome.CANCELLED
    return Record(
        outcome=outcome,
        finish_reason=finish_reason,
        cancelled_by=state.cancelled_by if cancelled else None,
        answered_by=answered_by,
        cancel_elapsed_ms=_cancel_ms(state, now) if cancelled else None,
        cancel_raced=outcome is Outcome.COMPLETED and state.cancelled_by is not None,
        error=error,
        detail=detail,
        usage=None if done is None else done.usage,
        queued_ms=_ms(left_queue_at - state.accepted_at),
        ttft_ms=None if state.first_at is None else _ms(state.first_at - state.accepted_at),
        total_ms=_ms(now - state.accepted_at),
        prefill_ms=None if done is None else done.prefill_ms,
        decode_ms=None if done is None else done.decode_ms,
    )


def _sealed(state: State, kind: RequestState, record: Record) -> State:
    return msgspec.structs.replace(state, kind=kind, record=record)


def _asked(state: State, event: CancelAsked) -> State:
    return msgspec.structs.replace(state, cancelled_by=event.by, cancel_at=event.now)


def _assign(state: State, event: Assigned) -> _Move:
    return msgspec.structs.replace(state, kind=RequestState.DISPATCHED, assigned_at=event.now), ()


def _first_output(state: State, event: FirstOutput) -> _Move:
    first = msgspec.structs.replace(state, kind=RequestState.STREAMING, first_at=event.now)
    return first, (TellFirstOutput(_ms(event.now - state.accepted_at)),)


def _first_output_while_cancelling(state: State, event: FirstOutput) -> _Move:
    if state.first_at is not None:
        return state, ()
    first = msgspec.structs.replace(state, first_at=event.now)
    return first, (TellFirstOutput(_ms(event.now - state.accepted_at)),)


def _cancel_queued(state: State, event: CancelAsked) -> _Move:
    asked = _asked(state, event)
    record = _record(asked, event.now, Outcome.CANCELLED, answered_by=AnsweredBy.QUEUE)
    over = msgspec.structs.replace(
        _sealed(asked, RequestState.FINISHED, record), resolution=Resolution.QUEUED
    )
    return over, (
        Withdraw(),
        TellCancel(event.by),
        Seal(record),
        TellSettled(Resolution.QUEUED, 0.0),
        Over(),
    )


def _cancel_running(state: State, event: CancelAsked) -> _Move:
    asked = msgspec.structs.replace(_asked(state, event), kind=RequestState.CANCELLING)
    return asked, (TellCancel(event.by), AskWorker())


def _done(state: State, event: Done) -> _Move:
    record = _record(
        state, event.now, Outcome.COMPLETED, finish_reason=event.finish_reason, done=event
    )
    return _sealed(state, RequestState.FINISHED, record), (Seal(record), Over())


def _done_unasked(state: State, event: Done) -> _Move:
    # A worker that claims a cancellation nobody asked for has not completed the request either.
    if not event.cancelled:
        return _done(state, event)
    record = _record(
        state,
        event.now,
        Outcome.FAILED,
        error=FailureReason.PROTOCOL_ERROR,
        detail="the worker says that the request was cancelled, but nobody asked for that",
        done=event,
    )
    return _sealed(state, RequestState.FINISHED, record), (Seal(record), Over())


def _done_while_cancelling(state: State, event: Done) -> _Move:
    resolution = Resolution.COOPERATIVE if event.cancelled else Resolution.RACED
    settled = TellSettled(resolution, _cancel_ms(state, event.now))
    if event.cancelled:
        record = _record(
            state, event.now, Outcome.CANCELLED, answered_by=AnsweredBy.WORKER, done=event
        )
    else:
        record = _record(
            state, event.now, Outcome.COMPLETED, finish_reason=event.finish_reason, done=event
        )
    over = msgspec.structs.replace(
        _sealed(state, RequestState.FINISHED, record), resolution=resolution
    )
    return over, (Seal(record), settled, Over())


def _error(state: State, event: EngineError) -> _Move:
    record = _record(
        state,
        event.now,
        Outcome.FAILED,
        error=FailureReason.ENGINE_ERROR,
        detail=event.message,
    )
    return _sealed(state, RequestState.FINISHED, record), (Seal(record), Over())


def _error_while_cancelling(state: State, event: EngineError) -> _Move:
    # The upstream worker answers a cancellation that met a failing prefill with a plain error; the
    # client asked for the end and has it.
    record = _record(
        state,
        event.now,
        Outcome.CANCELLED,
        answered_by=AnsweredBy.WORKER,
        detail=event.message,
    )
    over = msgspec.structs.replace(
        _sealed(state, RequestState.FINISHED, record), resolution=Resolution.COOPERATIVE
    )
    settled = TellSettled(Resolution.COOPERATIVE, _cancel_ms(state, event.now))
    return over, (Seal(record), settled, Over())


def _grace_missed(state: State, event: GraceMissed) -> _Move:
    record = _record(state, event.now, Outcome.CANCELLED, answered_by=AnsweredBy.GRACE)
    return _sealed(state, RequestState.HELD, record), (Seal(record),)


def _lost(state: State, event: WorkerLost) -> _Move:
    record = _record(state, event.now, Outcome.FAILED, error=event.error, detail=event.detail)
    return _sealed(state, RequestState.HELD, record), (Seal(record),)


def _lost_while_cancelling(state: State, event: WorkerLost) -> _Move:
    # What was asked for, the end of this request, has happened, if without the worker's word.
    record = _record(
        state,
        event.now,
        Outcome.CANCELLED,
        answered_by=AnsweredBy.GRACE,
        detail=event.detail,
    )
    return _sealed(state, RequestState.HELD, record), (Seal(record),)


def _overflow(state: State, event: Overflowed) -> _Move:
    record = _record(
        state,
        event.now,
        Outcome.FAILED,
        error=FailureReason.SLOW_CONSUMER,
        detail="the client did not read the output in time; read faster or ask for less",
    )
    return _sealed(state, RequestState.HELD, record), (AskWorker(), Seal(record))


def _overflow_while_cancelling(state: State, event: Overflowed) -> _Move:
    # The worker has been asked already; whoever does not read does not need the rest.
    return _grace_missed(state, GraceMissed(event.now))


def _fail_queued(state: State, now: float, error: FailureReason, detail: str) -> _Move:
    record = _record(state, now, Outcome.FAILED, error=error, detail=detail)
    return _sealed(state, RequestState.FINISHED, record), (Withdraw(), Seal(record), Over())


def _expire(state: State, event: QueueExpired) -> _Move:
    detail = "no worker became free in time; try again later"
    return _fail_queued(state, event.now, FailureReason.QUEUE_TIMEOUT, detail)


def _pool_lost(state: State, event: PoolLost) -> _Move:
    return _fail_queued(state, event.now, FailureReason.POOL_UNAVAILABLE, event.detail)


def _settle_held(state: State, now: float, resolution: Resolution) -> _Move:
    over = msgspec.structs.replace(state, kind=RequestState.FINISHED)
    if state.cancel_at is None:
        return over, (Over(),)
    settled = TellSettled(resolution, _cancel_ms(state, now))
    return msgspec.structs.replace(over, resolution=resolution), (settled, Over())


def _release_held(state: State, event: Released) -> _Move:
    return _settle_held(state, event.now, event.resolution)


def _late_done(state: State, event: Done) -> _Move:
    over, effects = _settle_held(state, event.now, Resolution.COOPERATIVE)
    return over, (TellLate("done"), *effects)


def _late_error(state: State, event: EngineError) -> _Move:
    over, effects = _settle_held(state, event.now, Resolution.COOPERATIVE)
    return over, (TellLate("error"), *effects)


def _late_once_over(state: State, event: object) -> _Move:
    return state, (TellLate("done" if isinstance(event, Done) else "error"),)


EVENTS: tuple[type, ...] = (
    Assigned,
    FirstOutput,
    CancelAsked,
    Done,
    EngineError,
    GraceMissed,
    WorkerLost,
    Released,
    Overflowed,
    QueueExpired,
    PoolLost,
)

_RUNNING: dict[type, Cell] = {
    Assigned: illegal,
    CancelAsked: _cancel_running,
    Done: _done_unasked,
    EngineError: _error,
    GraceMissed: illegal,
    WorkerLost: _lost,
    Released: illegal,
    Overflowed: _overflow,
    QueueExpired: ignored,
    PoolLost: ignored,
}

TABLE: Table[State, Effect] = Table(
    "ledger",
    RequestState,
    EVENTS,
    {
        RequestState.QUEUED: {
            Assigned: _assign,
            FirstOutput: illegal,
            CancelAsked: _cancel_queued,
            Done: illegal,
            EngineError: illegal,
            GraceMissed: illegal,
            WorkerLost: illegal,
            Released: illegal,
            Overflowed: illegal,
            QueueExpired: _expire,
            PoolLost: _pool_lost,
        },
        RequestState.DISPATCHED: {**_RUNNING, FirstOutput: _first_output},
        RequestState.STREAMING: {**_RUNNING, FirstOutput: illegal},
        RequestState.CANCELLING: {
            Assigned: illegal,
            FirstOutput: _first_output_while_cancelling,
            CancelAsked: ignored,
            Done: _done_while_cancelling,
            EngineError: _error_while_cancelling,
            GraceMissed: _grace_missed,
            WorkerLost: _lost_while_cancelling,
            Released: illegal,
            Overflowed: _overflow_while_cancelling,
            QueueExpired: ignored,
            PoolLost: ignored,
        },
        RequestState.HELD: {
            Assigned: illegal,
            FirstOutput: ignored,
            CancelAsked: ignored,
            Done: _late_done,
            EngineError: _late_error,
            GraceMissed: ignored,
            WorkerLost: ignored,
            Released: _release_held,
            Overflowed: ignored,
            QueueExpired: ignored,
            PoolLost: ignored,
        },
        RequestState.FINISHED: {
            Assigned: illegal,
            FirstOutput: illegal,
            CancelAsked: ignored,
            Done: _late_once_over,
            EngineError: _late_once_over,
            GraceMissed: ignored,
            WorkerLost: ignored,
            Released: ignored,
            Overflowed: ignored,
            QueueExpired: ignored,
            PoolLost: ignored,
        },
    },
)


def step(state: State, event: object) -> _Move:
    """The next state and the effects; see `supervisord_llm.core.table.Table.step`."""
    return TABLE.step(state, event)
