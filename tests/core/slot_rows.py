"""States and expectations of which the golden table of the slot is made."""

from __future__ import annotations

import msgspec

from supervisord_llm.core.effects import Arm, Elapsed
from supervisord_llm.core.restart import History, Policy
from supervisord_llm.core.slot import (
    Assigned,
    Blamed,
    CancelBegan,
    Condemned,
    DrainAsked,
    ExitSeen,
    Gone,
    Next,
    ParkedBefore,
    ReadyHeard,
    Released,
    Spawn,
    SpawnFailed,
    StartAsked,
    State,
    StopWorker,
    TellDown,
    TellParked,
    TellRestart,
    Timer,
)
from supervisord_llm.core.words import QuarantineReason, SlotState
from tests.core.golden import Expected, goes, stays

NOW = 1000.0
ROLL = 0.5
"""The middle of the jitter: delays are the plain ones."""
POLICY = Policy(
    backoff_initial=1.0,
    backoff_max=60.0,
    jitter=0.2,
    healthy_after=30.0,
    max_restarts=3,
    restart_window=600.0,
)
ONE_FAILURE = History(failures=(900.0,), streak=1)
TWO_FAILURES = History(failures=(900.0, 950.0), streak=2)
THREE_FAILURES = History(failures=(900.0, 925.0, 950.0), streak=3)
STALL = QuarantineReason.TOKEN_STALL
EXIT = QuarantineReason.UNEXPECTED_EXIT

START, SPAWN_FAILED = StartAsked(NOW), SpawnFailed(NOW, ROLL)
READY, ASSIGNED = ReadyHeard(NOW, 2), Assigned(NOW)
RELEASED, RELEASED_CANCELLED = (
    Released(NOW, was_cancelling=False),
    Released(NOW, was_cancelling=True),
)
CANCEL, CONDEMNED = CancelBegan(NOW), Condemned(NOW, STALL)
REMOVED = Condemned(NOW, QuarantineReason.OPERATOR)
EXIT_SEEN, GONE, GONE_INNOCENT = ExitSeen(NOW), Gone(NOW, ROLL), Gone(NOW, ROLL, charged=False)
BLAMED, PARKED_BEFORE = Blamed(NOW, 925.0), ParkedBefore(NOW, "load_timeout", 7)
RELOAD, STOP = DrainAsked(NOW, Next.START, "reload"), DrainAsked(NOW, Next.STOP, "shutdown")
ELAPSED = Elapsed(Timer.BACKOFF, SlotState.BACKOFF, NOW)
GENTLY, HARD = StopWorker(gently=True), StopWorker(gently=False)


def state(kind: SlotState, **facts: object) -> State:
    """A slot in its third generation, with these facts besides."""
    plain = State(kind=kind, policy=POLICY, generation=3, history=ONE_FAILURE, restarts=2)
    return msgspec.structs.replace(plain, **facts)


def serving(
    kind: SlotState, *, capacity: int, in_flight: int = 0, cancelling: int = 0, **facts: object
) -> State:
    """A slot whose worker became ready ten seconds ago."""
    return state(
        kind,
        capacity=capacity,
        in_flight=in_flight,
        cancelling=cancelling,
        ready_since=990.0,
        **facts,
    )


def spawns(*first: object, reason: str | None, **changes: object) -> Expected:
    """The next generation, which begins with nothing but the slot's history."""
    fresh: dict[str, object] = {
        "generation": 4,
        "capacity": 0,
        "in_flight": 0,
        "cancelling": 0,
        "ready_since": None,
        "reason": reason,
        "next": Next.RESTART,
        "stop_reason": None,
        "next_start_at": None,
    }
    return goes(SlotState.STARTING, *first, Spawn(4), **(fresh | changes))


def waits(attempt: int, delay: float, reason: str, *failures: float) -> Expected:
    """The next generation is due after ``delay``; this is the ``attempt``-th failure in a row."""
    return goes(
        SlotState.BACKOFF,
        TellRestart(attempt, delay, reason),
        Arm(Timer.BACKOFF, NOW + delay, SlotState.BACKOFF),
        reason=reason,
        in_flight=0,
        cancelling=0,
        capacity=0,
        next_start_at=NOW + delay,
        restarts=3,
        history=History(failures=(*failures, NOW), streak=attempt),
    )


def parks(reason: str) -> Expected:
    """One failure too many."""
    return goes(
        SlotState.PARKED,
        TellParked(4, reason),
        TellDown(),
        reason=reason,
        in_flight=0,
        cancelling=0,
        capacity=0,
        history=History(failures=(*THREE_FAILURES.failures, NOW), streak=4),
    )


def stops(reason: str, **changes: object) -> Expected:
    """Down on purpose."""
    return goes(
        SlotState.STOPPED,
        TellDown(),
        reason=reason,
        in_flight=0,
        cancelling=0,
        capacity=0,
        stop_reason=None,
        next_start_at=None,
        **changes,
    )


def drains(*effects: object, event: DrainAsked) -> Expected:
    """No more work from here on."""
    stop = event.reason if event.then is Next.STOP else None
    return goes(
        SlotState.DRAINING, *effects, reason=event.reason, next=event.then, stop_reason=stop
    )


def blamed(*failures: float) -> dict[object, Expected]:
    """One failure more among these, and nothing else."""
    history = History(failures=(*failures, 925.0), streak=len(failures))
    return {BLAMED: stays(history=history)}


def idle_or_busy(kind: SlotState, in_flight: int, cancelling: int, *effects: object) -> Expected:
    """The work on the worker has changed."""
    return goes(kind, *effects, in_flight=in_flight, cancelling=cancelling)
