"""The daemon itself, and its configuration."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from supervisord_llm.events.base import Event, Level


class DaemonStarted(Event, tag_field="event", tag="daemon.started", frozen=True, kw_only=True):
    """The daemon's process is up; nothing serves yet."""

    version: str
    boot: str
    pid: int
    config: str
    digest: str
    """SHA-256 of the configuration file, hexadecimal."""


class DaemonListening(Event, tag_field="event", tag="daemon.listening", frozen=True, kw_only=True):
    """A socket takes connections."""

    address: str
    """With the port that it has indeed, where the configuration asks for any (port 0)."""
    serves: list[str]


class DaemonReady(Event, tag_field="event", tag="daemon.ready", frozen=True, kw_only=True):
    """The sockets serve and every required pool has had its first verdict: ready or parked."""

    pools: list[str]


class DaemonStopping(Event, tag_field="event", tag="daemon.stopping", frozen=True, kw_only=True):
    """Shutdown began, or (``forced``) a second signal ended the drain."""

    reason: str
    forced: bool = False


class DaemonStopped(Event, tag_field="event", tag="daemon.stopped", frozen=True, kw_only=True):
    """Everything is reaped and the sockets are gone; the process exits next."""

    exit_code: int


class DaemonWarning(Event, tag_field="event", tag="daemon.warning", frozen=True, kw_only=True):
    """Something an operator should mend, with the remedy."""

    level: ClassVar[Level] = "warning"
    topic: str
    message: str
    remedy: str
    pool: str | None = None
    worker: str | None = None


class DaemonError(Event, tag_field="event", tag="daemon.error", frozen=True, kw_only=True):
    """A bug of ours that was contained; clients were given ``id`` to quote."""

    level: ClassVar[Level] = "error"
    id: str
    where: str
    error: str
    traceback: str


class DaemonLoopLag(Event, tag_field="event", tag="daemon.loop_lag", frozen=True, kw_only=True):
    """How late the event loop woke for its own timer."""

    level: ClassVar[Level] = "debug"
    seconds: float


class ConfigReloaded(Event, tag_field="event", tag="config.reloaded", frozen=True, kw_only=True):
    """The configuration file was read again; ``differences`` is what is now otherwise."""

    digest: str
    differences: list[str] = msgspec.field(default_factory=list)
    needs_restart: list[str] = msgspec.field(default_factory=list)
    """Keys that changed in the file and take effect only when the daemon is started again."""


class ConfigRejected(Event, tag_field="event", tag="config.rejected", frozen=True, kw_only=True):
    """The configuration file was read again and is not valid; nothing changed."""

    level: ClassVar[Level] = "error"
    error: str
