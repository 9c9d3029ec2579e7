"""Slots, the workers in them, and what the workers wrote."""

from __future__ import annotations

import msgspec

from supervisord_llm.core.words import Dialect, Extension, SlotState, TeardownStage


class LastExit(msgspec.Struct, frozen=True, kw_only=True):
    """How the previous generation of a slot ended."""

    exit: str
    reason: str | None
    at: str
    generation: int
    last_lines: list[str]


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's memory in bytes; ``None`` where the kernel does not say."""

    rss: int
    pss: int | None = None
    anonymous: int | None = None
    swap: int | None = None
    gpu: int | None = None
    held: int | None = None
    """What would be free without it: its share of memory and swap, descendants included."""
    processes: int = 1
    """The worker and its descendants."""


class WorkerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A slot and the worker in it."""

    slot: str
    pool: str
    state: SlotState
    active: bool = True
    """Whether it may take work; a standby worker may once another one does not serve."""
    revision: int = 0
    """The revision of its pool that its worker was started, or starts, with."""
    stage: TeardownStage | None
    since: str
    reason: str | None
    pid: int | None
    generation: int
    dialect: Dialect | None
    extensions: list[Extension]
    capacity: int
    requests: list[str]
    served: int
    tokens: int = 0
    """How many tokens its worker has written so far, those of requests under way included."""
    restarts: int
    next_start_in_ms: float | None
    last_exit: LastExit | None
    memory: Memory | None
    cpu_seconds: float | None


class Workers(msgspec.Struct, frozen=True, kw_only=True):
    """``GET /api/v1/workers``."""

    workers: list[WorkerInfo]


class SlotReply(msgspec.Struct, frozen=True, kw_only=True):
    """A command for one slot was taken (``reload``, ``drain``, ``quarantine``, ``resume``)."""

    slot: str
    state: SlotState
    """What the slot does now that it was told."""
    generation: int
    """The worker that it had, or had had, when it was told."""


class LogLine(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="line"):
    """One line that a slot's worker wrote to stderr."""

    number: int
    """Counted from 1 for each slot, across its generations."""
    at: str
    generation: int
    text: str
