"""Requests, and what becomes of those that are to end early."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from supervisord_llm.core.words import (
    CancelledBy,
    EscalationStage,
    FailureReason,
    FinishReason,
    Outcome,
    Resolution,
)
from supervisord_llm.events.base import Event, Level


class RequestAccepted(Event, tag_field="event", tag="request.accepted", frozen=True, kw_only=True):
    """The queue took a request; ``queued`` is how many are before it."""

    pool: str
    request: str
    queued: int


class RequestStarted(Event, tag_field="event", tag="request.started", frozen=True, kw_only=True):
    """A request was handed to a worker."""

    pool: str
    worker: str
    generation: int
    request: str
    attempt: int
    queued_ms: float


class RequestRetried(Event, tag_field="event", tag="request.retried", frozen=True, kw_only=True):
    """A request lost its worker before it had output, and waits for another."""

    level: ClassVar[Level] = "warning"
    pool: str
    request: str
    worker: str
    generation: int
    attempt: int
    """The attempt that failed, counted from 1."""
    reason: FailureReason


class RequestFirstToken(
    Event, tag_field="event", tag="request.first_token", frozen=True, kw_only=True
):
    """A request's first output arrived; ``ttft_ms`` counts from its acceptance."""

    level: ClassVar[Level] = "debug"
    pool: str
    worker: str
    generation: int
    request: str
    ttft_ms: float


class RequestFinished(Event, tag_field="event", tag="request.finished", frozen=True, kw_only=True):
    """A request's one terminal record was sealed.

    ``gaps`` counts the gaps between tokens that fell under each bound of ``GAP_BUCKETS`` (the last
    entry: above all of them).
    """

    pool: str
    request: str
    outcome: Outcome
    worker: str | None = None
    generation: int | None = None
    finish_reason: FinishReason | None = None
    cancelled_by: CancelledBy | None = None
    error: FailureReason | None = None
    suspect: bool = False
    """Each of its workers died with nothing but this request on it: perhaps the prompt kills."""
    detail: str | None = None
    tokens: int = 0
    """Token messages passed on to the client's mailbox."""
    prompt_tokens: int | None = None
    reused_tokens: int | None = None
    generated_tokens: int | None = None
    queued_ms: float
    ttft_ms: float | None = None
    total_ms: float
    gaps: list[int] = msgspec.field(default_factory=list)
    gaps_ms: float = 0.0
    """All gaps together: from the first output to the last."""


GAP_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds, in seconds, of the buckets of ``RequestFinished.gaps``."""


class RequestLateTerminal(
    Event, tag_field="event", tag="request.late_terminal", frozen=True, kw_only=True
):
    """A second ending was proposed for a sealed request; it was counted, not delivered."""

    pool: str
    request: str
    kind: str


class RequestRejected(Event, tag_field="event", tag="request.rejected", frozen=True, kw_only=True):
    """A request was never accepted."""

    code: str
    pool: str | None = None
    field: str | None = None


class CancelRequested(Event, tag_field="event", tag="cancel.requested", frozen=True, kw_only=True):
    """Somebody asked for a request's end."""

    pool: str
    request: str
    by: CancelledBy
    worker: str | None = None
    generation: int | None = None


class CancelDelivered(Event, tag_field="event", tag="cancel.delivered", frozen=True, kw_only=True):
    """The first cancel frame was taken by the worker's control pipe.

    A request that fails as ``slow_consumer``, or in whose output a stop string was found, is ended
    at its worker in the same way, without ``cancel.requested`` before and ``cancel.settled`` after.
    """

    pool: str
    request: str
    worker: str
    generation: int
    stage: EscalationStage
    elapsed_ms: float


class CancelEscalated(Event, tag_field="event", tag="cancel.escalated", frozen=True, kw_only=True):
    """A rung of the ladder did not help within its grace; the next one was taken.

    ``request`` is absent where the ladder is climbed for another reason than a cancellation.
    """

    level: ClassVar[Level] = "warning"
    pool: str
    worker: str
    generation: int
    from_: EscalationStage | None = msgspec.field(name="from", default=None)
    to: EscalationStage
    elapsed_ms: float
    request: str | None = None


class CancelSettled(Event, tag_field="event", tag="cancel.settled", frozen=True, kw_only=True):
    """What became of the worker that a cancellation was aimed at is known."""

    pool: str
    request: str
    resolution: Resolution
    elapsed_ms: float
    worker: str | None = None
    generation: int | None = None
