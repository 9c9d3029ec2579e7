"""A slot from spawn to reaped, backoff and parked: whether it takes work, and what comes next.

The machine knows one worker at a time, the slot's current generation, and never two: the next is
spawned only after the last one is gone. It does not climb the ladder itself (see `escalation`), it
only says when to begin; and it does not know requests, only how many are on the worker and whether
one is being cancelled.

    starting ──ready──► ready ◄──► busy ◄──► cancelling
        │                 └──────────┴──────────┴─ drain ──► draining ──gone──┐
        └─ condemned, or the process exits, from any of these ► quarantined ──gone──┤
    starting ◄── at once, or after backoff, or when resumed from parked/stopped ◄───┘

A quarantined worker never comes back: ``ReadyHeard`` and releases are heard and ignored there.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from supervisord_llm.core import restart
from supervisord_llm.core.effects import Arm, Elapsed
from supervisord_llm.core.table import Cell, Move, Table, ignored, illegal
from supervisord_llm.core.words import QuarantineReason, SlotState


class Timer(StrEnum):
    """What is waited for."""

    BACKOFF = "backoff"


class Next(StrEnum):
    """What follows once the worker is gone."""

    RESTART = "restart"
    """As the restart policy says."""
    START = "start"
    """At once: the replacement was asked for."""
    STOP = "stop"
    """Nothing: the slot was taken down on purpose."""


class State(msgspec.Struct, frozen=True, kw_only=True):
    """One slot; times are seconds on the daemon's monotonic clock."""

    kind: SlotState = SlotState.STOPPED
    policy: restart.Policy
    generation: int = 0
    capacity: int = 0
    in_flight: int = 0
    cancelling: int = 0
    ready_since: float | None = None
    reason: str | None = None
    next: Next = Next.RESTART
    history: restart.History = restart.History()
    restarts: int = 0
    next_start_at: float | None = None

    @property
    def takes_work(self) -> bool:
        """Whether a request may be assigned now."""
        serving = self.kind in (SlotState.READY, SlotState.BUSY)
        return serving and self.in_flight < self.capacity


class StartAsked(msgspec.Struct, frozen=True):
    """The pool, or an operator, wants the slot up."""

    now: float


class SpawnFailed(msgspec.Struct, frozen=True):
    """No process could be started; ``roll`` is a random number from 0 to 1."""

    now: float
    roll: float


class ReadyHeard(msgspec.Struct, frozen=True):
    """The worker's model is loaded; it takes ``capacity`` requests at a time."""

    now: float
    capacity: int


class Assigned(msgspec.Struct, frozen=True):
    """A request went to the worker."""

    now: float


class Released(msgspec.Struct, frozen=True):
    """The worker's terminal for one request was heard."""

    now: float
    was_cancelling: bool


class CancelBegan(msgspec.Struct, frozen=True):
    """One of the worker's requests is being cancelled."""

    now: float


class Condemned(msgspec.Struct, frozen=True):
    """The worker was judged unfit."""

    now: float
    reason: QuarantineReason


class ExitSeen(msgspec.Struct, frozen=True):
    """The worker's process has ended; nobody had asked it to, unless the slot was draining."""

    now: float


class Gone(msgspec.Struct, frozen=True):
    """The worker is reaped with all its descendants; ``roll`` is a random number from 0 to 1."""

    now: float
    roll: float


class DrainAsked(msgspec.Struct, frozen=True):
    """Finish what is there, then stop (``then=STOP``) or start anew (``then=START``)."""

    now: float
    then: Next
    reason: str


class Spawn(msgspec.Struct, frozen=True):
    """Start this generation's process; answer `SpawnFailed` if there is none."""

    generation: int


class StopWorker(msgspec.Struct, frozen=True):
    """Begin the ladder: by closing stdin, or (not ``gently``) by SIGTERM."""

    gently: bool


class ExitedWorker(msgspec.Struct, frozen=True):
    """Tell the ladder that the process has ended by itself."""


class TellQuarantined(msgspec.Struct, frozen=True):
    """Announce that the worker was judged unfit, and answer for the requests on it."""

    reason: QuarantineReason


class TellRestart(msgspec.Struct, frozen=True):
    """Announce when the next generation starts."""

    attempt: int
    delay: float
    reason: str


class TellParked(msgspec.Struct, frozen=True):
    """Announce that the slot stays down."""

    restarts: int
    reason: str


class TellResumed(msgspec.Struct, frozen=True):
    """Announce that an operator brought the slot back."""


class Offer(msgspec.Struct, frozen=True):
    """The slot may take work: let the pool look at its queue."""


class TellDown(msgspec.Struct, frozen=True):
    """The slot is parked or stopped: let the pool see whether anybody can still serve."""


Effect = (
    Spawn
    | StopWorker
    | ExitedWorker
    | TellQuarantined
    | TellRestart
    | TellParked
    | TellResumed
    | Offer
    | TellDown
    | Arm
)
_Move = Move[State, Effect]
_replace = msgspec.structs.replace


def _load(state: State) -> State:
    """The state that the work on a fit worker amounts to.

    A worker of a serial dialect with a cancellation under way takes nothing; a multiplexed one goes
    on taking work, and the cancellation is a fact of the request.
    """
    if state.in_flight == 0:
        kind = SlotState.READY
    elif state.cancelling and state.capacity == 1:
        kind = SlotState.CANCELLING
    else:
        kind = SlotState.BUSY
    return _replace(state, kind=kind)


def _down(
    state: State, kind: SlotState, reason: str | None, next_start_at: float | None = None
) -> State:
    """The state without a worker."""
    idle = _replace(state, in_flight=0, cancelling=0, capacity=0)
    return _replace(idle, kind=kind, reason=reason, next_start_at=next_start_at)


def _spawn(state: State, *, reason: str | None) -> _Move:
    generation = state.generation + 1
    idle = _down(state, SlotState.STARTING, reason)
    starting = _replace(idle, generation=generation, ready_since=None, next=Next.RESTART)
    return starting, (Spawn(generation),)


def _start(state: State, _event: StartAsked) -> _Move:
    return _spawn(state, reason=None)


def _resume(state: State, _event: object) -> _Move:
    fresh = _replace(state, history=restart.History())
    starting, effects = _spawn(fresh, reason=None)
    return starting, (TellResumed(), *effects)


def _restart(state: State, now: float, roll: float, reason: str) -> _Move:
    history, decision = restart.decide(
        state.history, now, state.policy, ready_since=state.ready_since, roll=roll
    )
    counted = _replace(state, history=history)
    if isinstance(decision, restart.Park):
        parked = _down(counted, SlotState.PARKED, reason)
        return parked, (TellParked(decision.restarts, reason), TellDown())
    counted = _replace(counted, restarts=counted.restarts + 1)
    delay = decision.delay if isinstance(decision, restart.Wait) else 0.0
    told = TellRestart(decision.attempt, delay, reason)
    if isinstance(decision, restart.Start):
        starting, effects = _spawn(counted, reason=reason)
        return starting, (told, *effects)
    start_at = now + delay
    waiting = _down(counted, SlotState.BACKOFF, reason, start_at)
    return waiting, (told, Arm(Timer.BACKOFF, start_at, SlotState.BACKOFF))


def _stopped(state: State, reason: str | None) -> _Move:
    return _down(state, SlotState.STOPPED, reason), (TellDown(),)


def _spawn_failed(state: State, event: SpawnFailed) -> _Move:
    return _restart(state, event.now, event.roll, "spawn_failed")


def _ready(state: State, event: ReadyHeard) -> _Move:
    ready = _replace(
        state,
        kind=SlotState.READY,
        capacity=event.capacity,
        ready_since=event.now,
        reason=None,
    )
    return ready, (Offer(),)


def _assigned(state: State, event: Assigned) -> _Move:
    if not state.takes_work:
        return illegal(state, event)  # type: ignore[no-any-return]
    return _load(_replace(state, in_flight=state.in_flight + 1)), ()


def _counted(state: State, event: object, in_flight: int, cancelling: int) -> State:
    # A miscount would let the slot wait for ever for a request that it does not have.
    if not 0 <= cancelling <= in_flight:
        illegal(state, event)
    return _replace(state, in_flight=in_flight, cancelling=cancelling)


def _less(state: State, event: Released) -> State:
    cancelling = state.cancelling - (1 if event.was_cancelling else 0)
    return _counted(state, event, state.in_flight - 1, cancelling)


def _released(state: State, event: Released) -> _Move:
    return _load(_less(state, event)), (Offer(),)


def _released_draining(state: State, event: Released) -> _Move:
    less = _less(state, event)
    return less, (StopWorker(gently=True),) if less.in_flight == 0 else ()


def _cancel_began(state: State, event: CancelBegan) -> _Move:
    return _load(_counted(state, event, state.in_flight, state.cancelling + 1)), ()


def _cancel_began_draining(state: State, event: CancelBegan) -> _Move:
    return _counted(state, event, state.in_flight, state.cancelling + 1), ()


def _condemn(state: State, event: Condemned) -> _Move:
    quarantined = _replace(state, kind=SlotState.QUARANTINED, reason=event.reason.value)
    # What an operator asks for is no failure, and must not park the slot.
    if event.reason is QuarantineReason.OPERATOR and state.next is Next.RESTART:
        quarantined = _replace(quarantined, next=Next.START)
    return quarantined, (TellQuarantined(event.reason), StopWorker(gently=False))


def _exit_seen(state: State, _event: ExitSeen) -> _Move:
    reason = QuarantineReason.UNEXPECTED_EXIT
    quarantined = _replace(state, kind=SlotState.QUARANTINED, reason=reason.value)
    return quarantined, (TellQuarantined(reason), ExitedWorker())


def _exit_seen_draining(state: State, event: ExitSeen) -> _Move:
    # With work on it the exit was not the one that was asked for.
    if state.in_flight:
        return _exit_seen(state, event)
    return state, (ExitedWorker(),)


def _exit_seen_quarantined(state: State, _event: ExitSeen) -> _Move:
    return state, (ExitedWorker(),)


def _gone(state: State, event: Gone) -> _Move:
    if state.next is Next.STOP:
        return _stopped(state, state.reason)
    if state.next is Next.START:
        return _spawn(state, reason=state.reason)
    return _restart(state, event.now, event.roll, state.reason or "unknown")


def _drain(state: State, event: DrainAsked) -> _Move:
    draining = _replace(state, kind=SlotState.DRAINING, reason=event.reason, next=event.then)
    if state.in_flight:
        return draining, ()
    # A worker that loads has nothing to finish and does not read its stdin yet.
    return draining, (StopWorker(gently=state.kind is not SlotState.STARTING),)


def _resume_draining(state: State, _event: StartAsked) -> _Move:
    # With work on it the stop has not begun; without, the worker is on its way out already.
    if state.in_flight:
        back = _load(_replace(state, next=Next.RESTART, reason=None))
        return back, (TellResumed(), Offer()) if back.takes_work else (TellResumed(),)
    return _replace(state, next=Next.START), (TellResumed(),)


def _drain_again(state: State, event: DrainAsked) -> _Move:
    # An operator's stop wins over a replacement.
    if state.next is Next.STOP:
        return state, ()
    return _replace(state, next=event.then), ()


def _drain_down(state: State, event: DrainAsked) -> _Move:
    if event.then is Next.STOP:
        return _stopped(state, event.reason)
    return _resume(state, event)


def _drain_stopped(state: State, event: DrainAsked) -> _Move:
    return (state, ()) if event.then is Next.STOP else _resume(state, event)


def _drain_backoff(state: State, event: DrainAsked) -> _Move:
    if event.then is Next.STOP:
        return _stopped(state, event.reason)
    return _spawn(state, reason=event.reason)


def _backoff_elapsed(state: State, event: Elapsed) -> _Move:
    if state.next_start_at is None or event.now < state.next_start_at:
        return state, ()
    return _spawn(state, reason=state.reason)


EVENTS: tuple[type, ...] = (
    StartAsked,
    SpawnFailed,
    ReadyHeard,
    Assigned,
    Released,
    CancelBegan,
    Condemned,
    ExitSeen,
    Gone,
    DrainAsked,
    Elapsed,
)

_SERVING: dict[type, Cell] = {
    StartAsked: ignored,
    SpawnFailed: illegal,
    ReadyHeard: illegal,
    Assigned: _assigned,
    Released: _released,
    CancelBegan: _cancel_began,
    Condemned: _condemn,
    ExitSeen: _exit_seen,
    Gone: illegal,
    DrainAsked: _drain,
    Elapsed: ignored,
}
_DOWN: dict[type, Cell] = {
    SpawnFailed: illegal,
    ReadyHeard: illegal,
    Assigned: illegal,
    Released: illegal,
    CancelBegan: illegal,
    Condemned: ignored,
    ExitSeen: illegal,
    Gone: illegal,
}

TABLE: Table[State, Effect] = Table(
    "slot",
    SlotState,
    EVENTS,
    {
        SlotState.STARTING: {
            **_SERVING,
            SpawnFailed: _spawn_failed,
            ReadyHeard: _ready,
            Assigned: illegal,
            Released: illegal,
            CancelBegan: illegal,
        },
        SlotState.READY: {**_SERVING, Released: illegal, CancelBegan: illegal},
        SlotState.BUSY: _SERVING,
        SlotState.CANCELLING: {**_SERVING, Assigned: illegal, CancelBegan: illegal},
        SlotState.DRAINING: {
            StartAsked: _resume_draining,
            SpawnFailed: illegal,
            ReadyHeard: ignored,
            Assigned: illegal,
            Released: _released_draining,
            CancelBegan: _cancel_began_draining,
            Condemned: _condemn,
            ExitSeen: _exit_seen_draining,
            Gone: _gone,
            DrainAsked: _drain_again,
            Elapsed: ignored,
        },
        SlotState.QUARANTINED: {
            StartAsked: ignored,
            SpawnFailed: illegal,
            ReadyHeard: ignored,
            Assigned: illegal,
            Released: ignored,
            CancelBegan: ignored,
            Condemned: ignored,
            ExitSeen: _exit_seen_quarantined,
            Gone: _gone,
            DrainAsked: _drain_again,
            Elapsed: ignored,
        },
        SlotState.BACKOFF: {
            **_DOWN,
            StartAsked: _start,
            DrainAsked: _drain_backoff,
            Elapsed: _backoff_elapsed,
        },
        SlotState.PARKED: {
            **_DOWN,
            StartAsked: _resume,
            DrainAsked: _drain_down,
            Elapsed: ignored,
        },
        SlotState.STOPPED: {
            **_DOWN,
            StartAsked: _start,
            DrainAsked: _drain_stopped,
            Elapsed: ignored,
        },
    },
)


def step(state: State, event: object) -> _Move:
    """The next state and the effects; see `supervisord_llm.core.table.Table.step`."""
    return TABLE.step(state, event)
