"""Workers, from the slot that they are for to their reaping."""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec

from supervisord_llm.core.words import (
    Dialect,
    Extension,
    SlotState,
    TeardownStage,
)
from supervisord_llm.events.base import Event, Level


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
    requests: list[str] = msgspec.field(default_factory=list)
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
    requests: list[str] = msgspec.field(default_factory=list)
    last_lines: list[str] = msgspec.field(default_factory=list)


class WorkerSignalled(Event, tag_field="event", tag="worker.signalled", frozen=True, kw_only=True):
    """A signal was sent to a worker, its group, or its descendants."""

    pool: str
    worker: str
    generation: int
    signal: str
    target: Literal["pid", "group", "descendants"]
    pids: list[int] = msgspec.field(default_factory=list)


class WorkerExited(Event, tag_field="event", tag="worker.exited", frozen=True, kw_only=True):
    """A worker's process ended (it is not reaped yet)."""

    pool: str
    worker: str
    generation: int
    exit: str
    uptime_seconds: float
    served: int
    expected: bool
    last_lines: list[str] = msgspec.field(default_factory=list)


class WorkerReaped(Event, tag_field="event", tag="worker.reaped", frozen=True, kw_only=True):
    """A worker's exit status was collected and its descendants are gone."""

    pool: str
    worker: str
    generation: int
    exit: str
    descendants: list[int] = msgspec.field(default_factory=list)


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
    last_lines: list[str] = msgspec.field(default_factory=list)


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
