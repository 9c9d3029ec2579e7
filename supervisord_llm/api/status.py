"""``GET /api/v1/status``: the daemon at one glance."""

from __future__ import annotations

import os

from starlette.requests import Request
from starlette.types import ASGIApp

from supervisord_llm.api.bodies import read_query
from supervisord_llm.api.front import Front
from supervisord_llm.api.pools import states
from supervisord_llm.api.replies import json_reply
from supervisord_llm.core.words import SlotState
from supervisord_llm.schema import PoolSummary, Status, Totals


async def show(front: Front, request: Request) -> ASGIApp:
    """Answer with version, uptime, pools with counts by state, queue depth and totals."""
    read_query(request)
    supervisor = front.supervisor
    pools = [
        PoolSummary(
            name=pool.name,
            ready=pool.ready,
            states=states(pool),
            queued=pool.queued,
            in_flight=pool.in_flight,
        )
        for pool in supervisor.pools.values()
    ]
    totals = front.totals
    return json_reply(
        Status(
            version=front.version,
            boot=supervisor.boot,
            pid=os.getpid(),
            state=_state(front),
            uptime_seconds=round(supervisor.clock.now() - supervisor.started_at, 3),
            config=front.config_path,
            pools=pools,
            queued=sum(pool.queued for pool in pools),
            totals=Totals(
                accepted=totals.accepted,
                completed=totals.completed,
                cancelled=totals.cancelled,
                failed=totals.failed,
                rejected=totals.rejected,
                restarts=totals.restarts,
            ),
            cancellations=dict(totals.cancellations),
        )
    )


def _state(front: Front) -> str:
    """``starting`` until each required pool is ready or has a verdict on its first workers."""
    supervisor = front.supervisor
    if supervisor.stopping:
        return "stopping"
    loading = any(
        pool.config.required
        and not pool.ready
        and any(slot.state is SlotState.STARTING and slot.last_exit is None for slot in pool.slots)
        for pool in supervisor.pools.values()
    )
    return "starting" if loading else "running"
