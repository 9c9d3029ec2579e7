"""The ladder for one worker: close, terminate, kill, reap.

A planned stop begins by closing stdin, the one orderly way for a worker to end; a condemned worker
begins with SIGTERM. Each rung has its grace; the process's exit ends the climb from any of them.
Then the process group and every descendant are killed *before* the leader is reaped, because
afterwards its group id may be somebody else's.

    up ──stop──► closing ──► terminating ──► killing ──► reaping ──► gone
     │                           ▲                          │
     └──────── condemned ────────┘                          └──► unreapable (tries on for ever)

Deadlines only move forward, and a timer that fires in another state than the one that armed it
changes nothing.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from supervisord_llm.core.effects import Arm, Elapsed
from supervisord_llm.core.table import Move, Table, ignored, illegal
from supervisord_llm.core.words import EscalationStage, Resolution


class Kind(StrEnum):
    """The rows of the table."""

    UP = "up"
    CLOSING = "closing"
    TERMINATING = "terminating"
    KILLING = "killing"
    REAPING = "reaping"
    UNREAPABLE = "unreapable"
    GONE = "gone"


class Timer(StrEnum):
    """What is waited for."""

    GRACE = "grace"


class Graces(msgspec.Struct, frozen=True):
    """How long each rung may take, in seconds."""

    terminate: float
    kill: float
    reap: float


class State(msgspec.Struct, frozen=True, kw_only=True):
    """One worker's teardown; times are seconds on the daemon's monotonic clock."""

    kind: Kind = Kind.UP
    graces: Graces
    began_at: float | None = None
    """When the first rung was taken."""
    killed: bool = False
    """Whether SIGKILL was needed while the process still ran."""
    exited: bool = False


class StopAsked(msgspec.Struct, frozen=True):
    """A planned stop of a worker that is fit."""

    now: float


class Condemned(msgspec.Struct, frozen=True):
    """The worker is unfit: no more asking. ``after`` is the rung that it failed, if any."""

    now: float
    after: EscalationStage | None = None


class Exited(msgspec.Struct, frozen=True):
    """The worker's process has ended; it is not reaped."""

    now: float


class Reaped(msgspec.Struct, frozen=True):
    """The exit status was taken and no descendant is left."""

    now: float


class CloseStdin(msgspec.Struct, frozen=True):
    """Let the worker see the end of its input."""


class Terminate(msgspec.Struct, frozen=True):
    """SIGTERM to the process, then to the rest of its group, then SIGCONT."""


class Kill(msgspec.Struct, frozen=True):
    """SIGKILL to the process group and to every descendant still alive."""


class Reap(msgspec.Struct, frozen=True):
    """Kill what is left of group and descendants, then take the exit status; answer `Reaped`."""


class TellEscalated(msgspec.Struct, frozen=True):
    """Announce that one rung did not help, or was skipped, and the next is taken."""

    from_: EscalationStage | None
    to: EscalationStage
    elapsed: float


class TellUnreapable(msgspec.Struct, frozen=True):
    """Announce that the process does not end although it was killed."""

    elapsed: float


Effect = CloseStdin | Terminate | Kill | Reap | TellEscalated | TellUnreapable | Arm
_Move = Move[State, Effect]


def resolution(state: State) -> Resolution:
    """How far the ladder had to be climbed, for the requests that the worker held."""
    if state.kind is Kind.UNREAPABLE:
        return Resolution.UNREAPABLE
    return Resolution.KILLED if state.killed else Resolution.TERMINATED


def _elapsed_since(state: State, now: float) -> float:
    return 0.0 if state.began_at is None else now - state.began_at


def _move(state: State, kind: Kind, now: float) -> State:
    began_at = now if state.began_at is None else state.began_at
    return msgspec.structs.replace(state, kind=kind, began_at=began_at)


def _close(state: State, event: StopAsked) -> _Move:
    closing = _move(state, Kind.CLOSING, event.now)
    return closing, (
        CloseStdin(),
        Arm(Timer.GRACE, event.now + state.graces.terminate, Kind.CLOSING),
    )


def _terminate(state: State, now: float, from_: EscalationStage | None) -> _Move:
    terminating = _move(state, Kind.TERMINATING, now)
    return terminating, (
        TellEscalated(from_, EscalationStage.TERMINATE, _elapsed_since(state, now)),
        Terminate(),
        Arm(Timer.GRACE, now + state.graces.terminate, Kind.TERMINATING),
    )


def _condemn(state: State, event: Condemned) -> _Move:
    return _terminate(state, event.now, event.after)


def _closing_elapsed(state: State, event: Elapsed) -> _Move:
    if event.armed_in is not Kind.CLOSING:
        return state, ()
    return _terminate(state, event.now, EscalationStage.COOPERATIVE)


def _terminating_elapsed(state: State, event: Elapsed) -> _Move:
    if event.armed_in is not Kind.TERMINATING:
        return state, ()
    killing = msgspec.structs.replace(_move(state, Kind.KILLING, event.now), killed=True)
    return killing, (
        TellEscalated(
            EscalationStage.TERMINATE, EscalationStage.KILL, _elapsed_since(state, event.now)
        ),
        Kill(),
        Arm(Timer.GRACE, event.now + state.graces.kill, Kind.KILLING),
    )


def _killing_elapsed(state: State, event: Elapsed) -> _Move:
    if event.armed_in is not Kind.KILLING:
        return state, ()
    reaping = _move(state, Kind.REAPING, event.now)
    return reaping, (
        TellEscalated(EscalationStage.KILL, EscalationStage.REAP, _elapsed_since(state, event.now)),
        Kill(),
        Arm(Timer.GRACE, event.now + state.graces.reap, Kind.REAPING),
    )


def _exited(state: State, event: Exited) -> _Move:
    reaping = msgspec.structs.replace(_move(state, Kind.REAPING, event.now), exited=True)
    return reaping, (
        Reap(),
        Arm(Timer.GRACE, event.now + state.graces.reap, Kind.REAPING),
    )


def _exited_late(state: State, _event: Exited) -> _Move:
    if state.exited:
        return state, ()
    return msgspec.structs.replace(state, exited=True), (Reap(),)


def _reaping_elapsed(state: State, event: Elapsed) -> _Move:
    if event.armed_in is not Kind.REAPING:
        return state, ()
    unreapable = _move(state, Kind.UNREAPABLE, event.now)
    return unreapable, (
        TellUnreapable(_elapsed_since(state, event.now)),
        Kill(),
        Arm(Timer.GRACE, event.now + state.graces.reap, Kind.UNREAPABLE),
    )


def _unreapable_elapsed(state: State, event: Elapsed) -> _Move:
    if event.armed_in is not Kind.UNREAPABLE:
        return state, ()
    return state, (Kill(), Arm(Timer.GRACE, event.now + state.graces.reap, Kind.UNREAPABLE))


def _gone(state: State, event: Reaped) -> _Move:
    if not state.exited:
        return illegal(state, event)  # type: ignore[no-any-return]
    return _move(state, Kind.GONE, event.now), ()


EVENTS: tuple[type, ...] = (StopAsked, Condemned, Exited, Reaped, Elapsed)

TABLE: Table[State, Effect] = Table(
    "escalation",
    Kind,
    EVENTS,
    {
        Kind.UP: {
            StopAsked: _close,
            Condemned: _condemn,
            Exited: _exited,
            Reaped: illegal,
            Elapsed: illegal,
        },
        Kind.CLOSING: {
            StopAsked: ignored,
            Condemned: _condemn,
            Exited: _exited,
            Reaped: illegal,
            Elapsed: _closing_elapsed,
        },
        Kind.TERMINATING: {
            StopAsked: ignored,
            Condemned: ignored,
            Exited: _exited,
            Reaped: illegal,
            Elapsed: _terminating_elapsed,
        },
        Kind.KILLING: {
            StopAsked: ignored,
            Condemned: ignored,
            Exited: _exited,
            Reaped: illegal,
            Elapsed: _killing_elapsed,
        },
        Kind.REAPING: {
            StopAsked: ignored,
            Condemned: ignored,
            Exited: _exited_late,
            Reaped: _gone,
            Elapsed: _reaping_elapsed,
        },
        Kind.UNREAPABLE: {
            StopAsked: ignored,
            Condemned: ignored,
            Exited: _exited_late,
            Reaped: _gone,
            Elapsed: _unreapable_elapsed,
        },
        Kind.GONE: {
            StopAsked: ignored,
            Condemned: ignored,
            Exited: illegal,
            Reaped: illegal,
            Elapsed: ignored,
        },
    },
)


def step(state: State, event: object) -> _Move:
    """The next state and the effects; see `supervisord_llm.core.table.Table.step`."""
    return TABLE.step(state, event)
