"""Server-sent events: one completion's chunks as bytes, with as little work per token as there is.

All chunks of a choice are alike but for one text, so what stands around it is encoded once. Only
the text is encoded for each batch of tokens, and a batch is one chunk, however many tokens it has.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from supervisord_llm.openai.shapes import Call, FinishReason, Usage

DONE = b"data: [DONE]\n\n"
"""The end of each stream, after an error too."""

KEEP_ALIVE = b": keep-alive\n\n"
"""A comment: it tells everyone on the way that the connection lives, and clients skip it."""

_encoder = msgspec.json.Encoder()


def event(value: object) -> bytes:
    """Encode one event; JSON holds no line break, so it is one ``data`` line."""
    return b"data: %b\n\n" % _encoder.encode(value)


class Chunks(Protocol):
    """One choice's chunks."""

    opening: bytes
    """What comes before the first text."""

    def text(self, text: str) -> bytes:
        """More text."""

    def calls(self, calls: list[Call], /) -> bytes:
        """Tools that are called, each whole; empty if there are none."""

    def finish(self, reason: FinishReason) -> bytes:
        """The end of the choice."""

    def usage(self, usage: Usage | None) -> bytes:
        """The tokens of all choices; it has no choice itself."""


class _Chunks:
    """What both kinds have in common."""

    def __init__(
        self, kind: str, id_: str, *, model: str, created: int, index: int, with_usage: bool
    ) -> None:
        fields = {"id": id_, "object": kind, "created": created, "model": model}
        # Without the closing brace.
        self._start = b"data: " + _encoder.encode(fields)[:-1]
        self._head = b'%b,"choices":[{"index":%d,' % (self._start, index)
        self._end = b'],"usage":null}\n\n' if with_usage else b"]}\n\n"

    def usage(self, usage: Usage | None) -> bytes:
        return b'%b,"choices":[],"usage":%b}\n\n' % (self._start, _encoder.encode(usage))


class ChatChunks(_Chunks):
    """Chunks of a chat completion."""

    def __init__(self, id_: str, *, model: str, created: int, with_usage: bool) -> None:
        """Encode what all chunks have in common.

        Args:
            id_: the completion's.
            model: as it was asked for.
            created: seconds of Unix time.
            with_usage: whether the usage comes in the end; all other chunks have a null there.
        """
        super().__init__(
            "chat.completion.chunk",
            id_,
            model=model,
            created=created,
            index=0,
            with_usage=with_usage,
        )
        self._unfinished = b'},"finish_reason":null}' + self._end
        self._before = self._head + b'"delta":{"content":'
        self.opening = b'%b"delta":{"role":"assistant","content":""%b' % (
            self._head,
            self._unfinished,
        )

    def text(self, text: str) -> bytes:
        """More text."""
        return self._before + _encoder.encode(text) + self._unfinished

    def calls(self, calls: list[Call], /) -> bytes:
        """Tools that are called, each whole; empty if there are none."""
        if not calls:
            return b""
        encoded = _encoder.encode(calls)
        return b'%b"delta":{"tool_calls":%b%b' % (self._head, encoded, self._unfinished)

    def finish(self, reason: FinishReason) -> bytes:
        """The end of the choice."""
        return b'%b"delta":{},"finish_reason":"%b"}%b' % (self._head, reason.encode(), self._end)


class TextChunks(_Chunks):
    """Chunks of a completion of one prompt; these call no tools."""

    opening = b""

    def __init__(self, id_: str, *, model: str, created: int, index: int, with_usage: bool) -> None:
        """Encode what all chunks have in common; ``index`` is that of the prompt."""
        super().__init__(
            "text_completion",
            id_,
            model=model,
            created=created,
            index=index,
            with_usage=with_usage,
        )
        self._before = self._head + b'"text":'
        self._unfinished = b',"logprobs":null,"finish_reason":null}' + self._end

    def text(self, text: str) -> bytes:
        """More text."""
        return self._before + _encoder.encode(text) + self._unfinished

    def calls(self, _calls: list[Call], /) -> bytes:
        """None here."""
        return b""

    def finish(self, reason: FinishReason) -> bytes:
        """The end of the choice."""
        tail = b',"logprobs":null,"finish_reason":"%b"}' % reason.encode()
        return self._before + b'""' + tail + self._end
