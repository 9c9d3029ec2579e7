"""``GET /api/v1/pools`` and ``/api/v1/pools/{pool}``: configuration in force and live state."""

from __future__ import annotations

from collections import Counter
from typing import cast

from starlette.requests import Request
from starlette.types import ASGIApp

from supervisord_llm.api.bodies import read_query
from supervisord_llm.api.front import Front
from supervisord_llm.api.replies import json_reply
from supervisord_llm.config.dump import effective
from supervisord_llm.core.words import SlotState
from supervisord_llm.errors import NotFound
from supervisord_llm.runtime.pool import Pool
from supervisord_llm.schema import ModelInfo, PoolInfo, Pools
from supervisord_llm.wire.messages import Model


async def index(front: Front, request: Request) -> ASGIApp:
    """Answer with every pool, in the configuration's order."""
    read_query(request)
    return json_reply(Pools(pools=[_info(front, pool) for pool in front.supervisor.pools.values()]))


async def show(front: Front, request: Request) -> ASGIApp:
    """Answer with one pool."""
    read_query(request)
    name = request.path_params["pool"]
    pool = front.supervisor.pools.get(name)
    if pool is None:
        known = ", ".join(front.supervisor.pools)
        raise NotFound(f"cannot find pool {name!r}; there are: {known}", param="pool")
    return json_reply(_info(front, pool))


def states(pool: Pool) -> dict[SlotState, int]:
    """Count the pool's slots by state; states without a slot are left out."""
    return dict(Counter(slot.state for slot in pool.slots))


def _info(front: Front, pool: Pool) -> PoolInfo:
    configs = cast("dict[str, dict[str, object]]", effective(front.config)["pool"])
    return PoolInfo(
        name=pool.name,
        ready=pool.ready,
        required=pool.config.required,
        min_ready=pool.config.min_ready,
        workers=len(pool.slots),
        states=states(pool),
        queued=pool.queued,
        in_flight=pool.in_flight,
        model=None if pool.model is None else _model_info(pool.model),
        config=configs[pool.name],
    )


def _model_info(model: Model) -> ModelInfo:
    return ModelInfo(
        id=model.id,
        context_length=model.context_length,
        parameters=model.parameters,
        quantization=model.quantization,
        chat_template=model.chat_template is not None,
    )
