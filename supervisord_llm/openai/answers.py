"""Both kinds of completion as one: how each names itself, writes its chunks and its whole text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from supervisord_llm.core import words
from supervisord_llm.openai.shapes import (
    Answer,
    Call,
    ChatChoice,
    ChatCompletion,
    FinishReason,
    TextChoice,
    TextCompletion,
    usage,
)
from supervisord_llm.openai.sse import ChatChunks, Chunks, TextChunks


class Produced(msgspec.Struct, frozen=True, kw_only=True):
    """All of one choice."""

    text: str
    calls: list[Call]
    finish_reason: FinishReason
    usage: words.Usage | None


class Label(msgspec.Struct, frozen=True, kw_only=True):
    """What every piece of an answer has on it."""

    id: str
    model: str
    """As it was asked for."""
    created: int
    """Seconds of Unix time."""
    with_usage: bool
    """Whether a stream tells the usage."""


class Kind(Protocol):
    """One of the two kinds."""

    prefix: str
    """What its ids begin with."""

    def chunks(self, label: Label, index: int) -> Chunks:
        """Return what encodes the chunks of one choice."""

    def whole(self, label: Label, produced: Sequence[Produced]) -> msgspec.Struct:
        """Return the answer without a stream, of all choices in order."""


class Chat:
    """``POST /v1/chat/completions``: one choice, which is a message."""

    prefix = "chatcmpl-"

    def chunks(self, label: Label, _index: int, /) -> Chunks:
        """Return what encodes the chunks of the choice."""
        return ChatChunks(
            label.id, model=label.model, created=label.created, with_usage=label.with_usage
        )

    def whole(self, label: Label, produced: Sequence[Produced]) -> msgspec.Struct:
        """Return the answer; its content is null where the assistant only calls."""
        return ChatCompletion(
            id=label.id,
            created=label.created,
            model=label.model,
            choices=[
                ChatChoice(
                    index=index,
                    message=Answer(
                        content=each.text if each.text or not each.calls else None,
                        tool_calls=[_whole(call) for call in each.calls] or msgspec.UNSET,
                    ),
                    finish_reason=each.finish_reason,
                )
                for index, each in enumerate(produced)
            ],
            usage=usage([each.usage for each in produced]),
        )


class Text:
    """``POST /v1/completions``: a choice for each prompt, which is text."""

    prefix = "cmpl-"

    def chunks(self, label: Label, index: int, /) -> Chunks:
        """Return what encodes the chunks of the choice of one prompt."""
        return TextChunks(
            label.id,
            model=label.model,
            created=label.created,
            index=index,
            with_usage=label.with_usage,
        )

    def whole(self, label: Label, produced: Sequence[Produced]) -> msgspec.Struct:
        """Return the answer."""
        return TextCompletion(
            id=label.id,
            created=label.created,
            model=label.model,
            choices=[
                TextChoice(index=index, text=each.text, finish_reason=each.finish_reason)
                for index, each in enumerate(produced)
            ],
            usage=usage([each.usage for each in produced]),
        )


def _whole(call: Call) -> Call:
    """A call as it is outside of a stream, without an index."""
    return msgspec.structs.replace(call, index=msgspec.UNSET)
