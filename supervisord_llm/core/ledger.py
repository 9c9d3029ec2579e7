"""Who answers a request, exactly once, and when it is over.

One cell per accepted request. Everybody else (the worker, the ladder, the queue, the client's
connection) only proposes an ending; the first proposal that the table takes is sealed, later ones
are told as late and change nothing.

Two facts end a request: its client is *answered* (the record is sealed) and no worker *holds* it
any more. Usually both come with the worker's terminal. A client whose worker does not react is
answered first; the request is then ``held`` until the worker speaks or its process is reaped.

    queued ──assigned──► dispatched ──first output──► streaming
       │ ▲                   │  │                         │
       │ └── worker lost ────┘  └──── cancel ─────┐       │ cancel
       │ withdrawn                                ▼       │
       │                                      cancelling ◄┘
       ▼                                          │ answered by grace, or the worker is lost
    finished ◄───── the worker's terminal ────────┴──► held ──released──► finished

A stop string that is found in the output outside the worker ends a request as a cancellation would,
except that it is complete: it is ``stopping`` instead of ``cancelling``, and whatever becomes of
the worker, its record says so. Whoever wants its end after that has it already.

A request that loses its worker before it has any output goes back into the queue as long as it has
attempts left; afterwards it fails, because output is never delivered twice or spliced.

A worker that ends by itself while one request is all that it has may have died of that request. Its
end is *charged* to the request until a second worker tells. If that one ends in the same way, the
request is suspect, and neither end counts against a slot: one poisonous prompt must not park a
pool. In whichever other way the request ends, it is *acquitted*, and the first end counts against
its slot after all. Where no attempt is left there is no second worker to tell, so nothing is
charged.
"""

from __future__ import annotations

import msgspec

from supervisord_llm.core.ledger_events import (
    EVENTS,
    Acquit,
    AskWorker,
    Assigned,
    CancelAsked,
    Charge,
    Done,
    Effect,
    EngineError,
    FirstOutput,
    GraceMissed,
    Over,
    Overflowed,
    PoolLost,
    QueueExpired,
    Released,
    Requeue,
    Seal,
    StopFound,
    TellCancel,
    TellFirstOutput,
    TellLate,
    TellRetried,
    TellSettled,
    Withdraw,
    WorkerLost,
)
from supervisord_llm.core.ledger_state import State, cancel_ms, milliseconds, record_of
from supervisord_llm.core.record import Record
from supervisord_llm.core.table import Cell, Move, Table, ignored, illegal
from supervisord_llm.core.words import (
    AnsweredBy,
    FailureReason,
    FinishReason,
    Outcome,
    RequestState,
    Resolution,
)

__all__ = [
    "EVENTS",
    "TABLE",
    "Acquit",
    "AskWorker",
    "Assigned",
    "CancelAsked",
    "Charge",
    "Done",
    "Effect",
    "EngineError",
    "FirstOutput",
    "GraceMissed",
    "Over",
    "Overflowed",
    "PoolLost",
    "QueueExpired",
    "Released",
    "Requeue",
    "Seal",
    "State",
    "StopFound",
    "TellCancel",
    "TellFirstOutput",
    "TellLate",
    "TellRetried",
    "TellSettled",
    "Withdraw",
    "WorkerLost",
    "step",
]


_Move = Move[State, Effect]


def _sealed(state: State, kind: RequestState, record: Record) -> State:
    return msgspec.structs.replace(state, kind=kind, record=record)


def _seals(state: State, record: Record) -> tuple[Effect, ...]:
    """The record, and what it means for a worker's end that was charged to the request."""
    if state.charged_at is None or record.suspect:
        return (Seal(record),)
    return Seal(record), Acquit(state.charged_at)


def _finished(state: State, record: Record) -> _Move:
    return _sealed(state, RequestState.FINISHED, record), (*_seals(state, record), Over())


def _asked(state: State, event: CancelAsked) -> State:
    return msgspec.structs.replace(state, cancelled_by=event.by, cancel_at=event.now)


def _assign(state: State, event: Assigned) -> _Move:
    assigned = msgspec.structs.replace(
        state,
        kind=RequestState.DISPATCHED,
        attempt=state.attempt + 1,
        assigned_at=event.now if state.assigned_at is None else state.assigned_at,
    )
    return assigned, ()


def _first_output(state: State, event: FirstOutput) -> _Move:
    first = msgspec.structs.replace(state, kind=RequestState.STREAMING, first_at=event.now)
    return first, (TellFirstOutput(milliseconds(event.now - state.accepted_at)),)


def _first_output_while_cancelling(state: State, event: FirstOutput) -> _Move:
    if state.first_at is not None:
        return state, ()
    first = msgspec.structs.replace(state, first_at=event.now)
    return first, (TellFirstOutput(milliseconds(event.now - state.accepted_at)),)


def _cancel_queued(state: State, event: CancelAsked) -> _Move:
    asked = _asked(state, event)
    record = record_of(asked, event.now, Outcome.CANCELLED, answered_by=AnsweredBy.QUEUE)
    over = msgspec.structs.replace(
        _sealed(asked, RequestState.FINISHED, record), resolution=Resolution.QUEUED
    )
    return over, (
        Withdraw(),
        TellCancel(event.by),
        *_seals(state, record),
        TellSettled(Resolution.QUEUED, 0.0),
        Over(),
    )


def _cancel_running(state: State, event: CancelAsked) -> _Move:
    asked = msgspec.structs.replace(_asked(state, event), kind=RequestState.CANCELLING)
    return asked, (TellCancel(event.by), AskWorker())


def _done(state: State, event: Done) -> _Move:
    record = record_of(
        state, event.now, Outcome.COMPLETED, finish_reason=event.finish_reason, done=event
    )
    return _finished(state, record)


def _done_unasked(state: State, event: Done) -> _Move:
    # A worker that claims a cancellation nobody asked for has not completed the request either.
    if not event.cancelled:
        return _done(state, event)
    record = record_of(
        state,
        event.now,
        Outcome.FAILED,
        error=FailureReason.PROTOCOL_ERROR,
        detail="the worker says that the request was cancelled, but nobody asked for that",
        done=event,
    )
    return _finished(state, record)


def _done_while_cancelling(state: State, event: Done) -> _Move:
    resolution = Resolution.COOPERATIVE if event.cancelled else Resolution.RACED
    settled = TellSettled(resolution, cancel_ms(state, event.now))
    if event.cancelled:
        record = record_of(
            state, event.now, Outcome.CANCELLED, answered_by=AnsweredBy.WORKER, done=event
        )
    else:
        record = record_of(
            state, event.now, Outcome.COMPLETED, finish_reason=event.finish_reason, done=event
        )
    over = msgspec.structs.replace(
        _sealed(state, RequestState.FINISHED, record), resolution=resolution
    )
    return over, (*_seals(state, record), settled, Over())


def _error(state: State, event: EngineError) -> _Move:
    record = record_of(
        state,
        event.now,
        Outcome.FAILED,
        error=event.reason,
        detail=event.message,
    )
    return _finished(state, record)


def _error_while_cancelling(state: State, event: EngineError) -> _Move:
    # The upstream worker answers a cancellation that met a failing prefill with a plain error; the
    # client asked for the end and has it.
    record = record_of(
        state,
        event.now,
        Outcome.CANCELLED,
        answered_by=AnsweredBy.WORKER,
        detail=event.message,
    )
    over = msgspec.structs.replace(
        _sealed(state, RequestState.FINISHED, record), resolution=Resolution.COOPERATIVE
    )
    settled = TellSettled(Resolution.COOPERATIVE, cancel_ms(state, event.now))
    return over, (*_seals(state, record), settled, Over())


def _unheard(state: State, event: GraceMissed, record: Record) -> _Move:
    held = _sealed(state, RequestState.HELD, record)
    detached = event.by is AnsweredBy.DETACH
    return msgspec.structs.replace(held, detached=detached), _seals(state, record)


def _grace_missed(state: State, event: GraceMissed) -> _Move:
    record = record_of(state, event.now, Outcome.CANCELLED, answered_by=event.by)
    return _unheard(state, event, record)


def _stop(state: State, _event: StopFound) -> _Move:
    return msgspec.structs.replace(state, kind=RequestState.STOPPING), (AskWorker(),)


def _stopped(
    state: State, now: float, *, done: Done | None = None, detail: str | None = None
) -> Record:
    completed, reason = Outcome.COMPLETED, FinishReason.STOP
    return record_of(state, now, completed, finish_reason=reason, done=done, detail=detail)


def _done_while_stopping(state: State, event: Done) -> _Move:
    # Whether it heeded the frame or came to its own end first: the output ended at the stop.
    return _finished(state, _stopped(state, event.now, done=event))


def _error_while_stopping(state: State, event: EngineError) -> _Move:
    return _finished(state, _stopped(state, event.now, detail=event.message))


def _missed_while_stopping(state: State, event: GraceMissed) -> _Move:
    return _unheard(state, event, _stopped(state, event.now))


def _lost_while_stopping(state: State, event: WorkerLost) -> _Move:
    record = _stopped(state, event.now, detail=event.detail)
    return _sealed(state, RequestState.HELD, record), _seals(state, record)


def _lost(state: State, event: WorkerLost) -> _Move:
    record = record_of(state, event.now, Outcome.FAILED, error=event.error, detail=event.detail)
    return _sealed(state, RequestState.HELD, record), _seals(state, record)


def _lost_without_output(state: State, event: WorkerLost) -> _Move:
    if event.alone and state.charged_at is not None:
        return _suspected(state, event)
    if state.attempts_left == 0:
        return _lost(state, event)
    again = msgspec.structs.replace(
        state,
        kind=RequestState.QUEUED,
        attempts_left=state.attempts_left - 1,
        requeued_at=event.now,
        charged_at=event.now if event.alone else state.charged_at,
    )
    charged = (Charge(),) if event.alone else ()
    # The queue comes last: once there, the request may be given to another worker.
    return again, (*charged, TellRetried(event.error), Requeue())


def _suspected(state: State, event: WorkerLost) -> _Move:
    record = record_of(
        state,
        event.now,
        Outcome.FAILED,
        error=event.error,
        detail=(
            f"{event.detail}; another worker had ended before, and each had nothing but this "
            "request, which seems to be what ends them: change it before you send it again"
        ),
        suspect=True,
    )
    return _sealed(state, RequestState.HELD, record), (Charge(), *_seals(state, record))


def _lost_while_cancelling(state: State, event: WorkerLost) -> _Move:
    # What was asked for, the end of this request, has happened, if without the worker's word.
    record = record_of(
        state,
        event.now,
        Outcome.CANCELLED,
        answered_by=AnsweredBy.GRACE,
        detail=event.detail,
    )
    return _sealed(state, RequestState.HELD, record), _seals(state, record)


def _overflow(state: State, event: Overflowed) -> _Move:
    record = record_of(
        state,
        event.now,
        Outcome.FAILED,
        error=FailureReason.SLOW_CONSUMER,
        detail="the client did not read the output in time; read faster or ask for less",
    )
    return _sealed(state, RequestState.HELD, record), (AskWorker(), *_seals(state, record))


def _overflow_while_cancelling(state: State, event: Overflowed) -> _Move:
    # The worker has been asked already; whoever does not read does not need the rest.
    return _grace_missed(state, GraceMissed(event.now))


def _fail_queued(state: State, now: float, error: FailureReason, detail: str) -> _Move:
    record = record_of(state, now, Outcome.FAILED, error=error, detail=detail)
    return _sealed(state, RequestState.FINISHED, record), (
        Withdraw(),
        *_seals(state, record),
        Over(),
    )


def _expire(state: State, event: QueueExpired) -> _Move:
    first = "" if state.requeued_at is None else "its worker was lost, and "
    detail = f"{first}no worker became free in time; try again later"
    return _fail_queued(state, event.now, FailureReason.QUEUE_TIMEOUT, detail)


def _pool_lost(state: State, event: PoolLost) -> _Move:
    return _fail_queued(state, event.now, event.reason, event.detail)


def _settle_held(state: State, now: float, resolution: Resolution) -> _Move:
    over = msgspec.structs.replace(state, kind=RequestState.FINISHED)
    if state.cancel_at is None:
        return over, (Over(),)
    settled = TellSettled(resolution, cancel_ms(state, now))
    return msgspec.structs.replace(over, resolution=resolution), (settled, Over())


def _release_held(state: State, event: Released) -> _Move:
    return _settle_held(state, event.now, event.resolution)


def _end_of_held(state: State, event: Done | EngineError) -> _Move:
    # A detached worker was left to end by itself, so its ending is not late but waited for.
    if state.detached:
        return _settle_held(state, event.now, Resolution.DETACHED)
    over, effects = _settle_held(state, event.now, Resolution.COOPERATIVE)
    return over, (TellLate(_ending(event)), *effects)


def _late_once_over(state: State, event: Done | EngineError) -> _Move:
    return state, (TellLate(_ending(event)),)


def _ending(event: Done | EngineError) -> str:
    return "done" if isinstance(event, Done) else "error"


_RUNNING: dict[type, Cell] = {
    Assigned: illegal,
    CancelAsked: _cancel_running,
    StopFound: illegal,
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
            StopFound: illegal,
            Done: illegal,
            EngineError: illegal,
            GraceMissed: illegal,
            WorkerLost: illegal,
            Released: illegal,
            Overflowed: illegal,
            QueueExpired: _expire,
            PoolLost: _pool_lost,
        },
        RequestState.DISPATCHED: {
            **_RUNNING,
            FirstOutput: _first_output,
            WorkerLost: _lost_without_output,
        },
        RequestState.STREAMING: {**_RUNNING, FirstOutput: illegal, StopFound: _stop},
        RequestState.CANCELLING: {
            Assigned: illegal,
            FirstOutput: _first_output_while_cancelling,
            CancelAsked: ignored,
            StopFound: ignored,
            Done: _done_while_cancelling,
            EngineError: _error_while_cancelling,
            GraceMissed: _grace_missed,
            WorkerLost: _lost_while_cancelling,
            Released: illegal,
            Overflowed: _overflow_while_cancelling,
            QueueExpired: ignored,
            PoolLost: ignored,
        },
        RequestState.STOPPING: {
            Assigned: illegal,
            FirstOutput: illegal,
            CancelAsked: ignored,
            StopFound: ignored,
            Done: _done_while_stopping,
            EngineError: _error_while_stopping,
            GraceMissed: _missed_while_stopping,
            WorkerLost: _lost_while_stopping,
            Released: illegal,
            Overflowed: ignored,
            QueueExpired: ignored,
            PoolLost: ignored,
        },
        RequestState.HELD: {
            Assigned: illegal,
            FirstOutput: ignored,
            CancelAsked: ignored,
            StopFound: ignored,
            Done: _end_of_held,
            EngineError: _end_of_held,
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
            StopFound: ignored,
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
