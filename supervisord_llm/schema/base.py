"""What all bodies have in common, the bounds of numbers, and the one error envelope."""

from __future__ import annotations

import msgspec

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The root of bodies that clients send."""


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True):
    """What went wrong, in OpenAI's shape."""

    message: str
    type: str
    code: str
    param: str | None = None


class ErrorReply(msgspec.Struct, frozen=True, kw_only=True):
    """The one error envelope."""

    error: ErrorBody
