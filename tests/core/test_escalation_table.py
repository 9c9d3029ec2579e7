"""The golden table of the ladder."""

from __future__ import annotations

from supervisord_llm.core import escalation
from supervisord_llm.core.effects import Arm, Elapsed
from supervisord_llm.core.escalation import (
    CloseStdin,
    Condemned,
    Exited,
    Graces,
    Kill,
    Kind,
    Reap,
    Reaped,
    State,
    StopAsked,
    TellEscalated,
    TellUnreapable,
    Terminate,
    Timer,
)
from supervisord_llm.core.words import EscalationStage
from tests.core.golden import Sample, cannot, differences, goes, ignores, stays, unexamined

BEGAN, NOW = 96.0, 100.0
GRACES = Graces(terminate=3.0, kill=2.0, reap=5.0)
STOP = StopAsked(NOW)
CONDEMNED = Condemned(NOW)
CONDEMNED_AFTER_ASKING = Condemned(NOW, EscalationStage.COOPERATIVE)
EXITED = Exited(NOW)
REAPED = Reaped(NOW)
COOPERATIVE, TERMINATE = EscalationStage.COOPERATIVE, EscalationStage.TERMINATE
KILL, REAP = EscalationStage.KILL, EscalationStage.REAP


def elapsed(armed_in: Kind) -> Elapsed:
    """The grace that was armed in this state is over."""
    return Elapsed(Timer.GRACE, armed_in, NOW)


def elapsed_elsewhere(kind: Kind) -> tuple[Elapsed, ...]:
    """The graces of all other states, which come late."""
    return tuple(elapsed(other) for other in Kind if other is not kind)


def arm(after: float, kind: Kind) -> Arm:
    """A grace armed now."""
    return Arm(Timer.GRACE, NOW + after, kind)


def state(kind: Kind, *, killed: bool = False, exited: bool = False) -> State:
    """A ladder that was begun four seconds ago."""
    return State(kind=kind, graces=GRACES, began_at=BEGAN, killed=killed, exited=exited)


REAPING_GRACE = arm(5.0, Kind.REAPING)
EXITS = goes(Kind.REAPING, Reap(), REAPING_GRACE, exited=True)
IS_UNREAPABLE = goes(Kind.UNREAPABLE, TellUnreapable(4.0), Kill(), arm(5.0, Kind.UNREAPABLE))
TRIES_ON = stays(Kill(), arm(5.0, Kind.UNREAPABLE))

SAMPLES = [
    Sample(
        "up",
        State(graces=GRACES),
        {
            STOP: goes(Kind.CLOSING, CloseStdin(), arm(3.0, Kind.CLOSING), began_at=NOW),
            CONDEMNED: goes(
                Kind.TERMINATING,
                TellEscalated(None, TERMINATE, 0.0),
                Terminate(),
                arm(3.0, Kind.TERMINATING),
                began_at=NOW,
            ),
            CONDEMNED_AFTER_ASKING: goes(
                Kind.TERMINATING,
                TellEscalated(COOPERATIVE, TERMINATE, 0.0),
                Terminate(),
                arm(3.0, Kind.TERMINATING),
                began_at=NOW,
            ),
            EXITED: goes(Kind.REAPING, Reap(), REAPING_GRACE, began_at=NOW, exited=True),
            **cannot(REAPED, elapsed(Kind.UP), *elapsed_elsewhere(Kind.UP)),
        },
    ),
    Sample(
        "closing",
        state(Kind.CLOSING),
        {
            CONDEMNED_AFTER_ASKING: goes(
                Kind.TERMINATING,
                TellEscalated(COOPERATIVE, TERMINATE, 4.0),
                Terminate(),
                arm(3.0, Kind.TERMINATING),
            ),
            CONDEMNED: goes(
                Kind.TERMINATING,
                TellEscalated(None, TERMINATE, 4.0),
                Terminate(),
                arm(3.0, Kind.TERMINATING),
            ),
            EXITED: EXITS,
            elapsed(Kind.CLOSING): goes(
                Kind.TERMINATING,
                TellEscalated(COOPERATIVE, TERMINATE, 4.0),
                Terminate(),
                arm(3.0, Kind.TERMINATING),
            ),
            **ignores(STOP, *elapsed_elsewhere(Kind.CLOSING)),
            **cannot(REAPED),
        },
    ),
    Sample(
        "terminating",
        state(Kind.TERMINATING),
        {
            EXITED: EXITS,
            elapsed(Kind.TERMINATING): goes(
                Kind.KILLING,
                TellEscalated(TERMINATE, KILL, 4.0),
                Kill(),
                arm(2.0, Kind.KILLING),
                killed=True,
            ),
            **ignores(STOP, CONDEMNED, *elapsed_elsewhere(Kind.TERMINATING)),
            **cannot(REAPED),
        },
    ),
    Sample(
        "killing",
        state(Kind.KILLING, killed=True),
        {
            EXITED: EXITS,
            elapsed(Kind.KILLING): goes(
                Kind.REAPING, TellEscalated(KILL, REAP, 4.0), Kill(), REAPING_GRACE
            ),
            **ignores(STOP, CONDEMNED, *elapsed_elsewhere(Kind.KILLING)),
            **cannot(REAPED),
        },
    ),
    Sample(
        "reaping a process that has ended",
        state(Kind.REAPING, exited=True),
        {
            REAPED: goes(Kind.GONE),
            elapsed(Kind.REAPING): IS_UNREAPABLE,
            **ignores(STOP, CONDEMNED, EXITED, *elapsed_elsewhere(Kind.REAPING)),
        },
    ),
    Sample(
        "reaping a process that still runs",
        state(Kind.REAPING, killed=True),
        {
            EXITED: stays(Reap(), exited=True),
            elapsed(Kind.REAPING): IS_UNREAPABLE,
            **ignores(STOP, CONDEMNED, *elapsed_elsewhere(Kind.REAPING)),
            **cannot(REAPED),
        },
    ),
    Sample(
        "unreapable, still running",
        state(Kind.UNREAPABLE, killed=True),
        {
            EXITED: stays(Reap(), exited=True),
            elapsed(Kind.UNREAPABLE): TRIES_ON,
            **ignores(STOP, CONDEMNED, *elapsed_elsewhere(Kind.UNREAPABLE)),
            **cannot(REAPED),
        },
    ),
    Sample(
        "unreapable, ended",
        state(Kind.UNREAPABLE, exited=True),
        {
            REAPED: goes(Kind.GONE),
            elapsed(Kind.UNREAPABLE): TRIES_ON,
            **ignores(STOP, CONDEMNED, EXITED, *elapsed_elsewhere(Kind.UNREAPABLE)),
        },
    ),
    Sample(
        "gone",
        state(Kind.GONE, exited=True),
        {
            **ignores(STOP, CONDEMNED, elapsed(Kind.GONE), *elapsed_elsewhere(Kind.GONE)),
            **cannot(EXITED, REAPED),
        },
    ),
    *(
        # No history leads here: the row has to refuse by itself, whatever the state claims.
        Sample(f"{kind}, though it has exited", state(kind, exited=True), cannot(REAPED))
        for kind in (Kind.UP, Kind.CLOSING, Kind.TERMINATING, Kind.KILLING)
    ),
]


def test_every_cell_of_the_ladder_answers_as_its_row_says() -> None:
    """Next state and effects are those of the rows, in the order of the rows."""
    assert [] == differences(escalation.TABLE, SAMPLES)


def test_every_cell_of_the_ladder_has_a_row() -> None:
    """A new cell needs an expectation."""
    assert [] == unexamined(escalation.TABLE, SAMPLES)
