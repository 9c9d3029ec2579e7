"""What a completion says besides its text: whose it is, for which pool and session."""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec
from starlette.requests import Request

from supervisord_llm.api.bodies import decode_body, read_query
from supervisord_llm.api.front import Front
from supervisord_llm.api.inbox import read_body
from supervisord_llm.api.sessions import check_session_id, find_pool, session_name
from supervisord_llm.errors import InvalidRequest
from supervisord_llm.openai.completions import Prompt
from supervisord_llm.openai.fields import Completion
from supervisord_llm.openai.unsupported import check_unsupported
from supervisord_llm.runtime.pool import Pool
from supervisord_llm.runtime.request import Render, RequestSpec

SESSION_HEADERS = ("x-session-id", "x-executorch-session-id", "session_id", "x-session-affinity")
"""Where clients name their conversation who cannot put it in the body; the first one there counts.
"""

_REQUEST_ID = re.compile(r"[!-~]{1,128}")


Asked = TypeVar("Asked", bound=Completion)


async def read_completion(request: Request, decoder: msgspec.json.Decoder[Asked]) -> Asked:
    """Return what a completion's body asks for, every field of it offered and within its bounds.

    Raises:
        ClientError: if there is no such body, or it asks for something else.
    """
    note_request_id(request)
    read_query(request)
    body = await read_body(request)
    asked = decode_body(body, decoder)
    check_unsupported(body)
    asked.check()
    return asked


def note_request_id(request: Request) -> None:
    """Let every reply to this request carry the id that its client gave it, if it did.

    Raises:
        InvalidRequest: if that is no id.
    """
    id_ = request.headers.get("x-request-id")
    if id_ is None:
        return
    if not _REQUEST_ID.fullmatch(id_):
        raise InvalidRequest(
            "cannot use the header 'X-Request-ID'; send 1 to 128 printable ASCII characters "
            "without a space",
            param="X-Request-ID",
        )
    request.state.reply_headers = {"x-request-id": id_}


def session_of(request: Request, asked: Completion, pool: Pool) -> str | None:
    """Return the pool's name of the session that the body names, or else a header.

    Clients send such headers to whatever server they have, so they are passed over where none of
    the pool's workers keeps sessions.

    Raises:
        InvalidRequest: if that cannot be a session's name.
    """
    named = asked.session_id
    if named is None and pool.keeps_sessions is not False:
        headers = (request.headers.get(name) for name in SESSION_HEADERS)
        named = next((each for each in headers if each), None)
    if named is None:
        return None
    check_session_id(named)
    return session_name(request, named)


def pool_of(front: Front, asked: Completion) -> Pool:
    """Return the pool that ``model`` names, itself or by an alias.

    Raises:
        UnknownModel: if none has that name.
    """
    return find_pool(front, asked.model)


def spec_of(
    request: Request,
    asked: Completion,
    prompt: Prompt,
    *,
    session: str | None,
    max_tokens: int | None,
    render: Render | None = None,
) -> RequestSpec:
    """Return what a worker is to be asked for; what is left out takes the pool's defaults."""
    return RequestSpec(
        prompt=prompt,
        render=render,
        session_id=session,
        client=request.state.client,
        max_new_tokens=max_tokens,
        temperature=asked.temperature,
        top_p=asked.top_p,
        top_k=asked.best_tokens,
        seed=asked.seed,
        stop=asked.stops,
    )
