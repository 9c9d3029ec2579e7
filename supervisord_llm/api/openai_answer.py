"""The reply to a completion: a stream of events, or one JSON value when all of it is there."""

from __future__ import annotations

import time
from functools import partial

from starlette.requests import Request
from starlette.types import ASGIApp

from supervisord_llm.api.errors import HttpError
from supervisord_llm.api.front import Front
from supervisord_llm.api.inbox import despite_disconnect, until_disconnect
from supervisord_llm.api.openai_run import Plan, running, whole
from supervisord_llm.api.openai_stream import Telling
from supervisord_llm.api.rejections import rejections
from supervisord_llm.api.replies import LineStream, Streamed, error_reply, json_reply
from supervisord_llm.config.schema import ListenConfig


async def answer(front: Front, request: Request, plan: Plan, *, streamed: bool) -> ASGIApp:
    """Run a completion. A client that leaves, at whatever moment, cancels it and nothing else.

    Raises:
        ClientError: if one of its requests cannot be done.
        Refused: if the pool does not take one of them.
        ClientGone: if the client has left; not from a stream.
    """
    created = int(time.time())
    given: dict[str, str] = getattr(request.state, "reply_headers", {})
    if not streamed:
        with rejections(front, request, plan.pool.name):
            value, headers = await until_disconnect(request, partial(whole, plan, created))
        headers |= given
        if isinstance(value, HttpError):
            return error_reply(value, headers)
        return json_reply(value, headers=headers)
    listen: ListenConfig = request.state.listen

    async def stream(lines: LineStream) -> bytes | ASGIApp:
        with rejections(front, request, plan.pool.name):
            async with running(plan, created) as at:
                headers = at.headers | given
                telling = Telling(at, lines, headers, listen.sse_keep_alive)
                last = await despite_disconnect(request, telling.run, at.cancel)
        return error_reply(last, headers) if isinstance(last, HttpError) else last

    return Streamed(stream)
