"""``POST /api/v1/generate``: one generation as a stream of JSON lines.

The reply lives inside ``async with pool.request(…)``: leaving that block by any exit settles the
request or hands it over, so this file knows nothing of escalation. A client that leaves cancels its
request and is sent the end all the same: it may have closed its sending side only.
A batch of tokens costs one encoding and one send, however many tokens it holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp

from supervisord_llm.api import records
from supervisord_llm.api.bodies import decode_body, read_query
from supervisord_llm.api.front import Front
from supervisord_llm.api.inbox import despite_disconnect, read_body
from supervisord_llm.api.rejections import rejections
from supervisord_llm.api.rendering import prompt_of
from supervisord_llm.api.replies import LineStream, Streamed, json_lines
from supervisord_llm.api.sessions import check_session_id
from supervisord_llm.api.templates import Conversation
from supervisord_llm.core.words import CancelledBy
from supervisord_llm.errors import InternalError, InvalidRequest, UnknownModel
from supervisord_llm.runtime.mailbox import Batch
from supervisord_llm.runtime.pool import Pool
from supervisord_llm.runtime.request import Render, RequestSpec, RequestStream
from supervisord_llm.schema import Accepted, GenerateRequest, Started, Token

_decoder = msgspec.json.Decoder(GenerateRequest)


async def generate(front: Front, request: Request) -> ASGIApp:
    """Take a generation and stream it, ending with exactly one ``finished`` line."""
    with rejections(front, request, None):
        read_query(request)
        body = await read_body(request)
        asked = decode_body(body, _decoder)
    with rejections(front, request, asked.pool):
        pool = _find_pool(front, asked.pool)
        spec = await _spec(front, request, pool, asked)

    async def stream(lines: LineStream) -> bytes:
        with rejections(front, request, pool.name):
            return await _stream(pool, spec, lines, request)

    return Streamed(stream)


async def _stream(pool: Pool, spec: RequestSpec, lines: LineStream, request: Request) -> bytes:
    """Send everything but the end, which is returned."""
    async with pool.request(spec) as stream:
        return await despite_disconnect(
            request,
            partial(_send, pool, stream, lines),
            partial(stream.request.cancel, CancelledBy.CLIENT),
        )


async def _send(pool: Pool, stream: RequestStream, lines: LineStream) -> bytes:
    id_ = stream.request.id
    await lines.open()
    await lines.send(json_lines([Accepted(id=id_, pool=pool.name, queued=stream.queued)]))
    stream.pass_directly(lambda texts: lines.send_now(_encode_tokens(texts)))
    while (batch := await stream.next_batch()) is not None:
        encoded = _encode(id_, batch)
        if batch.record is not None:
            return encoded
        await lines.send(encoded)
    raise InternalError(f"{id_} ended without a record")


def _encode(id_: str, batch: Batch) -> bytes:
    values: list[msgspec.Struct] = []
    if batch.started is not None:
        started = batch.started
        values.append(Started(id=id_, worker=started.worker, attempt=started.attempt))
    values += [Token(text=text) for text in batch.tokens]
    if batch.record is not None:
        values.append(records.finished(id_, batch.record))
    return json_lines(values)


def _encode_tokens(texts: Sequence[str]) -> bytes:
    return json_lines([Token(text=text) for text in texts])


def _find_pool(front: Front, name: str) -> Pool:
    pool = front.supervisor.pools.get(name)
    if pool is None:
        known = ", ".join(front.supervisor.pools)
        raise UnknownModel(f"cannot find pool {name[:80]!r}; there are: {known}", param="pool")
    return pool


async def _spec(front: Front, request: Request, pool: Pool, asked: GenerateRequest) -> RequestSpec:
    if asked.session_id is not None:
        check_session_id(asked.session_id)
    prompt, render = await _prompt(front, pool, asked)
    return RequestSpec(
        prompt=prompt,
        render=render,
        max_new_tokens=asked.max_new_tokens,
        temperature=asked.temperature,
        top_p=asked.top_p,
        top_k=asked.top_k,
        seed=asked.seed,
        stop=tuple(asked.stop or ()),
        session_id=asked.session_id,
        priority=asked.priority,
        queue_timeout=_seconds(asked.queue_timeout_ms),
        deadline=_seconds(asked.deadline_ms),
        client=request.state.client,
    )


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


async def _prompt(front: Front, pool: Pool, asked: GenerateRequest) -> tuple[str, Render | None]:
    """The text for the worker, or how it is made of messages once the model is known."""
    if asked.prompt is not None and asked.messages is not None:
        raise InvalidRequest(
            "cannot use field 'messages' together with 'prompt'; send one of them",
            param="messages",
        )
    if asked.prompt is not None:
        return asked.prompt, None
    if asked.messages is None:
        raise InvalidRequest(
            "cannot generate without a prompt; send field 'prompt' or 'messages'", param="prompt"
        )
    turns = [msgspec.structs.asdict(message) for message in asked.messages]
    return await prompt_of(front, pool, Conversation(messages=turns))
