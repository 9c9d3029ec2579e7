"""``/v1/models``: the names that ``model`` may have."""

from __future__ import annotations

from collections.abc import Iterator

from starlette.requests import Request
from starlette.types import ASGIApp

from supervisord_llm.api.bodies import read_query
from supervisord_llm.api.front import Front
from supervisord_llm.api.openai_intake import note_request_id
from supervisord_llm.api.replies import json_reply
from supervisord_llm.errors import UnknownModel
from supervisord_llm.openai.shapes import Model, Models
from supervisord_llm.runtime.pool import Pool


async def index(front: Front, request: Request) -> ASGIApp:
    """Answer with the pools and their aliases as models, in OpenAI's form."""
    note_request_id(request)
    read_query(request)
    return json_reply(Models(data=list(_models(front))), headers=_headers(request))


async def show(front: Front, request: Request) -> ASGIApp:
    """Answer with one of them."""
    note_request_id(request)
    read_query(request)
    name = request.path_params["id"]
    for model in _models(front):
        if model.id == name:
            return json_reply(model, headers=_headers(request))
    known = ", ".join(model.id for model in _models(front))
    raise UnknownModel(f"cannot find model {name[:80]!r}; there are: {known}", param="model")


def _models(front: Front) -> Iterator[Model]:
    for pool in front.supervisor.pools.values():
        for name in _names(pool):
            yield Model(
                id=name,
                created=int(front.supervisor.clock.unix(front.supervisor.started_at)),
                pool=pool.name,
                context_length=None if pool.model is None else pool.model.context_length,
            )


def _names(pool: Pool) -> tuple[str, ...]:
    return (pool.name, *pool.config.models)


def _headers(request: Request) -> dict[str, str]:
    headers: dict[str, str] = getattr(request.state, "reply_headers", {})
    return headers
