"""The cooperative rung: one request on one worker is asked to stop.

The cancel frame is written again and again until the worker's terminal comes, because repeating it
is harmless to a worker and closes every window in which a single frame can be lost. Two deadlines
run from the asking. At the first the client is answered without the worker. At the second the
worker is condemned; it is later than the first only where a worker cannot be interrupted in its
prefill, so that a legal prefill does not cost the loaded model. Once such a worker decodes it has
the ordinary grace from there.

    asked ──answer deadline──► holding ──hold deadline──► over (condemned)
      │                           │
      └──── terminal, or the worker is gone ────► over

A worker that cannot be cancelled is not asked, and its client is answered at once. Where it is to
be torn down, it starts and ends in ``over``, condemned. Where it is to be left alone, because to
load another would take longer, it is ``detached``: it may end the request by itself, and is
condemned only if that takes it longer than `Terms.detach_timeout`.

    detached ──terminal, or the worker is gone──► over
        └──────── detach deadline ──► over (condemned)
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import msgspec

from supervisord_llm.core.effects import Arm, Elapsed
from supervisord_llm.core.table import Move, Table, ignored
from supervisord_llm.core.words import AnsweredBy, QuarantineReason

Fate = Literal["terminate", "detach"]
"""What becomes of a worker that cannot be cancelled when its request is."""


class Kind(StrEnum):
    """The rows of the table."""

    ASKED = "asked"
    HOLDING = "holding"
    DETACHED = "detached"
    OVER = "over"


class Timer(StrEnum):
    """What is waited for."""

    RESEND = "resend"
    ANSWER = "answer"
    HOLD = "hold"
    DETACH = "detach"


class Terms(msgspec.Struct, frozen=True):
    """The pool's graces and the worker's abilities; durations in seconds."""

    cooperative_grace: float
    prefill_grace: float
    cancellable: bool
    """Whether the worker takes cancel frames, and the pool wants them written."""
    interruptible_prefill: bool
    resend_every: float = 0.2
    """Source of the figure: frames are idempotent, and a lost one costs a tenth of the grace."""
    on_uncancellable: Fate = "terminate"
    detach_timeout: float = 300.0
    """How long a detached worker may take to end the request by itself."""


class State(msgspec.Struct, frozen=True, kw_only=True):
    """One cancellation; times are seconds on the daemon's monotonic clock."""

    kind: Kind
    terms: Terms
    asked_at: float
    hold_at: float
    """When the worker is condemned; a `Timer.HOLD` that was armed for an earlier time is inert."""
    patient: bool = False
    """Whether ``hold_at`` allows for a prefill that cannot be interrupted."""
    delivered: bool = False


class FrameTaken(msgspec.Struct, frozen=True):
    """The worker's control pipe took a whole frame."""

    now: float


class PipeBroken(msgspec.Struct, frozen=True):
    """The control pipe took part of a frame, or failed: no frame can be trusted any more."""

    now: float


class Decoding(msgspec.Struct, frozen=True):
    """The worker has left its prefill; only the first word of it moves a deadline."""

    now: float


class Terminal(msgspec.Struct, frozen=True):
    """The worker ended the request, in whichever way."""

    now: float


class WorkerGone(msgspec.Struct, frozen=True):
    """The worker was condemned for another reason, or exited."""

    now: float


class WriteFrame(msgspec.Struct, frozen=True):
    """Write the cancel frame to the worker's control pipe."""


class Answer(msgspec.Struct, frozen=True):
    """Answer the client now; the worker has not reacted, or has not been asked."""

    by: AnsweredBy = AnsweredBy.GRACE


class Condemn(msgspec.Struct, frozen=True):
    """The worker is unfit; tear it down."""

    reason: QuarantineReason


class TellDelivered(msgspec.Struct, frozen=True):
    """Announce that the first frame was taken."""

    elapsed: float


Effect = WriteFrame | Answer | Condemn | TellDelivered | Arm
_Move = Move[State, Effect]


def begin(now: float, terms: Terms, *, decoding: bool) -> _Move:
    """Start cancelling; ``decoding`` says whether the worker has left the request's prefill."""
    if not terms.cancellable and terms.on_uncancellable == "detach":
        until = now + terms.detach_timeout
        left = State(kind=Kind.DETACHED, terms=terms, asked_at=now, hold_at=until)
        return left, (Answer(AnsweredBy.DETACH), Arm(Timer.DETACH, until, Kind.DETACHED))
    if not terms.cancellable:
        over = State(kind=Kind.OVER, terms=terms, asked_at=now, hold_at=now)
        return over, (Answer(), Condemn(QuarantineReason.UNCANCELLABLE))
    answer_at = now + terms.cooperative_grace
    patient = not decoding and not terms.interruptible_prefill
    hold_at = max(answer_at, now + terms.prefill_grace) if patient else answer_at
    state = State(kind=Kind.ASKED, terms=terms, asked_at=now, hold_at=hold_at, patient=patient)
    return state, (
        WriteFrame(),
        Arm(Timer.RESEND, now + terms.resend_every, Kind.ASKED),
        Arm(Timer.ANSWER, answer_at, Kind.ASKED),
        Arm(Timer.HOLD, hold_at, Kind.ASKED),
    )


def choose(
    wanted: Fate | Literal["auto"], *, reload_seconds: float | None, remaining_seconds: float | None
) -> Fate:
    """What is to become of a worker that cannot be cancelled, for `Terms.on_uncancellable`.

    With ``"auto"`` it is torn down only where that is known to be the shorter wait for the slot.
    What is not known yet is no reason to give up a loaded model: `Terms.detach_timeout` bounds the
    wait.

    Args:
        wanted: what the pool's configuration says.
        reload_seconds: how long tearing down and loading took before; ``None`` if not observed.
        remaining_seconds: how long the generation would still take, see `remaining`; ``None`` if
            that cannot be told.
    """
    if wanted != "auto":
        return wanted
    if reload_seconds is None or remaining_seconds is None:
        return "detach"
    return "terminate" if reload_seconds < remaining_seconds else "detach"


def remaining(tokens_left: int | None, seconds_per_token: float | None) -> float | None:
    """How many seconds a generation would still take at most; ``None`` if that cannot be told.

    Args:
        tokens_left: how many tokens it may still produce; ``None`` if it has no limit.
        seconds_per_token: at which pace; ``None`` if it has not been observed.
    """
    if tokens_left is None or seconds_per_token is None:
        return None
    return max(0, tokens_left) * seconds_per_token


def _over(state: State) -> State:
    return msgspec.structs.replace(state, kind=Kind.OVER)


def _end(state: State, _event: object) -> _Move:
    return _over(state), ()


def _taken(state: State, event: FrameTaken) -> _Move:
    if state.delivered:
        return state, ()
    delivered = msgspec.structs.replace(state, delivered=True)
    return delivered, (TellDelivered(event.now - state.asked_at),)


def _resend(state: State, now: float) -> _Move:
    return state, (
        WriteFrame(),
        Arm(Timer.RESEND, now + state.terms.resend_every, state.kind),
    )


def _elapsed_asked(state: State, event: Elapsed) -> _Move:
    if event.timer is Timer.RESEND:
        return _resend(state, event.now)
    if event.timer is Timer.ANSWER:
        # The frames of the new state need a timer of its own: the old one is inert there.
        holding = msgspec.structs.replace(state, kind=Kind.HOLDING)
        return holding, (
            Answer(),
            Arm(Timer.RESEND, event.now + state.terms.resend_every, Kind.HOLDING),
        )
    if event.now < state.hold_at:
        return state, ()
    return _over(state), (Answer(), Condemn(QuarantineReason.CANCEL_GRACE_MISSED))


def _elapsed_holding(state: State, event: Elapsed) -> _Move:
    if event.timer is Timer.HOLD:
        # Armed while asked, and meant to outlive it: the hold is the one deadline of both states.
        if event.now < state.hold_at:
            return state, ()
        return _over(state), (Condemn(QuarantineReason.CANCEL_GRACE_MISSED),)
    if event.armed_in is not Kind.HOLDING:
        return state, ()
    return _resend(state, event.now)


def _elapsed_detached(state: State, event: Elapsed) -> _Move:
    if event.timer is not Timer.DETACH:
        return state, ()
    return _over(state), (Condemn(QuarantineReason.UNCANCELLABLE),)


def _broken_asked(state: State, _event: PipeBroken) -> _Move:
    return _over(state), (Answer(), Condemn(QuarantineReason.CONTROL_PIPE_BROKEN))


def _broken_holding(state: State, _event: PipeBroken) -> _Move:
    return _over(state), (Condemn(QuarantineReason.CONTROL_PIPE_BROKEN),)


def _decoding(state: State, event: Decoding) -> _Move:
    # Said again, it must not put off the end of a worker that goes on and on.
    if not state.patient:
        return state, ()
    hold_at = event.now + state.terms.cooperative_grace
    decoding = msgspec.structs.replace(state, hold_at=hold_at, patient=False)
    return decoding, (Arm(Timer.HOLD, hold_at, state.kind),)


EVENTS: tuple[type, ...] = (
    FrameTaken,
    PipeBroken,
    Decoding,
    Terminal,
    WorkerGone,
    Elapsed,
)

TABLE: Table[State, Effect] = Table(
    "cancellation",
    Kind,
    EVENTS,
    {
        Kind.ASKED: {
            FrameTaken: _taken,
            PipeBroken: _broken_asked,
            Decoding: _decoding,
            Terminal: _end,
            WorkerGone: _end,
            Elapsed: _elapsed_asked,
        },
        Kind.HOLDING: {
            FrameTaken: _taken,
            PipeBroken: _broken_holding,
            Decoding: _decoding,
            Terminal: _end,
            WorkerGone: _end,
            Elapsed: _elapsed_holding,
        },
        # No frame is written to a detached worker, so nothing that its pipe does says anything.
        Kind.DETACHED: {
            FrameTaken: ignored,
            PipeBroken: ignored,
            Decoding: ignored,
            Terminal: _end,
            WorkerGone: _end,
            Elapsed: _elapsed_detached,
        },
        Kind.OVER: {
            FrameTaken: ignored,
            PipeBroken: ignored,
            Decoding: ignored,
            Terminal: ignored,
            WorkerGone: ignored,
            Elapsed: ignored,
        },
    },
)


def step(state: State, event: object) -> _Move:
    """The next state and the effects; see `supervisord_llm.core.table.Table.step`."""
    return TABLE.step(state, event)
