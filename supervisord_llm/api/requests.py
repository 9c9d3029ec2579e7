"""``/api/v1/requests``: what is in flight, queued or recently finished, and how to cancel it."""

from __future__ import annotations

from collections.abc import Iterable

from starlette.requests import Request as HttpRequest
from starlette.types import ASGIApp

from supervisord_llm.api import records
from supervisord_llm.api.bodies import as_bool, read_query
from supervisord_llm.api.commands import command
from supervisord_llm.api.front import Front
from supervisord_llm.api.inbox import read_no_body, until_disconnect
from supervisord_llm.api.replies import json_reply
from supervisord_llm.core.words import CancelledBy, RequestId
from supervisord_llm.runtime.clock import Clock
from supervisord_llm.runtime.pool import Pool
from supervisord_llm.runtime.request import Request
from supervisord_llm.runtime.supervisor import Supervisor
from supervisord_llm.schema import RequestInfo, Requests, Timings


async def index(front: Front, request: HttpRequest) -> ASGIApp:
    """Answer with the requests that are remembered and those under way, newest last."""
    read_query(request)
    found = front.supervisor.requests()
    positions = _positions(front.supervisor.pools.values())
    clock = front.supervisor.clock
    return json_reply(
        Requests(requests=[_info(clock, each, positions.get(each.id)) for each in found])
    )


async def show(front: Front, request: HttpRequest) -> ASGIApp:
    """Answer with one request."""
    read_query(request)
    found = front.supervisor.find_request(request.path_params["id"])
    return json_reply(_info_of_one(front.supervisor, found))


async def cancel(front: Front, request: HttpRequest) -> ASGIApp:
    """Cancel a request: 202, or 200 if it is terminal already, or, with ``wait``, by then.

    A client that leaves while it waits has cancelled all the same.
    """
    id_ = request.path_params["id"]
    with command(front, request, "cancel", id_) as asked:
        wait = read_query(request, wait=as_bool).get("wait", False)
        await read_no_body(request)
        found = front.supervisor.find_request(id_)
        asked.result = "accepted" if found.record is None else "finished"
        found.cancel(CancelledBy.API)
    if wait:
        await until_disconnect(request, found.wait_finished)
    return json_reply(
        _info_of_one(front.supervisor, found), status=202 if found.record is None else 200
    )


def _positions(pools: Iterable[Pool]) -> dict[RequestId, int]:
    """Number those that wait, pool by pool, in the order in which they would be served."""
    return {id_: place for pool in pools for place, id_ in enumerate(pool.order(), start=1)}


def _info_of_one(supervisor: Supervisor, request: Request) -> RequestInfo:
    pool = supervisor.pools.get(request.pool)  # the configuration may have lost it
    positions = {} if pool is None else _positions([pool])
    return _info(supervisor.clock, request, positions.get(request.id))


def _info(clock: Clock, request: Request, position: int | None) -> RequestInfo:
    record = request.record
    return RequestInfo(
        id=request.id,
        pool=request.pool,
        state=request.state,
        position=position,
        worker=request.worker,
        generation=request.generation,
        attempt=request.attempt,
        priority=request.priority,
        client=request.client,
        session_id=request.session_id,
        accepted_at=clock.rfc3339(request.accepted_at),
        outcome=None if record is None else record.outcome,
        finish_reason=None if record is None else record.finish_reason,
        cancelled_by=None if record is None else record.cancelled_by,
        cancel=None if record is None else records.cancellation(record),
        cancel_raced=record is not None and record.cancel_raced,
        resolution=request.resolution,
        settled_ms=None if request.settled_ms is None else round(request.settled_ms, 3),
        error=None if record is None else records.failure(record),
        tokens=request.tokens,
        usage=None if record is None else records.usage(record),
        timings=_timings_so_far(clock, request) if record is None else records.timings(record),
    )


def _timings_so_far(clock: Clock, request: Request) -> Timings:
    accepted, assigned, first = request.accepted_at, request.assigned_at, request.first_at
    now = clock.now()
    return Timings(
        queued_ms=round(((assigned or now) - accepted) * 1000, 3),
        ttft_ms=None if first is None else round((first - accepted) * 1000, 3),
        total_ms=round((now - accepted) * 1000, 3),
    )
