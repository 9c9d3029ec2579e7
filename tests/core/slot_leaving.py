"""The golden rows of a slot on its way out: draining, or quarantined."""

from __future__ import annotations

from typing import Any

import msgspec

from supervisord_llm.core.restart import History
from supervisord_llm.core.slot import (
    ExitedWorker,
    Next,
    Offer,
    State,
    TellDown,
    TellParked,
    TellQuarantined,
    TellRestart,
    TellResumed,
)
from supervisord_llm.core.words import QuarantineReason, SlotState
from tests.core.golden import (
    Expected,
    Sample,
    cannot,
    goes,
    ignores,
    stays,
)
from tests.core.slot_rows import (
    ASSIGNED,
    CANCEL,
    CONDEMNED,
    ELAPSED,
    EXIT,
    EXIT_SEEN,
    GENTLY,
    GONE,
    GONE_INNOCENT,
    HARD,
    NOW,
    PARKED_BEFORE,
    READY,
    RELEASED,
    RELEASED_CANCELLED,
    RELOAD,
    REMOVED,
    SPAWN_FAILED,
    STALL,
    START,
    STOP,
    THREE_FAILURES,
    TWO_FAILURES,
    blamed,
    parks,
    serving,
    spawns,
    stops,
    waits,
)

CONDEMNS = goes(SlotState.QUARANTINED, TellQuarantined(STALL), HARD, reason="token_stall")
FALLS = goes(SlotState.QUARANTINED, TellQuarantined(EXIT), ExitedWorker(), reason="unexpected_exit")
REMOVES = (TellQuarantined(QuarantineReason.OPERATOR), HARD)
UNFIT: dict[object, Expected] = {CONDEMNED: CONDEMNS, EXIT_SEEN: FALLS}

RELOADING: dict[str, Any] = {"next": Next.START, "reason": "reload"}
SHRINKING: dict[str, Any] = {
    "next": Next.STOP,
    "stop_reason": "scale_down",
    "reason": "scale_down",
}
ON_ITS_WAY_OUT: dict[object, Expected] = {
    **ignores(READY, ELAPSED),
    **cannot(SPAWN_FAILED, ASSIGNED, PARKED_BEFORE),
}
DRAINING_IDLE: dict[object, Expected] = {
    **ON_ITS_WAY_OUT,
    **blamed(900.0),
    START: stays(TellResumed(), next=Next.START, stop_reason=None),
    STOP: stays(next=Next.STOP, stop_reason="shutdown", reason="shutdown"),
    CONDEMNED: CONDEMNS,
    REMOVED: goes(SlotState.QUARANTINED, *REMOVES, reason="operator"),
    EXIT_SEEN: stays(ExitedWorker()),
    **cannot(RELEASED, RELEASED_CANCELLED, CANCEL),
}


DRAINING = [
    Sample(
        "draining without work, then start",
        serving(SlotState.DRAINING, capacity=1, **RELOADING),
        {
            **DRAINING_IDLE,
            RELOAD: stays(),
            GONE: spawns(reason="reload"),
            GONE_INNOCENT: spawns(reason="reload"),
        },
    ),
    Sample(
        "draining without work, then start, for another reason",
        serving(SlotState.DRAINING, capacity=1, next=Next.START, reason="recycle"),
        {RELOAD: stays(reason="reload")},
    ),
    Sample(
        "draining without work, then stop",
        serving(SlotState.DRAINING, capacity=1, **SHRINKING),
        {
            **DRAINING_IDLE,
            RELOAD: stays(),
            GONE: stops("scale_down"),
            GONE_INNOCENT: stops("scale_down"),
        },
    ),
    Sample(
        "draining one",
        serving(SlotState.DRAINING, capacity=1, in_flight=1, **RELOADING),
        {
            **ON_ITS_WAY_OUT,
            **UNFIT,
            RELOAD: stays(),
            STOP: stays(next=Next.STOP, stop_reason="shutdown", reason="shutdown"),
            START: goes(SlotState.BUSY, TellResumed(), next=Next.RESTART, reason=None),
            RELEASED: stays(GENTLY, in_flight=0),
            CANCEL: stays(cancelling=1),
            **cannot(RELEASED_CANCELLED),
        },
    ),
    Sample(
        "draining two, one of them being cancelled",
        serving(
            SlotState.DRAINING,
            capacity=2,
            in_flight=2,
            cancelling=1,
            **SHRINKING,
        ),
        {
            **UNFIT,
            RELEASED: stays(in_flight=1),
            RELEASED_CANCELLED: stays(in_flight=1, cancelling=0),
            CANCEL: stays(cancelling=2),
        },
    ),
    Sample(
        "draining one that is being cancelled",
        serving(
            SlotState.DRAINING,
            capacity=1,
            in_flight=1,
            cancelling=1,
            **RELOADING,
        ),
        {
            START: goes(SlotState.CANCELLING, TellResumed(), next=Next.RESTART, reason=None),
        },
    ),
    Sample(
        "draining one of two",
        serving(SlotState.DRAINING, capacity=2, in_flight=1, next=Next.START, reason="reload"),
        {
            START: goes(SlotState.BUSY, TellResumed(), Offer(), next=Next.RESTART, reason=None),
        },
    ),
    Sample(
        "draining one of two for good",
        serving(SlotState.DRAINING, capacity=2, in_flight=1, **SHRINKING),
        {
            RELOAD: stays(),
            START: goes(
                SlotState.BUSY,
                TellResumed(),
                Offer(),
                next=Next.RESTART,
                stop_reason=None,
                reason=None,
            ),
        },
    ),
]


def quarantined(**facts: object) -> State:
    """A slot whose worker stalled with one request on it."""
    changed = serving(SlotState.QUARANTINED, capacity=1, in_flight=1, reason="token_stall")
    return msgspec.structs.replace(changed, **facts)


UNFIT_ALREADY: dict[object, Expected] = {
    **ON_ITS_WAY_OUT,
    **blamed(900.0),
    STOP: stays(next=Next.STOP, stop_reason="shutdown"),
    RELOAD: stays(),
    EXIT_SEEN: stays(ExitedWorker()),
    **ignores(RELEASED, RELEASED_CANCELLED, CANCEL, CONDEMNED),
}
QUARANTINED = [
    *(
        Sample(
            f"quarantined with {in_flight}, then start",
            quarantined(next=Next.START, in_flight=in_flight),
            {
                **UNFIT_ALREADY,
                **ignores(START),
                GONE: spawns(reason="token_stall"),
                GONE_INNOCENT: spawns(reason="token_stall"),
            },
        )
        for in_flight in (0, 1, 2)
    ),
    *(
        Sample(
            f"quarantined with {in_flight}, then stop",
            quarantined(next=Next.STOP, stop_reason="drain", in_flight=in_flight),
            {
                **UNFIT_ALREADY,
                START: stays(TellResumed(), next=Next.RESTART, stop_reason=None),
                GONE: stops("drain"),
                GONE_INNOCENT: stops("drain"),
            },
        )
        for in_flight in (0, 1, 2)
    ),
    Sample(
        "quarantined by an operator, then stop",
        quarantined(next=Next.STOP, stop_reason="drain", reason="operator"),
        {START: stays(TellResumed(), next=Next.START, stop_reason=None)},
    ),
    Sample(
        "quarantined for what was a request's fault",
        quarantined(history=THREE_FAILURES),
        {
            GONE_INNOCENT: spawns(
                TellRestart(1, 0.0, "token_stall"), reason="token_stall", restarts=3
            ),
        },
    ),
    Sample(
        "quarantined for what is held to be a request's fault, after too many that were not",
        quarantined(history=History(failures=(*THREE_FAILURES.failures, 975.0), streak=3)),
        {
            GONE_INNOCENT: goes(
                SlotState.PARKED,
                TellParked(4, "token_stall"),
                TellDown(),
                reason="token_stall",
                in_flight=0,
                cancelling=0,
                capacity=0,
            ),
        },
    ),
    Sample(
        "quarantined for no known reason, which was a request's fault",
        quarantined(reason=None),
        {GONE_INNOCENT: spawns(TellRestart(1, 0.0, "unknown"), reason="unknown", restarts=3)},
    ),
    Sample(
        "quarantined in service, for the first time",
        quarantined(history=History()),
        {
            **ignores(START),
            **blamed(),
            RELOAD: stays(next=Next.START),
            STOP: stays(next=Next.STOP, stop_reason="shutdown"),
            GONE: spawns(
                TellRestart(1, 0.0, "token_stall"),
                reason="token_stall",
                restarts=3,
                history=History(failures=(NOW,), streak=1),
            ),
        },
    ),
    Sample(
        "quarantined in service, for the second time",
        quarantined(),
        {GONE: waits(2, 1.0, "token_stall", 900.0)},
    ),
    Sample(
        "quarantined in service, for the third time",
        quarantined(history=TWO_FAILURES),
        {GONE: waits(3, 2.0, "token_stall", 900.0, 950.0)},
    ),
    Sample(
        "quarantined after a healthy time in service",
        quarantined(ready_since=970.0),
        {
            GONE: spawns(
                TellRestart(1, 0.0, "token_stall"),
                reason="token_stall",
                restarts=3,
                history=History(failures=(900.0, NOW), streak=1),
            ),
        },
    ),
    Sample(
        "quarantined before it was ready",
        quarantined(ready_since=None, capacity=0, in_flight=0, history=History()),
        {GONE: waits(1, 1.0, "token_stall")},
    ),
    Sample(
        "quarantined once too often",
        quarantined(history=THREE_FAILURES),
        {GONE: parks("token_stall")},
    ),
    Sample(
        "quarantined for no known reason",
        quarantined(reason=None),
        {GONE: waits(2, 1.0, "unknown", 900.0)},
    ),
]
