"""``/livez``, ``/readyz`` and ``/health``: three questions that must not be confused.

*Live* is about the daemon's own loop, whatever its models do. *Ready* is about sending it work.
*Health* is for people: which pools serve fully, which partly, which not. A cancellation within its
grace is normal service in all three, and none of them costs a worker anything.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.types import ASGIApp

from supervisord_llm.api.bodies import as_bool, read_query
from supervisord_llm.api.front import Front
from supervisord_llm.api.replies import json_reply, text_reply
from supervisord_llm.runtime.pool import Pool
from supervisord_llm.schema import Health, PoolHealth


async def livez(front: Front, request: Request) -> ASGIApp:
    """200 while the event loop turns in time, else 503."""
    read_query(request, verbose=as_bool)
    if front.live():
        return text_reply("live\n")
    return text_reply("not live: the event loop is late\n", status=503)


async def readyz(front: Front, request: Request) -> ASGIApp:
    """200 when every required pool can serve and no shutdown has begun; ``verbose`` says why."""
    verbose = read_query(request, verbose=as_bool).get("verbose", False)
    ready = _ready(front)
    lines = ["ready" if ready else "not ready"]
    if verbose:
        if front.supervisor.stopping:
            lines.append("daemon: shutting down")
        lines += [_verdict(pool) for pool in front.supervisor.pools.values()]
    return text_reply("\n".join(lines) + "\n", status=200 if ready else 503)


async def health(front: Front, request: Request) -> ASGIApp:
    """Each pool's condition, and the whole daemon's; 503 only when it is ``unavailable``."""
    read_query(request)
    pools = {name: _pool_health(pool) for name, pool in front.supervisor.pools.items()}
    if not _ready(front):
        status = "unavailable"
    elif any(pool.status != "healthy" for pool in pools.values()):
        status = "degraded"
    else:
        status = "healthy"
    return json_reply(
        Health(status=status, pools=pools), status=503 if status == "unavailable" else 200
    )


def _ready(front: Front) -> bool:
    """Whether the daemon should be sent work: optional pools do not count."""
    supervisor = front.supervisor
    return not supervisor.stopping and all(
        pool.ready for pool in supervisor.pools.values() if pool.config.required
    )


def _verdict(pool: Pool) -> str:
    verdict = "ready" if pool.ready else "not ready"
    counts = f"{pool.serving} of {len(pool.slots)} slots serve, {pool.config.min_ready} needed"
    optional = "" if pool.config.required else "; optional"
    because = f" ({pool.unavailable_because})" if pool.unavailable_because else ""
    return f"pool {pool.name}: {verdict}: {counts}{optional}{because}"


def _pool_health(pool: Pool) -> PoolHealth:
    if pool.on_call:
        status = "healthy"
    elif not pool.ready or pool.serving == 0:
        status = "unavailable"
    elif pool.serving < len(pool.slots):
        status = "degraded"
    else:
        status = "healthy"
    return PoolHealth(
        status=status,
        ready=pool.serving,
        min_ready=pool.config.min_ready,
        workers=len(pool.slots),
        required=pool.config.required,
        reason=pool.unavailable_because,
    )
