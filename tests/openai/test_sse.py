"""Chunks as bytes: what a client decodes of them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisord_llm.core import words
from supervisord_llm.openai import shapes, sse

COMMON = {"id": "x-1", "created": 5, "model": 'a "b"'}
TEXT = st.text(st.characters(codec="utf-8"))


def chat(*, with_usage: bool = False) -> sse.ChatChunks:
    """Chunks of a chat."""
    return sse.ChatChunks("x-1", model='a "b"', created=5, with_usage=with_usage)


def text(*, with_usage: bool = False) -> sse.TextChunks:
    """Chunks of the third prompt."""
    return sse.TextChunks("x-1", model='a "b"', created=5, index=2, with_usage=with_usage)


def one(encoded: bytes) -> Any:
    """Decode exactly one event."""
    head, lines, end = encoded[:6], encoded[6:-2], encoded[-2:]
    assert (b"data: ", b"\n\n") == (head, end)
    assert 1 == len(lines.splitlines()), "an event of one line"
    return json.loads(lines)


def chunk(choice: dict[str, Any]) -> dict[str, Any]:
    """A chunk of a chat."""
    filled = {"index": 0, "finish_reason": None, **choice}
    return {**COMMON, "object": "chat.completion.chunk", "choices": [filled]}


@given(TEXT)
def test_any_text_comes_through(said: str) -> None:
    """Quotes, line breaks, emoji and zero bytes included; the events stay events."""
    assert chunk({"delta": {"content": said}}) == one(chat().text(said))
    assert said == one(text().text(said))["choices"][0]["text"]


def test_a_chat_has_its_shape() -> None:
    """The role first, the reason last."""
    assert chunk({"delta": {"role": "assistant", "content": ""}}) == one(chat().opening)
    assert chunk({"delta": {}, "finish_reason": "length"}) == one(chat().finish("length"))


def test_a_completion_has_its_shape() -> None:
    """Nothing before the first text, and the prompt's index everywhere."""
    assert b"" == text().opening
    choice = {"index": 2, "text": "", "logprobs": None, "finish_reason": "stop"}
    assert {**COMMON, "object": "text_completion", "choices": [choice]} == one(
        text().finish("stop")
    )
    assert {**choice, "text": "a", "finish_reason": None} == one(text().text("a"))["choices"][0]


def test_calls_are_whole_and_counted() -> None:
    """Index, id, type, name and all of the arguments; no calls are no chunk."""
    function = shapes.CalledFunction(name="f", arguments='{"a": 1}')
    got = one(chat().calls([shapes.Call(index=1, id="call_1", function=function)]))
    call = {
        "index": 1,
        "id": "call_1",
        "type": "function",
        "function": {"name": "f", "arguments": '{"a": 1}'},
    }
    assert chunk({"delta": {"tool_calls": [call]}}) == got
    assert b"" == chat().calls([])
    assert b"" == text().calls([shapes.Call(id="call_1", function=function)])


@pytest.mark.parametrize("make", [chat, text])
def test_usage_has_a_chunk_of_its_own(make: Any) -> None:
    """Without a choice; all other chunks have a null in its place."""
    counted = shapes.usage([words.Usage(5, 2, 3), words.Usage(1, 0, 1)])
    chunks = make(with_usage=True)
    got = one(chunks.usage(counted))
    assert [] == got["choices"]
    assert {
        "prompt_tokens": 6,
        "completion_tokens": 4,
        "total_tokens": 10,
        "prompt_tokens_details": {"cached_tokens": 2},
    } == got["usage"]
    others = [chunks.opening] if chunks.opening else []
    for encoded in [*others, chunks.text("a"), chunks.finish("stop")]:
        assert one(encoded)["usage"] is None
    assert "usage" not in one(make().text("a"))


def test_usage_is_not_made_up() -> None:
    """If one of the workers was lost, the sum is not known."""
    assert None is shapes.usage([words.Usage(5, 2, 3), None])
    assert None is one(chat(with_usage=True).usage(None))["usage"]
