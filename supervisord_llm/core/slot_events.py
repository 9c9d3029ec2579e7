"""What a slot hears of its worker, and what it asks for in return.

The events come from the worker, its ladder, the pool and an operator; the effects are performed by
the runtime in their order. What leads from the ones to the others is `supervisord_llm.core.slot`.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from supervisord_llm.core.effects import Arm, Elapsed
from supervisord_llm.core.words import QuarantineReason


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
    charged: bool = True
    """Whether its end counts against the slot; not if it is held to be a request's fault."""


class Blamed(msgspec.Struct, frozen=True):
    """The end of an earlier worker, ``at`` that time, counts against the slot after all."""

    now: float
    at: float


class ParkedBefore(msgspec.Struct, frozen=True):
    """The slot was parked when the daemon last stopped, for this reason, after so many restarts."""

    now: float
    reason: str
    restarts: int


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
    Blamed,
    ParkedBefore,
    DrainAsked,
    Elapsed,
)
