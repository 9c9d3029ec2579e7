"""The API as one list: method, path, group, handler. What is not here does not exist.

A listener serves the groups of its ``serve`` key only; the other routes are 404 there. GET routes
answer HEAD too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal, NamedTuple

from starlette.requests import Request
from starlette.types import ASGIApp

from supervisord_llm.api import (
    config,
    events,
    generate,
    logs,
    metrics,
    openai_chat,
    openai_completions,
    openai_models,
    pools,
    probes,
    requests,
    sessions,
    status,
    workers,
)
from supervisord_llm.api.front import Front

Handler = Callable[[Front, Request], Awaitable[ASGIApp]]


class Endpoint(NamedTuple):
    """One row of the list."""

    method: Literal["GET", "POST", "DELETE"]
    path: str
    group: Literal["control", "inference", "probe"]
    handler: Handler


ROUTES: tuple[Endpoint, ...] = (
    Endpoint("GET", "/api/v1/status", "control", status.show),
    Endpoint("GET", "/api/v1/pools", "control", pools.index),
    Endpoint("GET", "/api/v1/pools/{pool}", "control", pools.show),
    Endpoint("POST", "/api/v1/pools/{pool}/reload", "control", pools.reload),
    Endpoint("POST", "/api/v1/pools/{pool}/drain", "control", pools.drain),
    Endpoint("POST", "/api/v1/pools/{pool}/resume", "control", pools.resume),
    Endpoint("POST", "/api/v1/pools/{pool}/scale", "control", pools.scale),
    Endpoint("GET", "/api/v1/workers", "control", workers.index),
    Endpoint("GET", "/api/v1/workers/{slot}", "control", workers.show),
    Endpoint("POST", "/api/v1/workers/{slot}/reload", "control", workers.reload),
    Endpoint("POST", "/api/v1/workers/{slot}/drain", "control", workers.drain),
    Endpoint("POST", "/api/v1/workers/{slot}/quarantine", "control", workers.quarantine),
    Endpoint("POST", "/api/v1/workers/{slot}/resume", "control", workers.resume),
    Endpoint("GET", "/api/v1/workers/{slot}/logs", "control", logs.stream),
    Endpoint("POST", "/api/v1/generate", "control", generate.generate),
    Endpoint("GET", "/api/v1/requests", "control", requests.index),
    Endpoint("GET", "/api/v1/requests/{id}", "control", requests.show),
    Endpoint("POST", "/api/v1/requests/{id}/cancel", "control", requests.cancel),
    Endpoint("GET", "/api/v1/events", "control", events.stream),
    Endpoint("POST", "/api/v1/config/reload", "control", config.reload),
    # The name of a model may hold a slash, as "owner/model" does.
    Endpoint("GET", "/v1/models", "inference", openai_models.index),
    Endpoint("GET", "/v1/models/{id:path}", "inference", openai_models.show),
    Endpoint("POST", "/v1/chat/completions", "inference", openai_chat.chat),
    Endpoint("POST", "/v1/completions", "inference", openai_completions.complete),
    # A session's name may hold any printable character, the slash included.
    Endpoint("POST", "/v1/sessions/{id:path}/reset", "inference", sessions.reset),
    Endpoint("DELETE", "/v1/sessions/{id:path}", "inference", sessions.close),
    Endpoint("GET", "/metrics", "probe", metrics.show),
    Endpoint("GET", "/livez", "probe", probes.livez),
    Endpoint("GET", "/readyz", "probe", probes.readyz),
    Endpoint("GET", "/health", "probe", probes.health),
)
