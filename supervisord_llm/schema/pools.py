"""Pools: their live state, their model, and the commands for them."""

from __future__ import annotations

from typing import Annotated

import msgspec

from supervisord_llm.core.words import SlotState
from supervisord_llm.schema.base import Request

WORKERS_MAX = 1024


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a pool's workers said about their model."""

    id: str | None = None
    context_length: int | None = None
    parameters: int | None = None
    quantization: str | None = None
    chat_template: bool = False
    """Whether ``messages`` can be rendered for it."""


class PoolInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A pool's live state and the configuration in force."""

    name: str
    ready: bool
    """Whether at least ``min_ready`` slots serve, or would on demand."""
    required: bool
    min_ready: int
    workers: int
    """Slots that there are now."""
    target: int = 0
    """Workers that are wanted: the configuration's, or those of the last ``scale``."""
    standby: int = 0
    """How many more are kept loaded, to take over at once."""
    drained: bool = False
    """Whether an operator has taken it out of service: it takes no requests."""
    loaded: bool = True
    """Whether its model is meant to be in memory; a request loads one that is not."""
    reloading: bool = False
    """Whether workers are being replaced by others of the last revision."""
    revision: int = 0
    """Counts the reloads; a worker of an older one is due to be replaced."""
    sessions: int = 0
    """Sessions with a name whose context its workers hold."""
    states: dict[SlotState, int]
    queued: int
    in_flight: int
    model: ModelInfo | None
    config: dict[str, object]


class Pools(msgspec.Struct, frozen=True, kw_only=True):
    """``GET /api/v1/pools``."""

    pools: list[PoolInfo]


class ScaleRequest(Request, frozen=True, kw_only=True):
    """The body of ``POST /api/v1/pools/{pool}/scale``."""

    workers: Annotated[int, msgspec.Meta(ge=1, le=WORKERS_MAX)]
    """Workers that the pool is to have, until its configuration changes or the daemon ends."""


class PoolReply(msgspec.Struct, frozen=True, kw_only=True):
    """A command for one pool was taken (``reload``, ``drain``, ``resume``, ``scale``)."""

    pool: str
    target: int
    standby: int
    drained: bool
    reloading: bool
    revision: int
    states: dict[SlotState, int]
    """What its slots do now that it was told."""


class PoolSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A pool in ``GET /api/v1/status``."""

    name: str
    ready: bool
    states: dict[SlotState, int]
    queued: int
    in_flight: int


class PoolHealth(msgspec.Struct, frozen=True, kw_only=True):
    """One pool's part of ``GET /health``."""

    status: str
    ready: int
    min_ready: int
    workers: int
    required: bool
    reason: str | None = None


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """``GET /health``: ``healthy``, ``degraded`` or ``unavailable``."""

    status: str
    pools: dict[str, PoolHealth]
