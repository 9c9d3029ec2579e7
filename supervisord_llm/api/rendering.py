"""Prompts of conversations: by the template that the pool's file names, or else the model's own."""

from __future__ import annotations

import re
from functools import partial

from supervisord_llm.api.front import Front
from supervisord_llm.api.templates import Conversation, Source
from supervisord_llm.errors import InvalidRequest
from supervisord_llm.events import DaemonWarning
from supervisord_llm.openai.templates import TemplateBroken
from supervisord_llm.runtime.pool import Pool
from supervisord_llm.runtime.request import Render
from supervisord_llm.wire.messages import Model

_QUOTED = re.compile(r"""(['"])(.*?)(?:\1|$)""", re.DOTALL)
_PYTHONS = frozenset({"NoneType", "bool", "dict", "float", "int", "list", "str", "tuple"})


async def prompt_of(
    front: Front, pool: Pool, conversation: Conversation
) -> tuple[str, Render | None]:
    """Return the prompt, or how it is made once the model is known; the prompt is empty then.

    The request then waits for a worker as any other does: that is what loads a model on demand.

    Raises:
        InvalidRequest: the model takes no such conversation.
        Refused: too many conversations wait for the template.
    """
    if pool.model is None:
        return "", partial(render, front, pool, conversation)
    return await render(front, pool, conversation, pool.model), None


async def render(front: Front, pool: Pool, conversation: Conversation, model: Model) -> str:
    """Return the prompt for a conversation with this model of the pool.

    Raises:
        InvalidRequest: there is no template, it refuses the conversation, it is broken or takes too
            long, or the prompt is too long.
        Refused: too many conversations wait for the template.
    """
    file = pool.config.chat_template
    source = model.chat_template if file is None else file.source
    if source is None:
        raise InvalidRequest(
            "cannot send messages to a model that has no chat template; send 'prompt' instead, or "
            f"have the file of one named in pool.{pool.name}.chat_template",
            param="messages",
        )
    bos_token, eos_token = model.bos_token or "", model.eos_token or ""
    name = (model.id or "the model") if file is None else f"pool {pool.name!r}"
    try:
        return await front.templates.render(
            Source(source, bos_token, eos_token, name), conversation
        )
    except TemplateBroken as error:
        front.publish(
            DaemonWarning(
                topic="chat_template",
                message=str(error).replace(error.reason, _without_values(error.reason, source)),
                remedy="serve a model with a sound template, or name one in the pool's "
                "chat_template",
                pool=pool.name,
            )
        )
        raise InvalidRequest(str(error), param="messages") from error


def _without_values(reason: str, source: str) -> str:
    """Cut a template's fault before the first value in it that is not the template's own text.

    An unknown key, for example, is named by the error, and may be a piece of the conversation: the
    client may see that, the event log may not.
    """
    for match in _QUOTED.finditer(reason):
        quoted = match[2]
        if quoted not in source and quoted not in _PYTHONS and not quoted.endswith(" object"):
            return f"{reason[: match.start()]}…"
    return reason
