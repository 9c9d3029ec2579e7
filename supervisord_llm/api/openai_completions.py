"""``POST /v1/completions``: raw text, or token ids, to go on with."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp

from supervisord_llm.api.front import Front
from supervisord_llm.api.openai_answer import answer
from supervisord_llm.api.openai_intake import pool_of, read_completion, session_of, spec_of
from supervisord_llm.api.openai_run import Plan
from supervisord_llm.api.rejections import rejections
from supervisord_llm.errors import InvalidRequest
from supervisord_llm.openai.answers import Text
from supervisord_llm.openai.completions import CompletionRequest
from supervisord_llm.openai.output import Output

_decoder = msgspec.json.Decoder(CompletionRequest)


async def complete(front: Front, request: Request) -> ASGIApp:
    """Go on with up to 16 prompts, in OpenAI's form; a choice for each, streamed if so wished."""
    with rejections(front, request, None):
        asked = await read_completion(request, _decoder)
        prompts = asked.prompts
        pool = pool_of(front, asked)
        session = session_of(request, asked, pool)
        if session is not None and len(prompts) > 1:
            raise InvalidRequest(
                "cannot use a session for several prompts; send one at a time, or no session",
                param="session_id",
            )
    specs = [
        spec_of(request, asked, prompt, session=session, max_tokens=asked.max_tokens)
        for prompt in prompts
    ]
    plan = Plan(
        kind=Text(),
        pool=pool,
        model=asked.model,
        specs=specs,
        outputs=[Output(asked.stops) for _ in specs],
        with_usage=asked.include_usage,
    )
    return await answer(front, request, plan, streamed=bool(asked.stream))
