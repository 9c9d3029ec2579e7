"""Exceptions as HTTP errors: the one table from a type to a status, a type and a code."""

from __future__ import annotations

import math
from typing import assert_never

import msgspec

from supervisord_llm.core.words import RejectReason
from supervisord_llm.errors import (
    BodyTimeout,
    BodyTooLarge,
    ClientError,
    InvalidRequest,
    NotFound,
    Refused,
    UnknownModel,
    UnsupportedParameter,
)
from supervisord_llm.schema import ErrorBody, ErrorReply

RETRY_AFTER = 1.0
"""Seconds to wait before asking again, where nobody knows better."""


class MethodNotAllowed(ClientError):
    """The route exists, with other methods; ``allow`` is the value of the ``Allow`` header."""

    def __init__(self, message: str, *, allow: str) -> None:
        super().__init__(message)
        self.allow = allow


class InvalidConfig(ClientError):
    """The configuration file has problems, so the daemon stays with what it has."""


class Unauthorized(ClientError):
    """The listener asks for an API key, and the client has presented none, or none of its."""


class Forbidden(ClientError):
    """The request may be a web page's that has no business with this daemon."""


class ClientGone(Exception):
    """The client closed, or half-closed, its connection: nobody is left to answer."""


class HttpError(msgspec.Struct, frozen=True, kw_only=True):
    """An error reply that is ready to be sent."""

    status: int
    code: str
    body: ErrorReply
    headers: dict[str, str]


_CLIENT_ERRORS: dict[type[ClientError], tuple[int, str]] = {
    InvalidRequest: (400, "invalid_request"),
    UnsupportedParameter: (400, "unsupported_parameter"),
    UnknownModel: (404, "unknown_model"),
    NotFound: (404, "not_found"),
    InvalidConfig: (400, "invalid_config"),
    Unauthorized: (401, "invalid_api_key"),
    Forbidden: (403, "forbidden"),
    MethodNotAllowed: (405, "method_not_allowed"),
    BodyTimeout: (408, "request_timeout"),
    BodyTooLarge: (413, "body_too_large"),
}


def http_error(error: ClientError | Refused) -> HttpError:
    """Return the reply for an error that is not ours."""
    if isinstance(error, Refused):
        status, kind = _refusal(error.reason)
        headers = {}
        if status in {429, 503}:
            wait = RETRY_AFTER if error.retry_after is None else error.retry_after
            headers["retry-after"] = str(max(1, math.ceil(wait)))
        return _reply(status, kind, str(error.reason), str(error), None, headers)
    status, code = _CLIENT_ERRORS[type(error)]
    headers = {}
    if isinstance(error, MethodNotAllowed):
        headers["allow"] = error.allow
    elif isinstance(error, Unauthorized):
        headers["www-authenticate"] = "Bearer"
    return _reply(status, "invalid_request_error", code, str(error), error.param, headers)


def internal_error(id_: str) -> HttpError:
    """Return the reply for a bug of ours, which the event log knows by ``id_``."""
    message = f"an internal error; the daemon's event log has the details under {id_}"
    return _reply(500, "server_error", "internal", message, None, {})


def _refusal(reason: RejectReason) -> tuple[int, str]:
    match reason:
        case RejectReason.INVALID_REQUEST:
            return 400, "invalid_request_error"
        case RejectReason.UNKNOWN_MODEL:
            return 404, "invalid_request_error"
        case RejectReason.QUEUE_FULL:
            return 429, "rate_limit_error"
        case RejectReason.POOL_UNAVAILABLE | RejectReason.SHUTTING_DOWN:
            return 503, "service_unavailable_error"
        case _:
            assert_never(reason)


def _reply(
    status: int, kind: str, code: str, message: str, param: str | None, headers: dict[str, str]
) -> HttpError:
    body = ErrorReply(error=ErrorBody(message=message, type=kind, code=code, param=param))
    return HttpError(status=status, code=code, body=body, headers=headers)
