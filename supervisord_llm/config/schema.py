"""Every key of the configuration file with its meaning, its bounds and its default, and no others.

The field names are the keys. Durations are seconds and sizes are bytes in memory; in the file both
are text with a unit (``units``). ``load`` reads these Structs' annotations, so a bound is written
once, here. Placeholders such as ``{runtime_dir}`` in defaults are filled in by ``load``, and those
that differ from slot to slot by ``launch``.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from supervisord_llm.config.units import CPU_MAX, DURATION_MAX, SIZE_MAX
from supervisord_llm.core.words import PoolName

INT32_MAX = 2**31 - 1

Duration = Annotated[float, msgspec.Meta(ge=0, le=DURATION_MAX, extra={"unit": "duration"})]
"""Seconds, 0 allowed; ``"250ms"`` in the file."""

Interval = Annotated[float, msgspec.Meta(ge=0.001, le=DURATION_MAX, extra={"unit": "duration"})]
"""Seconds, at least a millisecond."""

Size = Annotated[int, msgspec.Meta(ge=1, le=SIZE_MAX, extra={"unit": "size"})]
"""Bytes, at least one; ``"1MiB"`` in the file."""

BufferSize = Annotated[int, msgspec.Meta(ge=1024, le=2**30, extra={"unit": "size"})]
"""Bytes of something held in memory as a whole: 1 KiB to 1 GiB."""

Cpus = Annotated[
    tuple[Annotated[int, msgspec.Meta(ge=0, le=CPU_MAX)], ...],
    msgspec.Meta(min_length=1, extra={"unit": "cpus"}),
]
"""Core numbers; ``"0-3,8"`` or ``[0, 1, 2, 3, 8]`` in the file."""

Count = Annotated[int, msgspec.Meta(ge=1, le=INT32_MAX)]
"""At least one."""

Strings = tuple[str, ...]
Environment = dict[str, Annotated[str, msgspec.Meta(extra={"secret": True})]]
"""Variables by name. Their values may be secrets, so no message and no dump shows them."""

Argv = Annotated[
    tuple[str, ...],
    msgspec.Meta(
        min_length=1, extra={"wanted": 'a list, such as ["sllm-llama-worker", "--model", "FILE"]'}
    ),
]
"""A program and its arguments."""


class _Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file."""


class DaemonConfig(_Table, frozen=True, kw_only=True):
    """``[daemon]``: the process itself."""

    state_dir: str = "{data_dir}"
    """The folder where running workers are recorded, so that the next start can end leftovers."""
    shutdown_drain: Duration = 30.0
    """How long running work may take after the first SIGTERM before it is cancelled."""
    max_loop_lag: Interval = 1.0
    """A daemon whose event loop is later than this is not live (``/livez``)."""


class LogConfig(_Table, frozen=True, kw_only=True):
    """``[log]``: the event log on stderr, and the ring that ``llmctl events`` reads."""

    format: Literal["auto", "json", "console"] = "auto"
    """``auto`` means columns on a terminal and JSON elsewhere."""
    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least level that is written to stderr; the ring takes all."""
    ring_events: Annotated[int, msgspec.Meta(ge=1, le=10_000_000)] = 10_000
    """Events that the ring holds."""


class ListenConfig(_Table, frozen=True, kw_only=True):
    """``[[listen]]``: a socket and what is served on it."""

    address: str = "unix:{runtime_dir}/control.sock"
    """``unix:`` and an absolute path of at most 107 bytes."""
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
    serve: Annotated[tuple[Literal["control", "probe"], ...], msgspec.Meta(min_length=1)] = (
        "control",
        "probe",
    )
    """The groups of routes."""
    max_body: BufferSize = 16 * 2**20
    """A longer request body is refused."""
    max_connections: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 1024
    """Open connections; one more is closed at once."""
    send_timeout: Interval = 10.0
    """A send without progress for this long breaks the connection."""
    body_timeout: Interval = 30.0
    """A request's body must have arrived after this."""
    idle_timeout: Interval = 75.0
    """A connection without a request is closed after this."""


class LoadLimits(_Table, frozen=True, kw_only=True):
    """``[pool.NAME.load_limits]``: from the spawn to the ready line."""

    timeout: Interval = 600.0
    """For the whole of it."""
    stall: Interval = 60.0
    """Without a heartbeat, a line on stderr, I/O or CPU time spent."""


class CancelConfig(_Table, frozen=True, kw_only=True):
    """``[pool.NAME.cancel]``: the ladder from asking a worker nicely to its exit status."""

    cancellation: Literal["auto", "required", "off"] = "auto"
    """Whether to ask at all: where the worker offers it, it must offer it, or never."""
    cooperative_grace: Duration = 2.0
    """For the worker's word after it was asked; also bounds the client's wait."""
    prefill_grace: Duration = 10.0
    """The same for a worker in prefill that cannot be interrupted there."""
    terminate_grace: Duration = 3.0
    """From SIGTERM to SIGKILL."""
    kill_grace: Duration = 2.0
    """From SIGKILL to the exit."""
    reap_grace: Duration = 5.0
    """From the exit to the status taken; then the slot is reported as unreapable."""


class HealthConfig(_Table, frozen=True, kw_only=True):
    """``[pool.NAME.health]``: how a stuck worker is told from a slow one."""

    probe_interval: Interval = 10.0
    """Between two probes of an idle worker."""
    probe_timeout: Interval = 5.0
    """For the answer to a probe."""
    first_token_stall: Interval = 60.0
    """Before the first token, without any sign of progress."""
    token_stall: Interval = 30.0
    """Between tokens, without any sign of progress."""


class RestartConfig(_Table, frozen=True, kw_only=True):
    """``[pool.NAME.restart]``: what follows when a worker was lost."""

    backoff_initial: Interval = 0.5
    """The first wait; each further one is twice as long."""
    backoff_max: Interval = 30.0
    """The longest wait."""
    jitter: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.2
    """The share by which a wait varies either way."""
    healthy_after: Duration = 60.0
    """In service for this long, a worker's failures are forgotten."""
    max_restarts: Annotated[int, msgspec.Meta(ge=0, le=INT32_MAX)] = 5
    """More than this many within the window park the slot."""
    restart_window: Interval = 300.0
    """How far back failures count."""


class QueueConfig(_Table, frozen=True, kw_only=True):
    """``[pool.NAME.queue]``: requests that wait, and output that waits for its client."""

    max_queued: Count = 256
    """One more is refused. It counts the one that a free slot takes at once, so 0 admits none."""
    queue_timeout: Interval = 60.0
    """A request that has waited this long fails."""
    mailbox_tokens: Count = 1024
    """Tokens that a slow client may leave unread before its request fails."""
    mailbox_bytes: BufferSize = 2**20
    """The same in bytes of text."""


class LimitsConfig(_Table, frozen=True, kw_only=True):
    """``[pool.NAME.limits]``: what a worker's process gets of the machine."""

    nice: Annotated[int, msgspec.Meta(ge=-20, le=19)] = 0
    """Scheduling priority, -20 (first) to 19 (last)."""
    oom_score_adj: Annotated[int, msgspec.Meta(ge=-1000, le=1000)] = 500
    """How soon the kernel picks the worker when memory runs out, -1000 (never) to 1000 (first)."""
    cpus: Literal["auto"] | tuple[Cpus, ...] = "auto"
    """Cores per slot, one entry each; ``auto`` divides those that no pool names among the slots."""


class SamplingConfig(_Table, frozen=True, kw_only=True):
    """``[pool.NAME.sampling]``: for requests that do not say."""

    temperature: Annotated[float, msgspec.Meta(ge=0, le=100)] = 0.0
    """0 always takes the likeliest token."""
    max_new_tokens: Count = 512
    """The most tokens of an answer."""


class PoolConfig(_Table, frozen=True, kw_only=True):
    """``[pool.NAME]``: one model, served by some workers that are all started alike."""

    command: Argv
    """A bare program name is looked up among our own scripts first, then in the worker's PATH."""
    dialect: Literal["auto", "serial"] = "auto"
    """What the worker must speak; ``auto`` takes what it announces."""
    workers: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 1
    """How many slots."""
    min_ready: Annotated[int, msgspec.Meta(ge=0, le=1024)] = 1
    """Slots that must serve for the pool to be ready."""
    required: bool = True
    """Whether the daemon's readiness depends on this pool's."""
    env: Environment = {}
    """Variables for the workers, besides the few that they inherit."""
    pass_env: Strings = ()
    """Variables of the daemon's that the workers get too, where they are set."""
    per_slot_env: tuple[Environment, ...] = ()
    """Variables per slot, one table each, or no table at all."""
    max_line: BufferSize = 2**20
    """The longest line that a worker may write."""
    stdin_timeout: Interval = 5.0
    """For a write to the worker to get through."""
    heartbeat: Annotated[float, msgspec.Meta(ge=0.01, le=3600, extra={"unit": "duration"})] = 0.5
    """The interval at which a worker that can is asked to beat."""
    load_limits: LoadLimits = msgspec.field(default_factory=LoadLimits)
    cancel: CancelConfig = msgspec.field(default_factory=CancelConfig)
    health: HealthConfig = msgspec.field(default_factory=HealthConfig)
    restart: RestartConfig = msgspec.field(default_factory=RestartConfig)
    queue: QueueConfig = msgspec.field(default_factory=QueueConfig)
    limits: LimitsConfig = msgspec.field(default_factory=LimitsConfig)
    sampling: SamplingConfig = msgspec.field(default_factory=SamplingConfig)


class Config(_Table, frozen=True, kw_only=True):
    """The whole file."""

    daemon: DaemonConfig = msgspec.field(default_factory=DaemonConfig)
    log: LogConfig = msgspec.field(default_factory=LogConfig)
    listen: Annotated[tuple[ListenConfig, ...], msgspec.Meta(min_length=1)] = msgspec.field(
        default_factory=lambda: (ListenConfig(),)
    )
    pool: dict[PoolName, PoolConfig] = {}
