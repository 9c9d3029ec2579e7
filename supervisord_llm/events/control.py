"""What comes in from outside besides requests."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from supervisord_llm.events.base import Event, Level


class HttpRefused(Event, tag_field="event", tag="http.refused", frozen=True, kw_only=True):
    """Something that is not an HTTP/1.x request we serve was turned away."""

    level: ClassVar[Level] = "warning"
    status: int
    """0 where the connection was closed without an answer."""
    reason: str
    peer: str


class ControlOperation(
    Event, tag_field="event", tag="control.operation", frozen=True, kw_only=True
):
    """An operator's command, with the credentials of the process that gave it."""

    verb: str
    target: str
    outcome: str = msgspec.field(name="result")
    detail: str | None = None
    """What was asked for, where verb and target do not say all of it."""
    uid: int | None = None
    gid: int | None = None
    pid: int | None = None
