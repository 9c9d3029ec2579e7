"""How an accepted request that did not complete is told to an OpenAI client: by status and code.

The clients of OpenAI's libraries send a request again by themselves after 408, 409, 429 and each
5xx, unless ``x-should-retry`` says otherwise. So that header says whether it makes sense.
"""

from __future__ import annotations

from typing import assert_never

from supervisord_llm.api.errors import RETRY_AFTER, HttpError
from supervisord_llm.core.record import Record
from supervisord_llm.core.words import CancelledBy, FailureReason, Outcome
from supervisord_llm.errors import InternalError
from supervisord_llm.schema import ErrorBody, ErrorReply

_INVALID = "invalid_request_error"
_SERVER = "server_error"
_UNAVAILABLE = "service_unavailable_error"


def unfinished(record: Record) -> HttpError | None:
    """Return what to tell of a request that ended so; ``None`` if it completed."""
    match record.outcome:
        case Outcome.COMPLETED:
            return None
        case Outcome.CANCELLED:
            return _cancelled(record)
        case Outcome.FAILED:
            return _failed(record)
        case _:
            assert_never(record.outcome)


def _failed(record: Record) -> HttpError:
    if record.error is None:
        raise InternalError("a request has failed for no reason")
    status, kind, code = _FAILURES[record.error]
    return _error(status, kind, code, record.detail or str(record.error), retry=record.retryable)


_FAILURES: dict[FailureReason, tuple[int, str, str]] = {
    FailureReason.WORKER_EXITED: (502, _SERVER, "worker_failed"),
    FailureReason.WORKER_QUARANTINED: (502, _SERVER, "worker_failed"),
    FailureReason.PROTOCOL_ERROR: (502, _SERVER, "worker_failed"),
    FailureReason.ENGINE_ERROR: (502, _SERVER, "worker_failed"),
    FailureReason.STALLED: (502, _SERVER, "worker_failed"),
    FailureReason.INVALID_REQUEST: (400, _INVALID, "invalid_request"),
    FailureReason.CONTEXT_LENGTH_EXCEEDED: (400, _INVALID, "context_length_exceeded"),
    FailureReason.SLOW_CONSUMER: (503, _SERVER, "slow_consumer"),
    FailureReason.QUEUE_TIMEOUT: (503, _UNAVAILABLE, "queue_timeout"),
    FailureReason.POOL_UNAVAILABLE: (503, _UNAVAILABLE, "pool_unavailable"),
}
"""By reason: the status, the type and the code."""


def _cancelled(record: Record) -> HttpError:
    by = record.cancelled_by
    match by:
        case CancelledBy.DEADLINE:
            message = "the request did not end before its deadline; ask for fewer tokens"
            return _error(504, _SERVER, "deadline_exceeded", message, retry=False)
        case CancelledBy.SHUTDOWN:
            message = "the daemon is shutting down; try again once it is back"
            return _error(503, _UNAVAILABLE, "shutting_down", message, retry=True)
        case CancelledBy.OPERATOR:
            message = "an operator ended the worker that had the request; send it again"
            return _error(503, _UNAVAILABLE, "cancelled", message, retry=True)
        case CancelledBy.API | CancelledBy.CLIENT:
            message = f"the request was cancelled by the {by}; send it again if that was in error"
            return _error(503, _UNAVAILABLE, "cancelled", message, retry=False)
        case None:
            raise InternalError("a request was cancelled by nobody")
        case _:
            assert_never(by)


def _error(status: int, kind: str, code: str, message: str, *, retry: bool) -> HttpError:
    headers = {"x-should-retry": "true" if retry else "false"} if status >= 500 else {}
    if status == 503 and retry:
        headers["retry-after"] = str(round(RETRY_AFTER))
    return HttpError(
        status=status,
        code=code,
        body=ErrorReply(error=ErrorBody(message=message, type=kind, code=code)),
        headers=headers,
    )
