"""What the routes under ``/v1`` answer with, in the shapes that OpenAI's clients decode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from supervisord_llm.core import words

FinishReason = Literal["stop", "length", "tool_calls"]


class CachedTokens(msgspec.Struct, frozen=True, kw_only=True):
    """Of the prompt's tokens, those that did not have to be read again."""

    cached_tokens: int


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens as the worker counted them."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: CachedTokens


class CalledFunction(msgspec.Struct, frozen=True, kw_only=True):
    """What is called, with its arguments as JSON text."""

    name: str
    arguments: str


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a tool; in a stream it has an index, and comes whole."""

    index: int | msgspec.UnsetType = msgspec.UNSET
    id: str
    type: Literal["function"] = "function"
    function: CalledFunction


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What the assistant says; ``content`` is null if it only calls."""

    role: Literal["assistant"] = "assistant"
    content: str | None
    refusal: None = None
    tool_calls: list[Call] | msgspec.UnsetType = msgspec.UNSET


class ChatChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The one answer."""

    index: int
    message: Answer
    logprobs: None = None
    finish_reason: FinishReason


class ChatCompletion(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of ``POST /v1/chat/completions`` without a stream."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    """Seconds of Unix time."""
    model: str
    """As it was asked for."""
    choices: list[ChatChoice]
    usage: Usage | None
    """Null only where its worker was lost before it could count."""


class TextChoice(msgspec.Struct, frozen=True, kw_only=True):
    """What follows one prompt."""

    index: int
    text: str
    logprobs: None = None
    finish_reason: FinishReason


class TextCompletion(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of ``POST /v1/completions`` without a stream."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[TextChoice]
    usage: Usage | None
    """Of all prompts together."""


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """A name that ``model`` may have: a pool's, or an alias of it."""

    id: str
    object: Literal["model"] = "model"
    created: int
    """When the daemon started, in seconds of Unix time; when models were made is not known."""
    owned_by: Literal["supervisord-llm"] = "supervisord-llm"
    pool: str
    context_length: int | None
    """Tokens, prompt and answer together; null until a worker has told."""


class Models(msgspec.Struct, frozen=True, kw_only=True):
    """``GET /v1/models``: in the order of the configuration, each pool before its aliases."""

    object: Literal["list"] = "list"
    data: list[Model]


def usage(counts: Sequence[words.Usage | None]) -> Usage | None:
    """Return the sum of what workers counted; ``None`` if one of them did not come to it."""
    known = [each for each in counts if each is not None]
    if len(known) < len(counts):
        return None
    prompt = sum(each.prompt_tokens for each in known)
    generated = sum(each.generated_tokens for each in known)
    return Usage(
        prompt_tokens=prompt,
        completion_tokens=generated,
        total_tokens=prompt + generated,
        prompt_tokens_details=CachedTokens(cached_tokens=sum(each.reused_tokens for each in known)),
    )
