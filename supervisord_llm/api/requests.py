"""``/api/v1/requests/{id}``: one request in flight, queued or recently finished, and its cancel."""

from __future__ import annotations

from starlette.requests import Request as HttpRequest
from starlette.types import ASGIApp

from supervisord_llm.api import records
from supervisord_llm.api.bodies import as_bool, read_query
from supervisord_llm.api.commands import command
from supervisord_llm.api.front import Front
from supervisord_llm.api.inbox import read_no_body, until_disconnect
from supervisord_llm.api.replies import json_reply
from supervisord_llm.core.words import CancelledBy
from supervisord_llm.runtime.clock import Clock
from supervisord_llm.runtime.request import Request
from supervisord_llm.schema import RequestInfo, Timings


async def show(front: Front, request: HttpRequest) -> ASGIApp:
    """Answer with one request."""
    read_query(request)
    found = front.supervisor.find_request(request.path_params["id"])
    return json_reply(_info(front.supervisor.clock, found))


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
        _info(front.supervisor.clock, found), status=202 if found.record is None else 200
    )


def _info(clock: Clock, request: Request) -> RequestInfo:
    record = request.record
    return RequestInfo(
        id=request.id,
        pool=request.pool,
        state=request.state,
        worker=request.worker,
        generation=request.generation,
        attempt=request.attempt,
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
