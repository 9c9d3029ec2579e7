"""``GET /metrics``: counters and gauges for Prometheus, in the text format that it scrapes."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from supervisord_llm.api.bodies import read_query
from supervisord_llm.api.front import Front
from supervisord_llm.telemetry.metrics import CONTENT_TYPE


async def show(front: Front, request: Request) -> ASGIApp:
    """Every metric, as the events have made it; asking costs no worker anything."""
    read_query(request)
    return Response(await front.metrics.render(), headers={"content-type": CONTENT_TYPE})
