"""The table from a record that is no completion to a status, a code, and whether to try again."""

from __future__ import annotations

import pytest

from supervisord_llm.api.openai_errors import unfinished
from supervisord_llm.core.record import Record
from supervisord_llm.core.words import CancelledBy, FailureReason, FinishReason, Outcome


def record(outcome: Outcome, **fields: object) -> Record:
    """A record with what matters here."""
    return Record(outcome=outcome, queued_ms=0, ttft_ms=None, total_ms=1, **fields)  # type: ignore[arg-type]


def test_a_completion_is_no_error() -> None:
    """Whatever ended it."""
    assert None is unfinished(record(Outcome.COMPLETED, finish_reason=FinishReason.LENGTH))


@pytest.mark.parametrize("reason", list(FailureReason))
def test_each_failure_has_a_status_and_says_whether_to_try_again(reason: FailureReason) -> None:
    """Clients do so by themselves after a 5xx, unless they are told."""
    failed = record(Outcome.FAILED, error=reason, detail="in words")
    error = unfinished(failed)
    assert error is not None
    assert "in words" == error.body.error.message
    if reason in {FailureReason.CONTEXT_LENGTH_EXCEEDED, FailureReason.INVALID_REQUEST}:
        assert (400, {}) == (error.status, error.headers)
    else:
        assert error.status in {502, 503}
        assert str(failed.retryable).lower() == error.headers["x-should-retry"]


@pytest.mark.parametrize("reason", list(FailureReason))
def test_a_prompt_that_kills_workers_is_not_tried_again(reason: FailureReason) -> None:
    """It has had its attempts."""
    error = unfinished(record(Outcome.FAILED, error=reason, suspect=True))
    assert error is not None
    assert error.headers.get("x-should-retry") in {None, "false"}


@pytest.mark.parametrize(
    ("by", "status", "code", "retry"),
    [
        (CancelledBy.DEADLINE, 504, "deadline_exceeded", "false"),
        (CancelledBy.SHUTDOWN, 503, "shutting_down", "true"),
        (CancelledBy.OPERATOR, 503, "cancelled", "true"),
        (CancelledBy.API, 503, "cancelled", "false"),
        (CancelledBy.CLIENT, 503, "cancelled", "false"),
    ],
)
def test_a_cancellation_says_whose_it_was(
    by: CancelledBy, status: int, code: str, retry: str
) -> None:
    """What somebody wanted to end is not begun again by a library."""
    error = unfinished(record(Outcome.CANCELLED, cancelled_by=by))
    assert error is not None
    assert (status, code, retry) == (error.status, error.code, error.headers["x-should-retry"])
    assert (retry == "true") == ("retry-after" in error.headers)
