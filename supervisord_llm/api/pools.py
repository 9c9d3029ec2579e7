"""``/api/v1/pools``: the configuration in force, the live state, and the commands for a pool."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import cast

import msgspec
from msgspec import inspect
from starlette.requests import Request
from starlette.types import ASGIApp

from supervisord_llm.api.bodies import as_bool, decode_body, read_query
from supervisord_llm.api.commands import command
from supervisord_llm.api.front import Front
from supervisord_llm.api.inbox import read_body, read_no_body, until_disconnect
from supervisord_llm.api.replies import json_reply
from supervisord_llm.config.dump import plain
from supervisord_llm.config.schema import PoolConfig
from supervisord_llm.core.words import SlotState
from supervisord_llm.errors import NotFound
from supervisord_llm.runtime.pool import Pool
from supervisord_llm.schema import ModelInfo, PoolInfo, PoolReply, Pools, ScaleRequest
from supervisord_llm.wire.messages import Model

_CONFIG = inspect.type_info(PoolConfig)
_scale_decoder = msgspec.json.Decoder(ScaleRequest)


async def index(front: Front, request: Request) -> ASGIApp:
    """Answer with every pool, in the configuration's order."""
    read_query(request)
    return json_reply(Pools(pools=[_info(pool) for pool in front.supervisor.pools.values()]))


async def show(front: Front, request: Request) -> ASGIApp:
    """Answer with one pool."""
    read_query(request)
    return json_reply(_info(_find_pool(front, request)))


async def reload(front: Front, request: Request) -> ASGIApp:
    """Replace each worker of a pool without losing a request: 202, or 200 after ``wait``."""
    return await _command(front, request, "reload", lambda pool: pool.reload())


async def drain(front: Front, request: Request) -> ASGIApp:
    """Let a pool finish what it has and take nothing new: 202, or 200 after ``wait``."""
    return await _command(front, request, "drain", lambda pool: pool.drain())


async def resume(front: Front, request: Request) -> ASGIApp:
    """Bring a drained pool back, and its slots that are parked or stopped: 202, or 200 later."""
    return await _command(front, request, "resume", lambda pool: pool.resume())


async def scale(front: Front, request: Request) -> ASGIApp:
    """Give a pool ``{"workers": N}``; those that are too many finish first. 202, or 200 later."""
    with command(front, request, "scale", request.path_params["pool"]) as asked:
        wait = read_query(request, wait=as_bool).get("wait", False)
        workers = decode_body(await read_body(request), _scale_decoder).workers
        asked.detail = f"{workers} workers"
        pool = _find_pool(front, request)
        pool.scale(workers)
        asked.result = "accepted"
    return await _settled(request, pool, wait=wait)


async def _command(
    front: Front, request: Request, verb: str, carry_out: Callable[[Pool], None]
) -> ASGIApp:
    with command(front, request, verb, request.path_params["pool"]) as asked:
        wait = read_query(request, wait=as_bool).get("wait", False)
        await read_no_body(request)
        pool = _find_pool(front, request)
        carry_out(pool)
        asked.result = "accepted"
    return await _settled(request, pool, wait=wait)


async def _settled(request: Request, pool: Pool, *, wait: bool) -> ASGIApp:
    """Answer a command; a client that leaves while it waits has commanded all the same."""
    if wait:
        await until_disconnect(request, pool.wait_settled)
    reply = PoolReply(
        pool=pool.name,
        target=pool.target,
        standby=pool.standby,
        drained=pool.drained,
        reloading=pool.reloading,
        revision=pool.revision,
        states=states(pool),
    )
    return json_reply(reply, status=200 if wait else 202)


def states(pool: Pool) -> dict[SlotState, int]:
    """Count the pool's slots by state; states without a slot are left out."""
    return dict(Counter(slot.state for slot in pool.slots))


def _find_pool(front: Front, request: Request) -> Pool:
    name = request.path_params["pool"]
    pool = front.supervisor.pools.get(name)
    if pool is None:
        known = ", ".join(front.supervisor.pools)
        raise NotFound(f"cannot find pool {name[:80]!r}; there are: {known}", param="pool")
    return pool


def _info(pool: Pool) -> PoolInfo:
    return PoolInfo(
        name=pool.name,
        ready=pool.ready,
        required=pool.config.required,
        min_ready=pool.config.min_ready,
        workers=len(pool.slots),
        target=pool.target,
        standby=pool.standby,
        drained=pool.drained,
        loaded=pool.loaded,
        reloading=pool.reloading,
        revision=pool.revision,
        sessions=pool.sessions,
        states=states(pool),
        queued=pool.queued,
        in_flight=pool.in_flight,
        model=None if pool.model is None else _model_info(pool, pool.model),
        config=cast("dict[str, object]", plain(_CONFIG, pool.config)),
    )


def _model_info(pool: Pool, model: Model) -> ModelInfo:
    return ModelInfo(
        id=model.id,
        context_length=model.context_length,
        parameters=model.parameters,
        quantization=model.quantization,
        chat_template=(model.chat_template or pool.config.chat_template) is not None,
    )
