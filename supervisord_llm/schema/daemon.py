"""The daemon as a whole: its status, its configuration, its event log."""

from __future__ import annotations

import msgspec

from supervisord_llm.core.words import Resolution
from supervisord_llm.schema.pools import PoolSummary


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """Counts since the daemon started."""

    accepted: int
    completed: int
    cancelled: int
    failed: int
    rejected: int
    restarts: int


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """``GET /api/v1/status``."""

    version: str
    boot: str
    pid: int
    state: str
    """``starting``, ``running`` or ``stopping``."""
    uptime_seconds: float
    config: str
    pools: list[PoolSummary]
    queued: int
    totals: Totals
    cancellations: dict[Resolution, int] = {}
    """Since the daemon started, by what became of the worker; what never came about is left out."""


class ConfigChange(msgspec.Struct, frozen=True, kw_only=True):
    """``POST /api/v1/config/reload``: the file is in force, and what is now otherwise."""

    digest: str
    """SHA-256 of the file, hexadecimal."""
    differences: list[str]
    """One sentence each; empty if the file says what it said before."""
    needs_restart: list[str]
    """Keys that changed in the file and take effect only when the daemon is started again."""
    warnings: list[str]
    """What is allowed but probably not meant, with the remedy."""


class StreamOpened(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="stream.opened"
):
    """The first line of an event stream."""

    boot: str
    seq: int
    """The sequence number of the first event that follows."""


class StreamGap(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="stream.gap"):
    """Events, or lines of a log, that this reader cannot have any more, both ends included."""

    first: int
    last: int
