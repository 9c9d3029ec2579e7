"""The golden table of the slot."""

from __future__ import annotations

import pytest

from supervisord_llm.core import slot
from supervisord_llm.core.restart import History
from supervisord_llm.core.slot import (
    Next,
    Offer,
    Spawn,
    State,
    TellDown,
    TellResumed,
)
from supervisord_llm.core.words import SlotState
from tests.core.golden import (
    Expected,
    Sample,
    cannot,
    differences,
    goes,
    ignores,
    stays,
    unexamined,
)
from tests.core.slot_leaving import DRAINING, FALLS, QUARANTINED, REMOVES, UNFIT
from tests.core.slot_rows import (
    ASSIGNED,
    BLAMED,
    CANCEL,
    CONDEMNED,
    ELAPSED,
    EXIT_SEEN,
    GENTLY,
    GONE,
    HARD,
    NOW,
    PARKED_BEFORE,
    POLICY,
    READY,
    RELEASED,
    RELEASED_CANCELLED,
    RELOAD,
    REMOVED,
    SPAWN_FAILED,
    START,
    STOP,
    THREE_FAILURES,
    blamed,
    drains,
    idle_or_busy,
    parks,
    serving,
    spawns,
    state,
    stops,
    waits,
)

DRAINS_IDLE: dict[object, Expected] = {
    RELOAD: drains(GENTLY, event=RELOAD),
    STOP: drains(GENTLY, event=STOP),
}
DRAINS_WORK: dict[object, Expected] = {
    RELOAD: drains(event=RELOAD),
    STOP: drains(event=STOP),
}
SERVING_ANSWERS: dict[object, Expected] = {
    **UNFIT,
    REMOVED: goes(SlotState.QUARANTINED, *REMOVES, reason="operator", next=Next.START),
    **ignores(START, ELAPSED),
    **blamed(900.0),
    **cannot(SPAWN_FAILED, READY, GONE, PARKED_BEFORE),
}
DOWN_ANSWERS: dict[object, Expected] = {
    **ignores(CONDEMNED),
    **cannot(SPAWN_FAILED, READY, ASSIGNED, RELEASED, RELEASED_CANCELLED, CANCEL, EXIT_SEEN, GONE),
}
RESUMES = spawns(TellResumed(), reason=None, history=History())

STARTING = [
    Sample(
        "starting",
        state(SlotState.STARTING, reason="unexpected_exit"),
        {
            **UNFIT,
            READY: goes(SlotState.READY, Offer(), capacity=2, ready_since=NOW, reason=None),
            SPAWN_FAILED: waits(2, 2.0, "spawn_failed", 900.0),
            RELOAD: drains(HARD, event=RELOAD),
            STOP: drains(HARD, event=STOP),
            **ignores(START, ELAPSED),
            **blamed(900.0),
            **cannot(ASSIGNED, RELEASED, RELEASED_CANCELLED, CANCEL, GONE, PARKED_BEFORE),
        },
    ),
    Sample(
        "starting for the first time",
        state(SlotState.STARTING, history=History()),
        {SPAWN_FAILED: waits(1, 1.0, "spawn_failed")},
    ),
    Sample(
        "starting after three failures",
        state(SlotState.STARTING, history=THREE_FAILURES),
        {SPAWN_FAILED: parks("spawn_failed")},
    ),
]

IN_SERVICE = [
    Sample(
        "ready, one at a time",
        serving(SlotState.READY, capacity=1),
        {
            **SERVING_ANSWERS,
            **DRAINS_IDLE,
            ASSIGNED: idle_or_busy(SlotState.BUSY, 1, 0),
            **cannot(RELEASED, RELEASED_CANCELLED, CANCEL),
        },
    ),
    Sample(
        "ready, but for nothing",
        serving(SlotState.READY, capacity=0),
        cannot(ASSIGNED),
    ),
    Sample(
        "busy, one at a time",
        serving(SlotState.BUSY, capacity=1, in_flight=1),
        {
            **SERVING_ANSWERS,
            **DRAINS_WORK,
            RELEASED: idle_or_busy(SlotState.READY, 0, 0, Offer()),
            CANCEL: idle_or_busy(SlotState.CANCELLING, 1, 1),
            **cannot(ASSIGNED, RELEASED_CANCELLED),
        },
    ),
    Sample(
        "busy with one of two",
        serving(SlotState.BUSY, capacity=2, in_flight=1),
        {
            **SERVING_ANSWERS,
            **DRAINS_WORK,
            ASSIGNED: idle_or_busy(SlotState.BUSY, 2, 0),
            RELEASED: idle_or_busy(SlotState.READY, 0, 0, Offer()),
            CANCEL: idle_or_busy(SlotState.BUSY, 1, 1),
            **cannot(RELEASED_CANCELLED),
        },
    ),
    Sample(
        "busy with two of two, one of them being cancelled",
        serving(SlotState.BUSY, capacity=2, in_flight=2, cancelling=1),
        {
            **SERVING_ANSWERS,
            **DRAINS_WORK,
            RELEASED: idle_or_busy(SlotState.BUSY, 1, 1, Offer()),
            RELEASED_CANCELLED: idle_or_busy(SlotState.BUSY, 1, 0, Offer()),
            CANCEL: idle_or_busy(SlotState.BUSY, 2, 2),
            **cannot(ASSIGNED),
        },
    ),
    Sample(
        "busy with one of two, which is being cancelled",
        serving(SlotState.BUSY, capacity=2, in_flight=1, cancelling=1),
        {
            ASSIGNED: idle_or_busy(SlotState.BUSY, 2, 1),
            RELEASED_CANCELLED: idle_or_busy(SlotState.READY, 0, 0, Offer()),
            **cannot(RELEASED, CANCEL),
        },
    ),
    Sample(
        "cancelling",
        serving(SlotState.CANCELLING, capacity=1, in_flight=1, cancelling=1),
        {
            **SERVING_ANSWERS,
            **DRAINS_WORK,
            RELEASED_CANCELLED: idle_or_busy(SlotState.READY, 0, 0, Offer()),
            **cannot(ASSIGNED, RELEASED, CANCEL),
        },
    ),
]

DOWN = [
    Sample(
        "in backoff, the next start is due",
        state(SlotState.BACKOFF, reason="token_stall", next_start_at=NOW),
        {
            **DOWN_ANSWERS,
            **blamed(900.0),
            **cannot(PARKED_BEFORE),
            ELAPSED: spawns(reason="token_stall"),
            RELOAD: spawns(reason="reload"),
            STOP: stops("shutdown"),
            START: spawns(reason=None),
        },
    ),
    Sample(
        "in backoff, woken for an earlier one",
        state(SlotState.BACKOFF, reason="token_stall", next_start_at=NOW + 0.5),
        ignores(ELAPSED),
    ),
    Sample(
        "in backoff without a time",
        state(SlotState.BACKOFF, reason="token_stall"),
        ignores(ELAPSED),
    ),
    Sample(
        "parked",
        state(SlotState.PARKED, reason="token_stall", history=THREE_FAILURES),
        {
            **DOWN_ANSWERS,
            **cannot(PARKED_BEFORE),
            BLAMED: stays(history=History(failures=(900.0, 925.0, 925.0, 950.0), streak=3)),
            START: RESUMES,
            RELOAD: RESUMES,
            STOP: stops("shutdown", history=History()),
            **ignores(ELAPSED),
        },
    ),
    Sample(
        "stopped",
        state(SlotState.STOPPED, reason="idle", history=THREE_FAILURES),
        {
            **DOWN_ANSWERS,
            BLAMED: stays(history=History(failures=(900.0, 925.0, 925.0, 950.0), streak=3)),
            START: spawns(reason=None),
            RELOAD: RESUMES,
            STOP: stays(reason="shutdown"),
            **ignores(ELAPSED),
        },
    ),
    Sample(
        "stopped, never started",
        State(policy=POLICY),
        {
            START: goes(SlotState.STARTING, Spawn(1), generation=1),
            PARKED_BEFORE: goes(SlotState.PARKED, TellDown(), reason="load_timeout", restarts=7),
        },
    ),
    *(
        Sample(
            f"{kind}, with a start time left behind",
            state(kind, next_start_at=NOW),
            ignores(ELAPSED),
        )
        for kind in SlotState
        if kind is not SlotState.BACKOFF
    ),
]

# No history leads to these: the row has to answer by itself, whatever the state claims.
MISCOUNTED = [
    *(
        Sample(
            f"{kind}, though it counts work",
            serving(kind, capacity=3, in_flight=2, cancelling=1),
            cannot(RELEASED, RELEASED_CANCELLED, CANCEL),
        )
        for kind in (
            SlotState.STARTING,
            SlotState.READY,
            SlotState.BACKOFF,
            SlotState.PARKED,
            SlotState.STOPPED,
        )
    ),
    Sample(
        "cancelling, though more may be cancelled",
        serving(SlotState.CANCELLING, capacity=1, in_flight=2, cancelling=1),
        cannot(CANCEL),
    ),
    *(
        Sample(
            f"{kind}, though it is to stop",
            serving(kind, capacity=1, next=Next.STOP, stop_reason="drain"),
            ignores(START),
        )
        for kind in (
            SlotState.STARTING,
            SlotState.READY,
            SlotState.BUSY,
            SlotState.CANCELLING,
        )
    ),
    *(
        Sample(f"{kind}, though it counts no work", serving(kind, capacity=1), {EXIT_SEEN: FALLS})
        for kind in (SlotState.BUSY, SlotState.CANCELLING)
    ),
]

SAMPLES = [*STARTING, *IN_SERVICE, *DRAINING, *QUARANTINED, *DOWN, *MISCOUNTED]


def test_every_cell_of_the_slot_answers_as_its_row_says() -> None:
    """Next state and effects are those of the rows, in the order of the rows."""
    assert [] == differences(slot.TABLE, SAMPLES)


def test_every_cell_of_the_slot_has_a_row() -> None:
    """A new cell needs an expectation."""
    assert [] == unexamined(slot.TABLE, SAMPLES)


@pytest.mark.parametrize(
    ("sampled", "expected"),
    [
        (serving(SlotState.READY, capacity=1), True),
        (serving(SlotState.READY, capacity=0), False),
        (serving(SlotState.BUSY, capacity=2, in_flight=1), True),
        (serving(SlotState.BUSY, capacity=2, in_flight=2), False),
        *(
            (serving(kind, capacity=2, in_flight=1), False)
            for kind in SlotState
            if kind not in (SlotState.READY, SlotState.BUSY)
        ),
    ],
)
def test_only_a_fit_slot_with_room_takes_work(sampled: State, *, expected: bool) -> None:
    """Ready or busy, and below its capacity."""
    assert expected == sampled.takes_work


def test_a_slot_that_was_never_started_has_no_past() -> None:
    """Stopped, in no generation yet, and nothing counted."""
    new = State(policy=POLICY)
    assert (SlotState.STOPPED, None, Next.RESTART) == (new.kind, new.reason, new.next)
    assert (0, 0, 0, 0, 0) == (
        new.generation,
        new.restarts,
        new.capacity,
        new.in_flight,
        new.cancelling,
    )
    assert History() == new.history
