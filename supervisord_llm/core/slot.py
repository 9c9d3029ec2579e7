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

import msgspec

from supervisord_llm.core import restart
from supervisord_llm.core.effects import Arm, Elapsed
from supervisord_llm.core.slot_events import (
    EVENTS,
    Assigned,
    Blamed,
    CancelBegan,
    Condemned,
    DrainAsked,
    Effect,
    ExitedWorker,
    ExitSeen,
    Gone,
    Next,
    Offer,
    ParkedBefore,
    ReadyHeard,
    Released,
    Spawn,
    SpawnFailed,
    StartAsked,
    StopWorker,
    TellDown,
    TellParked,
    TellQuarantined,
    TellRestart,
    TellResumed,
    Timer,
)
from supervisord_llm.core.table import Cell, Move, Table, ignored, illegal
from supervisord_llm.core.words import QuarantineReason, SlotState

__all__ = [
    "EVENTS",
    "TABLE",
    "Assigned",
    "Blamed",
    "CancelBegan",
    "Condemned",
    "DrainAsked",
    "Effect",
    "ExitSeen",
    "ExitedWorker",
    "Gone",
    "Next",
    "Offer",
    "ParkedBefore",
    "ReadyHeard",
    "Released",
    "Spawn",
    "SpawnFailed",
    "StartAsked",
    "State",
    "StopWorker",
    "TellDown",
    "TellParked",
    "TellQuarantined",
    "TellRestart",
    "TellResumed",
    "Timer",
    "step",
]


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
    stop_reason: str | None = None
    """Why it is to stop, once its worker is gone."""
    history: restart.History = restart.History()
    restarts: int = 0
    next_start_at: float | None = None

    @property
    def takes_work(self) -> bool:
        """Whether a request may be assigned now."""
        serving = self.kind in (SlotState.READY, SlotState.BUSY)
        return serving and self.in_flight < self.capacity


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
    idle = _replace(state, in_flight=0, cancelling=0, capacity=0, stop_reason=None)
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
    decided = restart.decide(
        state.history, now, state.policy, ready_since=state.ready_since, roll=roll
    )
    return _follow(state, now, reason, *decided)


def _follow(
    state: State, now: float, reason: str, history: restart.History, decision: restart.Decision
) -> _Move:
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
        return _stopped(state, state.stop_reason)
    if state.next is Next.START:
        return _spawn(state, reason=state.reason)
    reason = state.reason or "unknown"
    if event.charged:
        return _restart(state, event.now, event.roll, reason)
    decided = restart.decide_uncharged(state.history, event.now, state.policy)
    return _follow(state, event.now, reason, *decided)


def _blamed(state: State, event: Blamed) -> _Move:
    return _replace(state, history=restart.blame(state.history, event.at)), ()


def _parked_before(state: State, event: ParkedBefore) -> _Move:
    counted = _replace(state, restarts=event.restarts)
    return _down(counted, SlotState.PARKED, event.reason), (TellDown(),)


def _then(state: State, event: DrainAsked) -> State:
    """The state with what is to follow once the worker is gone; the newest wish counts.

    But for one: a stop, once asked for, is not undone by a replacement.
    """
    if event.then is Next.STOP:
        return _replace(state, next=Next.STOP, stop_reason=event.reason)
    if state.next is Next.STOP:
        return state
    return _replace(state, next=event.then)


def _drain(state: State, event: DrainAsked) -> _Move:
    draining = _replace(_then(state, event), kind=SlotState.DRAINING, reason=event.reason)
    if state.in_flight:
        return draining, ()
    # A worker that loads has nothing to finish and does not read its stdin yet.
    return draining, (StopWorker(gently=state.kind is not SlotState.STARTING),)


def _resume_draining(state: State, _event: StartAsked) -> _Move:
    # With work on it the stop has not begun; without, the worker is on its way out already.
    if state.in_flight:
        back = _load(_replace(state, next=Next.RESTART, reason=None, stop_reason=None))
        return back, (TellResumed(), Offer()) if back.takes_work else (TellResumed(),)
    return _replace(state, next=Next.START, stop_reason=None), (TellResumed(),)


def _resume_quarantined(state: State, _event: StartAsked) -> _Move:
    if state.next is not Next.STOP:
        return state, ()
    by_operator = state.reason == QuarantineReason.OPERATOR
    next_ = Next.START if by_operator else Next.RESTART
    return _replace(state, next=next_, stop_reason=None), (TellResumed(),)


def _drain_again(state: State, event: DrainAsked) -> _Move:
    then = _then(state, event)
    return (then if then is state else _replace(then, reason=event.reason)), ()


def _drain_quarantined(state: State, event: DrainAsked) -> _Move:
    # Why it is unfit remains to be said until it is gone.
    return _then(state, event), ()


def _drain_down(state: State, event: DrainAsked) -> _Move:
    if event.then is Next.STOP:
        # Whoever takes a parked slot down has seen why; its next start is judged afresh.
        return _stopped(_replace(state, history=restart.History()), event.reason)
    return _resume(state, event)


def _drain_stopped(state: State, event: DrainAsked) -> _Move:
    if event.then is Next.STOP:
        return _replace(state, reason=event.reason), ()
    return _resume(state, event)


def _drain_backoff(state: State, event: DrainAsked) -> _Move:
    if event.then is Next.STOP:
        return _stopped(state, event.reason)
    return _spawn(state, reason=event.reason)


def _backoff_elapsed(state: State, event: Elapsed) -> _Move:
    if state.next_start_at is None or event.now < state.next_start_at:
        return state, ()
    return _spawn(state, reason=state.reason)


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
    Blamed: _blamed,
    ParkedBefore: illegal,
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
    Blamed: _blamed,
    ParkedBefore: illegal,
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
            Blamed: _blamed,
            ParkedBefore: illegal,
            DrainAsked: _drain_again,
            Elapsed: ignored,
        },
        SlotState.QUARANTINED: {
            StartAsked: _resume_quarantined,
            SpawnFailed: illegal,
            ReadyHeard: ignored,
            Assigned: illegal,
            Released: ignored,
            CancelBegan: ignored,
            Condemned: ignored,
            ExitSeen: _exit_seen_quarantined,
            Gone: _gone,
            Blamed: _blamed,
            ParkedBefore: illegal,
            DrainAsked: _drain_quarantined,
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
            ParkedBefore: _parked_before,
            DrainAsked: _drain_stopped,
            Elapsed: ignored,
        },
    },
)


def step(state: State, event: object) -> _Move:
    """The next state and the effects; see `supervisord_llm.core.table.Table.step`."""
    return TABLE.step(state, event)
