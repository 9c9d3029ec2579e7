"""What an accepted request's one terminal record says."""

from __future__ import annotations

import msgspec

from supervisord_llm.core.words import (
    AnsweredBy,
    CancelledBy,
    FailureReason,
    FinishReason,
    Outcome,
    Usage,
)

_OWN_DOING = frozenset({
    FailureReason.ENGINE_ERROR,
    FailureReason.INVALID_REQUEST,
    FailureReason.CONTEXT_LENGTH_EXCEEDED,
})  # fmt: skip
"""Failures that the same request would meet again."""


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """The one terminal record of an accepted request."""

    outcome: Outcome
    finish_reason: FinishReason | None = None
    cancelled_by: CancelledBy | None = None
    answered_by: AnsweredBy | None = None
    cancel_elapsed_ms: float | None = None
    cancel_raced: bool = False
    error: FailureReason | None = None
    detail: str | None = None
    suspect: bool = False
    """Two workers ended by themselves with nothing but this request on them."""
    usage: Usage | None = None
    queued_ms: float
    """Until a slot first took it; what came after a worker was lost is not in it."""
    ttft_ms: float | None
    total_ms: float
    prefill_ms: float | None = None
    decode_ms: float | None = None

    @property
    def retryable(self) -> bool:
        """Whether the same request may well succeed if it is sent again."""
        return self.error is not None and not (self.suspect or self.error in _OWN_DOING)
