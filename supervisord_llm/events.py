"""The typed event catalogue: everything that happens is one of these, and nothing is told twice.

Each class is one event; its tag is the name that logs, followers and metrics see. The event log
adds ``ts`` (RFC 3339, UTC, microseconds), ``seq`` (monotonic, without gaps) and ``level`` when it
records one. Optional fields that do not apply are left out of the rendering.

No event carries a prompt, generated text, an environment value or a secret. Durations end in
``_ms`` or ``_seconds``; sizes are bytes.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec

from supervisord_llm.core.words import (
    CancelledBy,
    Dialect,
    EscalationStage,
    Extension,
    FailureReason,
    FinishReason,
    Outcome,
    Resolution,
    SlotState,
    TeardownStage,
)

Level = Literal["debug", "info", "warning", "error"]


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The root of the catalogue; ``level`` is the class's severity in the log."""

    level: ClassVar[Level] = "info"


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
    differences: list[str] = []
    needs_restart: list[str] = []
    """Keys that changed in the file and take effect only when the daemon is started again."""


class ConfigRejected(Event, tag_field="event", tag="config.rejected", frozen=True, kw_only=True):
    """The configuration file was read again and is not valid; nothing changed."""

    level: ClassVar[Level] = "error"
    error: str


class WorkerAdded(Event, tag_field="event", tag="worker.added", frozen=True, kw_only=True):
    """There is a slot; it is ``stopped`` until its first worker is started."""

    level: ClassVar[Level] = "debug"
    pool: str
    worker: str


class WorkerRemoved(Event, tag_field="event", tag="worker.removed", frozen=True, kw_only=True):
    """A slot is no more: its pool has fewer of them now, or is no more itself."""

    level: ClassVar[Level] = "debug"
    pool: str
    worker: str


class WorkerSpawned(Event, tag_field="event", tag="worker.spawned", frozen=True, kw_only=True):
    """A process was started in a slot."""

    pool: str
    worker: str
    generation: int
    pid: int
    argv0: str


class WorkerReady(Event, tag_field="event", tag="worker.ready", frozen=True, kw_only=True):
    """A worker said that its model is loaded."""

    pool: str
    worker: str
    generation: int
    load_ms: float
    dialect: Dialect
    extensions: list[Extension]
    capacity: int


class WorkerState(Event, tag_field="event", tag="worker.state", frozen=True, kw_only=True):
    """A slot moved from one state to another."""

    level: ClassVar[Level] = "debug"
    pool: str
    worker: str
    generation: int
    from_: SlotState = msgspec.field(name="from")
    to: SlotState
    reason: str | None = None


class WorkerActivated(Event, tag_field="event", tag="worker.activated", frozen=True, kw_only=True):
    """A worker that was ready for it takes work now: another one does not serve, or is to leave."""

    pool: str
    worker: str
    generation: int


class WorkerRested(Event, tag_field="event", tag="worker.rested", frozen=True, kw_only=True):
    """A worker that serves stands by from now on: enough others take work."""

    pool: str
    worker: str
    generation: int


class WorkerDraining(Event, tag_field="event", tag="worker.draining", frozen=True, kw_only=True):
    """A worker gets no more work and is stopped, on purpose, when it has finished what it has."""

    pool: str
    worker: str
    generation: int
    reason: str
    detail: str | None = None
    """Which limit it has reached, where that is the reason."""
    requests: list[str] = []
    """What it still works on."""


class WorkerQuarantined(
    Event, tag_field="event", tag="worker.quarantined", frozen=True, kw_only=True
):
    """A worker was judged unfit and will be torn down; ``detail`` is the evidence."""

    level: ClassVar[Level] = "warning"
    pool: str
    worker: str
    generation: int
    reason: str
    stage: TeardownStage
    detail: str | None = None
    requests: list[str] = []
    last_lines: list[str] = []


class WorkerSignalled(Event, tag_field="event", tag="worker.signalled", frozen=True, kw_only=True):
    """A signal was sent to a worker, its group, or its descendants."""

    pool: str
    worker: str
    generation: int
    signal: str
    target: Literal["pid", "group", "descendants"]
    pids: list[int] = []


class WorkerExited(Event, tag_field="event", tag="worker.exited", frozen=True, kw_only=True):
    """A worker's process ended (it is not reaped yet)."""

    pool: str
    worker: str
    generation: int
    exit: str
    uptime_seconds: float
    served: int
    expected: bool
    last_lines: list[str] = []


class WorkerReaped(Event, tag_field="event", tag="worker.reaped", frozen=True, kw_only=True):
    """A worker's exit status was collected and its descendants are gone."""

    pool: str
    worker: str
    generation: int
    exit: str
    descendants: list[int] = []


class WorkerUnreapable(
    Event, tag_field="event", tag="worker.unreapable", frozen=True, kw_only=True
):
    """A process did not end although it was killed; reaping goes on, its slot stays occupied."""

    level: ClassVar[Level] = "error"
    pool: str
    worker: str
    generation: int
    pid: int
    elapsed_ms: float


class WorkerRestartScheduled(
    Event, tag_field="event", tag="worker.restart_scheduled", frozen=True, kw_only=True
):
    """The next generation starts after a delay."""

    pool: str
    worker: str
    generation: int
    attempt: int
    delay_ms: float
    reason: str


class WorkerParked(Event, tag_field="event", tag="worker.parked", frozen=True, kw_only=True):
    """A slot crash-looped and stays down until an operator acts."""

    level: ClassVar[Level] = "error"
    pool: str
    worker: str
    generation: int
    reason: str
    exit: str | None
    restarts: int
    last_lines: list[str] = []


class WorkerResumed(Event, tag_field="event", tag="worker.resumed", frozen=True, kw_only=True):
    """An operator brought a parked or stopped slot back."""

    pool: str
    worker: str
    generation: int


class WorkerLog(Event, tag_field="event", tag="worker.log", frozen=True, kw_only=True):
    """One line that a worker wrote to stderr; ``dropped`` lines before it were over the rate."""

    pool: str
    worker: str
    generation: int
    stream: Literal["stderr"]
    line: str
    dropped: int = 0


class WorkerUsage(Event, tag_field="event", tag="worker.usage", frozen=True, kw_only=True):
    """What a worker's process holds of memory and has used of CPU."""

    level: ClassVar[Level] = "debug"
    pool: str
    worker: str
    generation: int
    rss: int
    pss: int | None = None
    anonymous: int | None = None
    swap: int | None = None
    gpu: int | None = None
    held: int = 0
    """What would be free without it: its share of memory and swap, descendants included."""
    processes: int = 1
    """The worker and its descendants."""
    cpu_seconds: float = 0.0


class RequestAccepted(Event, tag_field="event", tag="request.accepted", frozen=True, kw_only=True):
    """The queue took a request; ``queued`` is how many are before it."""

    pool: str
    request: str
    queued: int


class RequestStarted(Event, tag_field="event", tag="request.started", frozen=True, kw_only=True):
    """A request was handed to a worker."""

    pool: str
    worker: str
    generation: int
    request: str
    attempt: int
    queued_ms: float


class RequestRetried(Event, tag_field="event", tag="request.retried", frozen=True, kw_only=True):
    """A request lost its worker before it had output, and waits for another."""

    level: ClassVar[Level] = "warning"
    pool: str
    request: str
    worker: str
    generation: int
    attempt: int
    """The attempt that failed, counted from 1."""
    reason: FailureReason


class RequestFirstToken(
    Event, tag_field="event", tag="request.first_token", frozen=True, kw_only=True
):
    """A request's first output arrived; ``ttft_ms`` counts from its acceptance."""

    level: ClassVar[Level] = "debug"
    pool: str
    worker: str
    generation: int
    request: str
    ttft_ms: float


class RequestFinished(Event, tag_field="event", tag="request.finished", frozen=True, kw_only=True):
    """A request's one terminal record was sealed.

    ``gaps`` counts the gaps between tokens that fell under each bound of ``GAP_BUCKETS`` (the last
    entry: above all of them).
    """

    pool: str
    request: str
    outcome: Outcome
    worker: str | None = None
    generation: int | None = None
    finish_reason: FinishReason | None = None
    cancelled_by: CancelledBy | None = None
    error: FailureReason | None = None
    suspect: bool = False
    """Each of its workers died with nothing but this request on it: perhaps the prompt kills."""
    detail: str | None = None
    tokens: int = 0
    """Token messages passed on to the client's mailbox."""
    prompt_tokens: int | None = None
    reused_tokens: int | None = None
    generated_tokens: int | None = None
    queued_ms: float
    ttft_ms: float | None = None
    total_ms: float
    gaps: list[int] = []
    gaps_ms: float = 0.0
    """All gaps together: from the first output to the last."""


GAP_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds, in seconds, of the buckets of ``RequestFinished.gaps``."""


class RequestLateTerminal(
    Event, tag_field="event", tag="request.late_terminal", frozen=True, kw_only=True
):
    """A second ending was proposed for a sealed request; it was counted, not delivered."""

    pool: str
    request: str
    kind: str


class RequestRejected(Event, tag_field="event", tag="request.rejected", frozen=True, kw_only=True):
    """A request was never accepted."""

    code: str
    pool: str | None = None
    field: str | None = None


class CancelRequested(Event, tag_field="event", tag="cancel.requested", frozen=True, kw_only=True):
    """Somebody asked for a request's end."""

    pool: str
    request: str
    by: CancelledBy
    worker: str | None = None
    generation: int | None = None


class CancelDelivered(Event, tag_field="event", tag="cancel.delivered", frozen=True, kw_only=True):
    """The first cancel frame was taken by the worker's control pipe.

    A request that fails as ``slow_consumer``, or in whose output a stop string was found, is ended
    at its worker in the same way, without ``cancel.requested`` before and ``cancel.settled`` after.
    """

    pool: str
    request: str
    worker: str
    generation: int
    stage: EscalationStage
    elapsed_ms: float


class CancelEscalated(Event, tag_field="event", tag="cancel.escalated", frozen=True, kw_only=True):
    """A rung of the ladder did not help within its grace; the next one was taken.

    ``request`` is absent where the ladder is climbed for another reason than a cancellation.
    """

    level: ClassVar[Level] = "warning"
    pool: str
    worker: str
    generation: int
    from_: EscalationStage | None = msgspec.field(name="from", default=None)
    to: EscalationStage
    elapsed_ms: float
    request: str | None = None


class CancelSettled(Event, tag_field="event", tag="cancel.settled", frozen=True, kw_only=True):
    """What became of the worker that a cancellation was aimed at is known."""

    pool: str
    request: str
    resolution: Resolution
    elapsed_ms: float
    worker: str | None = None
    generation: int | None = None


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


def catalogue() -> dict[str, type[Event]]:
    """Every event class by its name."""
    return {str(cls.__struct_config__.tag): cls for cls in Event.__subclasses__()}
