"""``POST /v1/chat/completions``: a conversation, continued by the model through its template."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from functools import partial

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp

from supervisord_llm.api.front import Front
from supervisord_llm.api.openai_answer import answer
from supervisord_llm.api.openai_intake import pool_of, read_completion, session_of, spec_of
from supervisord_llm.api.openai_run import Plan
from supervisord_llm.api.rejections import rejections
from supervisord_llm.api.rendering import prompt_of
from supervisord_llm.api.templates import Conversation
from supervisord_llm.openai.answers import Chat
from supervisord_llm.openai.chat import ChatRequest
from supervisord_llm.openai.output import Output
from supervisord_llm.openai.tools import ToolParser, parser_for
from supervisord_llm.runtime.pool import Pool

_decoder = msgspec.json.Decoder(ChatRequest)


async def chat(front: Front, request: Request) -> ASGIApp:
    """Continue a conversation, in OpenAI's form, and call tools; streamed if so wished."""
    with rejections(front, request, None):
        asked = await read_completion(request, _decoder)
        conversation = Conversation(
            messages=asked.turns,
            tools=asked.offered,
            kwargs=asked.chat_template_kwargs or {},
        )
        pool = pool_of(front, asked)
        session = session_of(request, asked, pool)
    with rejections(front, request, pool.name):
        prompt, render = await prompt_of(front, pool, conversation)
    spec = spec_of(
        request,
        asked,
        prompt,
        session=session,
        max_tokens=asked.token_limit,
        render=render,
    )
    plan = Plan(
        kind=Chat(),
        pool=pool,
        model=asked.model,
        specs=[spec],
        outputs=[Output(asked.stops, _parser(pool, asked))],
        with_usage=asked.include_usage,
    )
    return await answer(front, request, plan, streamed=bool(asked.stream))


def _parser(pool: Pool, asked: ChatRequest) -> Callable[[], ToolParser] | None:
    """What makes the parser of tool calls; ``None`` where the model is told of no tools."""
    schemas = asked.tool_schemas
    if not schemas:
        return None
    return lambda: parser_for(_template(pool), schemas, new_id=partial(secrets.token_hex, 12))


def _template(pool: Pool) -> str | None:
    if pool.config.chat_template is not None:
        return pool.config.chat_template.source
    return None if pool.model is None else pool.model.chat_template
