"""``/v1/sessions``: what a client says about its conversation as a whole.

The commands wait for the generation that the session has under way, so they answer when they are
done, and a client that leaves while one waits has not commanded it.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp

from supervisord_llm.api.bodies import decode_body, read_query
from supervisord_llm.api.front import Front
from supervisord_llm.api.inbox import read_body, until_disconnect
from supervisord_llm.api.replies import json_reply
from supervisord_llm.errors import InvalidRequest, UnknownModel
from supervisord_llm.runtime.pool import Pool
from supervisord_llm.schema import SessionDeleted, SessionRequest, SessionReset
from supervisord_llm.schema.requests import SessionId
from supervisord_llm.wire.messages import valid_session_id

_decoder = msgspec.json.Decoder(SessionRequest)


async def reset(front: Front, request: Request) -> ASGIApp:
    """Forget what a session's worker has read, after what it has under way has ended."""
    target = await _target(front, request)
    existed = await until_disconnect(request, partial(target.pool.reset_session, target.name))
    return json_reply(SessionReset(id=target.id, existed=existed))


async def close(front: Front, request: Request) -> ASGIApp:
    """Close a session, after what it has under way has ended; its place on its worker is free."""
    target = await _target(front, request)
    existed = await until_disconnect(request, partial(target.pool.close_session, target.name))
    return json_reply(SessionDeleted(id=target.id, existed=existed))


def check_session_id(session_id: str) -> None:
    """Raise ``InvalidRequest`` for what cannot be a session's name."""
    try:
        msgspec.convert(session_id, SessionId)
    except msgspec.ValidationError:
        valid = False
    else:
        valid = valid_session_id(session_id)
    if not valid:
        raise InvalidRequest(
            "cannot use this session id; use 1 to 128 printable ASCII characters without a space, "
            "and not a name that the daemon needs itself",
            param="session_id",
        )


def session_name(request: Request, session_id: str) -> str:
    """Return what the pool calls a client's session, whose id was checked.

    With a key come users who are strangers to each other, and how much of a prompt was read before
    tells what another one's session holds. So each key's name has sessions of its own: no client
    can write the space.
    """
    kind, _, owner = request.state.client.partition(":")
    return f"{owner} {session_id}" if kind == "key" else session_id


class _Target(NamedTuple):
    pool: Pool
    id: str
    name: str


async def _target(front: Front, request: Request) -> _Target:
    """Whose session is meant: ``model`` is in the query or in the body, or there is one pool."""
    named = read_query(request, model=_as_name).get("model")
    body = await read_body(request)
    said = decode_body(body, _decoder).model if body.strip() else None
    if named is not None and said is not None and named != said:
        raise InvalidRequest(
            "cannot use field 'model': the query names another pool; give one of them",
            param="model",
        )
    id_ = request.path_params["id"]
    check_session_id(id_)
    pool = find_pool(front, said if named is None else named)
    return _Target(pool, id_, session_name(request, id_))


def _as_name(_name: str, text: str) -> str:
    return text


def find_pool(front: Front, name: str | None) -> Pool:
    """Return the pool that a client names, itself or by an alias, or the only one.

    Raises:
        InvalidRequest: none is named, and there are several.
        UnknownModel: none has that name.
    """
    pools = front.supervisor.pools
    known = ", ".join(pools)
    if name is None and len(pools) == 1:
        return next(iter(pools.values()))
    if name is None:
        raise InvalidRequest(
            f"cannot tell whose session is meant; name the pool in 'model': {known}", param="model"
        )
    if (pool := front.supervisor.find(name)) is None:
        raise UnknownModel(f"cannot find model {name[:80]!r}; there are: {known}", param="model")
    return pool
