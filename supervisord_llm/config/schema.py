"""Every key of the configuration file with its meaning, its bounds and its default, and no others.

The field names are the keys. Durations are seconds and sizes are bytes in memory; in the file both
are text with a unit (``units``). ``load`` reads these Structs' annotations, so a bound is written
once, in ``kinds``, in ``schema_pool`` or here. Placeholders such as ``{runtime_dir}`` in defaults
are filled in by ``load``, and those that differ from slot to slot by ``launch``.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from supervisord_llm.config.kinds import BufferSize, Duration, Interval, LogSize, Strings, Table
from supervisord_llm.config.schema_pool import (
    CancelConfig,
    HealthConfig,
    LimitsConfig,
    LoadLimits,
    PoolConfig,
    QueueConfig,
    RestartConfig,
    SamplingConfig,
)
from supervisord_llm.core.words import PoolName

__all__ = [
    "CancelConfig",
    "Config",
    "DaemonConfig",
    "HealthConfig",
    "LimitsConfig",
    "ListenConfig",
    "LoadLimits",
    "LogConfig",
    "PoolConfig",
    "QueueConfig",
    "RestartConfig",
    "SamplingConfig",
]


class DaemonConfig(Table, frozen=True, kw_only=True):
    """``[daemon]``: the process itself."""

    state_dir: str = "{data_dir}"
    """The folder where running workers are recorded, so that the next start can end leftovers."""
    shutdown_drain: Duration = 30.0
    """How long running work may take after the first SIGTERM before it is cancelled."""
    max_loop_lag: Interval = 1.0
    """A daemon whose event loop is later than this is not live (``/livez``)."""
    seal_memory: bool = True
    """Whether other processes of the daemon's user, such as workers, are kept from reading its
    memory, environment and descriptors; not so for debuggers, profilers and core dumps."""


class LogConfig(Table, frozen=True, kw_only=True):
    """``[log]``: the event log, and the ring that ``llmctl events`` reads."""

    format: Literal["auto", "json", "console", "journald"] = "auto"
    """What is written to stderr: JSON, or columns for people, or instead of it the journal with
    priorities and fields. ``auto`` means the journal where stderr leads there, columns on a
    terminal, and JSON elsewhere.
    """
    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least level that is written; the ring takes all."""
    file: str = ""
    """A file for the log, JSON, one event per line, instead of stderr; empty for none."""
    rotate_size: LogSize = 64 * 2**20
    """Before the file gets longer than this, it is put aside as ``FILE.1``, and so on."""
    rotate_keep: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 5
    """How many files are kept besides the current one."""
    ring_events: Annotated[int, msgspec.Meta(ge=1, le=10_000_000)] = 10_000
    """Events that the ring holds."""


class ListenConfig(Table, frozen=True, kw_only=True):
    """``[[listen]]``: a socket and what is served on it."""

    address: str = "unix:{runtime_dir}/control.sock"
    """``unix:`` and an absolute path of at most 107 bytes, or ``tcp:``, an IP address or
    ``localhost``, and a port: ``tcp:127.0.0.1:8000``, ``tcp:[::1]:8000``; port 0 is any free one.
    """
    name: Annotated[
        str,
        msgspec.Meta(
            pattern="[A-Za-z0-9._-]{0,64}",
            extra={"wanted": "at most 64 of a-z, A-Z, 0-9, ., _ and -"},
        ),
    ] = ""
    """The socket that the service manager passes under this name (``FileDescriptorName=``) is used
    instead of one made by the daemon, and so is one with the same address. ``mode``, ``owner`` and
    ``group`` are then those that it has.
    """
    mode: Annotated[
        str,
        msgspec.Meta(
            pattern="^0?[0-7]{3}$", extra={"wanted": 'permissions in octal digits, such as "0660"'}
        ),
    ] = "0600"
    """The socket file's permissions, octal; who may write to it may use it."""
    owner: str = ""
    """The user who owns the socket file; empty leaves it to the daemon's."""
    group: str = ""
    """Its group; likewise."""
    serve: Annotated[
        tuple[Literal["control", "inference", "probe"], ...], msgspec.Meta(min_length=1)
    ] = ("control", "inference", "probe")
    """The groups of routes; ``control`` on Unix sockets only."""
    api_keys: str = ""
    """The absolute path of a file of API keys, which ``inference`` then asks for; empty for none.
    """
    allow_without_key: bool = False
    """Whether ``inference`` on a loopback TCP address may be used by every user of the machine."""
    allowed_hosts: Strings = ()
    """Names besides ``localhost`` by which such a listener may be called: no web page from
    elsewhere may use it.
    """
    max_body: BufferSize = 16 * 2**20
    """A longer request body is refused."""
    max_connections: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 1024
    """Open connections; one more takes the place of the one that has been without a request for
    longest, or is closed at once if all have one.
    """
    send_timeout: Interval = 10.0
    """A send without progress for this long breaks the connection."""
    body_timeout: Interval = 30.0
    """A request's body must have arrived after this."""
    idle_timeout: Interval = 75.0
    """A connection without a request is closed after this."""
    sse_keep_alive: Interval = 15.0
    """After this long without output, a completion that is streamed as events sends a comment."""


class Config(Table, frozen=True, kw_only=True):
    """The whole file."""

    daemon: DaemonConfig = msgspec.field(default_factory=DaemonConfig)
    log: LogConfig = msgspec.field(default_factory=LogConfig)
    listen: Annotated[tuple[ListenConfig, ...], msgspec.Meta(min_length=1)] = msgspec.field(
        default_factory=lambda: (ListenConfig(),)
    )
    pool: dict[PoolName, PoolConfig] = msgspec.field(default_factory=dict)
