"""What the ledger hears of a request, and what it asks for in return.

The events are the proposals of the worker, the ladder, the queue and the client's connection; the
effects are performed by the runtime in their order. What leads from the ones to the others is
`supervisord_llm.core.ledger`.
"""

from __future__ import annotations

import msgspec

from supervisord_llm.core.record import Record
from supervisord_llm.core.words import (
    AnsweredBy,
    CancelledBy,
    FailureReason,
    FinishReason,
    Resolution,
    Usage,
)


class Assigned(msgspec.Struct, frozen=True):
    """A slot took the request."""

    now: float


class FirstOutput(msgspec.Struct, frozen=True):
    """The worker produced its first token."""

    now: float


class CancelAsked(msgspec.Struct, frozen=True):
    """Somebody wants the request's end."""

    now: float
    by: CancelledBy


class StopFound(msgspec.Struct, frozen=True):
    """Whoever reads the output has found a stop string in it; what comes after that is not wanted.

    The request is complete as it is. Only its worker does not know yet.
    """

    now: float


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """The worker's well-formed ``done``."""

    now: float
    cancelled: bool
    finish_reason: FinishReason
    usage: Usage
    prefill_ms: float | None = None
    decode_ms: float | None = None


class EngineError(msgspec.Struct, frozen=True):
    """The worker's well-formed ``error``: local to this request."""

    now: float
    message: str
    reason: FailureReason = FailureReason.ENGINE_ERROR
    """Why the request fails of it."""


class GraceMissed(msgspec.Struct, frozen=True):
    """The client is answered without the worker, which did not react in time.

    ``by`` is `AnsweredBy.DETACH` where the worker, which cannot be cancelled, was not even asked.
    """

    now: float
    by: AnsweredBy = AnsweredBy.GRACE


class WorkerLost(msgspec.Struct, frozen=True):
    """The worker was condemned, or exited, with this request on it."""

    now: float
    error: FailureReason
    detail: str
    alone: bool = False
    """Whether its process ended by itself while this request was all that it had."""


class Released(msgspec.Struct, frozen=True):
    """No worker holds the request any more; ``resolution`` is how that was reached."""

    now: float
    resolution: Resolution


class Overflowed(msgspec.Struct, frozen=True):
    """The client reads more slowly than the worker writes; its mailbox is full."""

    now: float


class QueueExpired(msgspec.Struct, frozen=True):
    """The request waited in the queue for longer than it may."""

    now: float


class PoolLost(msgspec.Struct, frozen=True):
    """No slot of the pool can ever take the request as things stand."""

    now: float
    detail: str
    reason: FailureReason = FailureReason.POOL_UNAVAILABLE
    """Why the request fails of it."""


class Seal(msgspec.Struct, frozen=True):
    """Deliver the terminal record."""

    record: Record


class Withdraw(msgspec.Struct, frozen=True):
    """Take the request out of the queue; no worker has heard of it."""


class Requeue(msgspec.Struct, frozen=True):
    """Take the request from the lost worker and put it back into the queue, at its old place.

    The lost worker holds nothing of it any more: no `Released` follows, and an ending that it still
    proposes is told as late, never posted.
    """


class Charge(msgspec.Struct, frozen=True):
    """The end of the worker that was just lost counts against the request, not against its slot."""


class Acquit(msgspec.Struct, frozen=True):
    """The worker's end that was charged to the request counts against that worker's slot after all.

    ``at`` is when that worker was lost. There is at most one such end, and at most one acquittal.
    """

    at: float


class AskWorker(msgspec.Struct, frozen=True):
    """Ask the slot that has the request to stop working on it."""


class TellFirstOutput(msgspec.Struct, frozen=True):
    """Announce the time to the first token."""

    ttft_ms: float


class TellCancel(msgspec.Struct, frozen=True):
    """Announce that a cancellation was asked for."""

    by: CancelledBy


class TellSettled(msgspec.Struct, frozen=True):
    """Announce what became of the worker that the cancellation was aimed at."""

    resolution: Resolution
    elapsed_ms: float


class TellRetried(msgspec.Struct, frozen=True):
    """Announce that the request lost its worker, for this reason, and waits for another."""

    error: FailureReason


class TellLate(msgspec.Struct, frozen=True):
    """Count and announce an ending that came after the seal."""

    kind: str


class Over(msgspec.Struct, frozen=True):
    """Answered and released: forget the request's claims."""


Tell = TellFirstOutput | TellCancel | TellSettled | TellRetried | TellLate
"""The effects that only announce something."""

Effect = Seal | Withdraw | Requeue | Charge | Acquit | AskWorker | Tell | Over

EVENTS: tuple[type, ...] = (
    Assigned,
    FirstOutput,
    CancelAsked,
    StopFound,
    Done,
    EngineError,
    GraceMissed,
    WorkerLost,
    Released,
    Overflowed,
    QueueExpired,
    PoolLost,
)
