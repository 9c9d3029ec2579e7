"""Every key of a pool: ``[pool.NAME]`` and the tables in it."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from supervisord_llm.config.kinds import (
    INT32_MAX,
    AgeLimit,
    Argv,
    BufferSize,
    Count,
    Cpus,
    Duration,
    Environment,
    GroupName,
    Interval,
    MemoryLimit,
    Strings,
    Table,
)
from supervisord_llm.config.templates import Template


class LoadLimits(Table, frozen=True, kw_only=True):
    """``[pool.NAME.load_limits]``: from the spawn to the ready line."""

    timeout: Interval = 600.0
    """For the whole of it."""
    stall: Interval = 60.0
    """Without a heartbeat, a line on stderr, I/O or CPU time spent."""


class CancelConfig(Table, frozen=True, kw_only=True):
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
    on_uncancellable: Literal["terminate", "detach", "auto"] = "terminate"
    """What follows where a worker cannot be asked: end it, let it finish unheard, or what is
    shorter by what was observed."""
    detach_timeout: Interval = 300.0
    """How long a worker may take to finish unheard; then it is ended."""
    self_test: bool = False
    """Whether a new worker must end a cancelled trial request in time before it takes work."""


class HealthConfig(Table, frozen=True, kw_only=True):
    """``[pool.NAME.health]``: how a stuck worker is told from a slow one."""

    probe_interval: Interval = 10.0
    """Between two probes of an idle worker."""
    probe_timeout: Interval = 5.0
    """For the answer to a probe."""
    first_token_stall: Interval = 60.0
    """Before the first token, without any sign of progress."""
    token_stall: Interval = 30.0
    """Between tokens, without any sign of progress."""


class RestartConfig(Table, frozen=True, kw_only=True):
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


class QueueConfig(Table, frozen=True, kw_only=True):
    """``[pool.NAME.queue]``: requests that wait, and output that waits for its client."""

    max_queued: Count = 256
    """One more is refused. It counts the one that a free slot takes at once, so 0 admits none."""
    queue_timeout: Interval = 60.0
    """A request that has waited this long fails."""
    deadline: Interval = 600.0
    """From a request's acceptance to its end, the wait included; then it is cancelled."""
    max_attempts: Annotated[int, msgspec.Meta(ge=1, le=10)] = 2
    """A request that has no output yet when its worker dies is run again, this often in all."""
    age_step: Interval = 5.0
    """A waiting request gains one step of priority each time it has waited this long."""
    mailbox_tokens: Count = 1024
    """Tokens that a slow client may leave unread before its request fails."""
    mailbox_bytes: BufferSize = 2**20
    """The same in bytes of text."""


class LimitsConfig(Table, frozen=True, kw_only=True):
    """``[pool.NAME.limits]``: what a worker's process gets of the machine, and for how long."""

    memory_soft: MemoryLimit = None
    """With more memory than this, its descendants' included, it is replaced when its work is
    done; empty for no limit."""
    memory_hard: MemoryLimit = None
    """With more than this it is ended at once, and the kernel refuses it more where it can."""
    max_requests: Annotated[int, msgspec.Meta(ge=0, le=INT32_MAX)] = 0
    """Having served about this many it is replaced, each worker a little earlier than the limit so
    that not all are at once; 0 for no limit."""
    max_age: AgeLimit = None
    """Having been in service for about this long it is replaced, likewise; empty for no limit."""
    nice: Annotated[int, msgspec.Meta(ge=-20, le=19)] = 0
    """Scheduling priority, -20 (first) to 19 (last)."""
    oom_score_adj: Annotated[int, msgspec.Meta(ge=-1000, le=1000)] = 500
    """How soon the kernel picks the worker when memory runs out, -1000 (never) to 1000 (first)."""
    cpus: Literal["auto"] | tuple[Cpus, ...] = "auto"
    """Cores per slot, one entry each (those on standby too); ``auto`` divides those that no pool
    names among the slots."""


class SamplingConfig(Table, frozen=True, kw_only=True):
    """``[pool.NAME.sampling]``: for requests that do not say."""

    temperature: Annotated[float, msgspec.Meta(ge=0, le=100)] = 0.0
    """0 always takes the likeliest token."""
    max_new_tokens: Count = 512
    """The most tokens of an answer."""


class PoolConfig(Table, frozen=True, kw_only=True):
    """``[pool.NAME]``: one model, served by some workers that are all started alike."""

    command: Argv
    """A bare program name is looked up among our own scripts first, then in the worker's PATH."""
    models: Strings = ()
    """Names that clients may use for it besides the pool's own."""
    dialect: Literal["auto", "serial"] = "auto"
    """What the worker must speak; ``auto`` takes what it announces."""
    workers: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 1
    """How many slots take work."""
    standby: Annotated[int, msgspec.Meta(ge=0, le=1024)] = 0
    """How many more are kept loaded, and take work only while one of the others does not serve."""
    min_ready: Annotated[int, msgspec.Meta(ge=0, le=1024)] = 1
    """Slots that must serve for the pool to be ready."""
    required: bool = True
    """Whether the daemon's readiness depends on this pool's."""
    reload: Literal["surge", "restart"] = "surge"
    """Whether a replacement is loaded before the old worker is drained, which takes the memory of
    both, or afterwards."""
    load: Literal["eager", "on_demand"] = "eager"
    """Whether workers are started with the daemon, or when a request needs them."""
    idle_ttl: Interval = 600.0
    """A pool that is loaded on demand is unloaded after this long without a request."""
    exclusive: GroupName = ""
    """The group of pools of which only one is loaded at a time; empty for none."""
    chat_template: Template = None
    """The Jinja file that makes prompts of messages, for a model that has no template or a wrong
    one; it is read with the configuration."""
    session_ttl: Interval = 1800.0
    """A session that was not used for this long is closed."""
    env: Environment = msgspec.field(default_factory=dict)
    """Variables for the workers, besides the few that they inherit."""
    pass_env: Strings = ()
    """Variables of the daemon's that the workers get too, where they are set."""
    per_slot_env: tuple[Environment, ...] = ()
    """Variables per slot, one table each (those on standby too), or no table at all."""
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

    @property
    def slots(self) -> int:
        """How many slots the file asks for: those that take work, and those on standby."""
        return self.workers + self.standby
