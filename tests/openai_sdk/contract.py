"""The contract of the OpenAI routes, line by line: what is taken, and what is refused and how.

Every line has a name, which is the name of its test.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.openai_sdk.conftest import said

CHAT, TEXT = "/chat/completions", "/completions"

WEATHER = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}},
}
CALLED = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    ],
}
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "rain sim.tokens=1"}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}


@dataclass(frozen=True)
class Taken:
    """A body that is answered, by either route if none is named."""

    name: str
    fields: dict[str, Any]
    route: str = ""


@dataclass(frozen=True)
class Refused:
    """A body that is not."""

    name: str
    fields: dict[str, Any]
    param: str | None
    code: str = "invalid_request"
    status: int = 400
    route: str = ""
    without: tuple[str, ...] = field(default=())
    """Fields of the usual body that are left out."""


def unsupported(name: str, fields: dict[str, Any], param: str = "", route: str = "") -> Refused:
    """A field that would change the output."""
    return Refused(name, fields, param or next(iter(fields)), "unsupported_parameter", route=route)


def turns(*messages: dict[str, Any]) -> dict[str, Any]:
    """A field ``messages``."""
    return {"messages": list(messages)}


TAKEN = [
    Taken("the pool's alias", {"model": "gpt-4o"}),
    Taken("no stream", {"stream": False}),
    Taken("null is left out", {"stream": None, "stop": None, "seed": None, "temperature": None}),
    Taken("temperature 0", {"temperature": 0}),
    Taken("temperature 2", {"temperature": 2.0}),
    Taken("top_p", {"top_p": 0.5}),
    Taken("top_p 1", {"top_p": 1}),
    Taken("top_k", {"top_k": 40}),
    Taken("top_k without limit", {"top_k": -1}),
    Taken("min_p that does nothing", {"min_p": 0}),
    Taken("seed", {"seed": 2**63 - 1}),
    Taken("max_tokens", {"max_tokens": 1}),
    Taken("max_completion_tokens", {"max_completion_tokens": 1}, CHAT),
    Taken("both limits that agree", {"max_tokens": 2, "max_completion_tokens": 2}, CHAT),
    Taken("one stop", {"stop": "end"}),
    Taken("four stops", {"stop": ["a1", "b1", "c1", "d1"]}),
    Taken("no stops", {"stop": []}),
    Taken("n 1", {"n": 1}),
    Taken("user", {"user": "somebody"}),
    Taken("session_id", {"session_id": "s-1"}),
    Taken("response_format text", {"response_format": {"type": "text"}}, CHAT),
    Taken("penalties that do nothing", {"frequency_penalty": 0, "presence_penalty": 0.0}),
    Taken("logprobs that are none", {"logprobs": False}, CHAT),
    Taken("harmless fields that nobody knows", {"store": True, "metadata": {"a": "b"}, "x": [1]}),
    Taken("parts of text", turns({"role": "user", "content": [
        {"type": "text", "text": "a "}, {"type": "text", "text": "sim.tokens=1"}]}), CHAT),
    Taken("every role", turns(
        {"role": "system", "content": "a"}, {"role": "developer", "content": "b"},
        *said("c"), CALLED, RESULT), CHAT),
    Taken("tools", {"tools": [WEATHER]}, CHAT),
    Taken("tool_choice auto", {"tools": [WEATHER], "tool_choice": "auto"}, CHAT),
    Taken("tool_choice none", {"tools": [WEATHER], "tool_choice": "none"}, CHAT),
    Taken("parallel tool calls", {"tools": [WEATHER], "parallel_tool_calls": True}, CHAT),
    Taken("chat_template_kwargs", {"chat_template_kwargs": {"enable_thinking": False}}, CHAT),
    Taken("a list with one text", {"prompt": ["a sim.tokens=1"]}, TEXT),
    Taken("a list of texts", {"prompt": ["a sim.tokens=1", "b sim.tokens=1"]}, TEXT),
    Taken("token ids", {"prompt": [1, 2, 3]}, TEXT),
    Taken("lists of token ids", {"prompt": [[1, 2], [3]]}, TEXT),
    Taken("sixteen prompts", {"prompt": [f"{n} sim.tokens=1" for n in range(16)]}, TEXT),
    Taken("best_of 1 and no echo", {"best_of": 1, "echo": False, "suffix": ""}, TEXT),
]  # fmt: skip

REFUSED = [
    Refused("no model", {}, "model", without=("model",)),
    Refused("an unknown model", {"model": "nobody"}, "model", "unknown_model", 404),
    Refused("an empty model", {"model": ""}, "model"),
    Refused("a model that is no text", {"model": 1}, "model"),
    Refused("no messages", {}, "messages", route=CHAT, without=("messages",)),
    Refused("empty messages", {"messages": []}, "messages", route=CHAT),
    Refused("messages that are text", {"messages": "hello"}, "messages", route=CHAT),
    Refused("an unknown role", turns({"role": "robot", "content": "a"}), "messages[0].role",
            route=CHAT),
    Refused("a message without content", turns({"role": "user"}), "messages[0].content",
            route=CHAT),
    Refused("no prompt", {}, "prompt", route=TEXT, without=("prompt",)),
    Refused("an empty prompt", {"prompt": ""}, "prompt", route=TEXT),
    Refused("an empty list", {"prompt": []}, "prompt", route=TEXT),
    Refused("an empty prompt in a list", {"prompt": ["a", ""]}, "prompt", route=TEXT),
    Refused("seventeen prompts", {"prompt": ["a"] * 17}, "prompt", route=TEXT),
    Refused("texts among token ids", {"prompt": ["a", 1]}, "prompt", route=TEXT),
    Refused("a negative token id", {"prompt": [-1]}, "prompt[0]", route=TEXT),
    Refused("temperature below 0", {"temperature": -0.1}, "temperature"),
    Refused("temperature above 2", {"temperature": 2.1}, "temperature"),
    Refused("temperature as text", {"temperature": "1"}, "temperature"),
    Refused("top_p 0", {"top_p": 0}, "top_p"),
    Refused("top_p above 1", {"top_p": 1.1}, "top_p"),
    Refused("top_k below -1", {"top_k": -2}, "top_k"),
    Refused("a negative seed", {"seed": -1}, "seed"),
    Refused("max_tokens 0", {"max_tokens": 0}, "max_tokens"),
    Refused("max_tokens as a fraction", {"max_tokens": 1.5}, "max_tokens"),
    Refused("limits that contradict", {"max_tokens": 1, "max_completion_tokens": 2}, "max_tokens",
            route=CHAT),
    Refused("five stops", {"stop": ["a", "b", "c", "d", "e"]}, "stop"),
    Refused("an empty stop", {"stop": ""}, "stop"),
    Refused("stream_options without a stream", {"stream_options": {"include_usage": True}},
            "stream_options"),
    Refused("a session id with a space", {"session_id": "a b"}, "session_id"),
    Refused("an empty session id", {"session_id": ""}, "session_id"),
    Refused("a session for several prompts", {"session_id": "s", "prompt": ["a", "b"]},
            "session_id", route=TEXT),
    Refused("tools without a name", {"tools": [{"type": "function", "function": {}}]},
            "tools[0].function.name", route=CHAT),
    unsupported("n 2", {"n": 2}),
    unsupported("n 0", {"n": 0}),
    unsupported("min_p", {"min_p": 0.1}),
    unsupported("logprobs", {"logprobs": True}),
    unsupported("logprobs as a number", {"logprobs": 1}, route=TEXT),
    unsupported("logit_bias", {"logit_bias": {"1": 2}}),
    unsupported("frequency_penalty", {"frequency_penalty": 0.5}),
    unsupported("presence_penalty", {"presence_penalty": 0.5}),
    unsupported("best_of", {"best_of": 2}, route=TEXT),
    unsupported("echo", {"echo": True}, route=TEXT),
    unsupported("suffix", {"suffix": "end"}, route=TEXT),
    unsupported("response_format json", {"response_format": {"type": "json_object"}}, route=CHAT),
    unsupported("response_format schema",
                {"response_format": {"type": "json_schema", "json_schema": {}}}, route=CHAT),
    unsupported("reasoning_effort", {"reasoning_effort": "low"}, route=CHAT),
    unsupported("audio", {"modalities": ["audio"]}, route=CHAT),
    unsupported("tool_choice required", {"tools": [WEATHER], "tool_choice": "required"},
                "tool_choice", CHAT),
    unsupported("tool_choice by name", {"tools": [WEATHER], "tool_choice": WEATHER},
                "tool_choice", CHAT),
    unsupported("one call at a time", {"tools": [WEATHER], "parallel_tool_calls": False},
                "parallel_tool_calls", CHAT),
    unsupported("strict tools",
                {"tools": [{"type": "function", "function": {"name": "a", "strict": True}}]},
                "tools[0].function.strict", CHAT),
    unsupported("a tool of another type", {"tools": [{"type": "web_search"}]}, "tools[0].type",
                CHAT),
    unsupported("functions", {"functions": [{"name": "a"}]}, route=CHAT),
    unsupported("a picture", turns({"role": "user", "content": [IMAGE]}),
                "messages[0].content[0].type", CHAT),
]  # fmt: skip


def names(lines: list[Taken] | list[Refused]) -> list[str]:
    """The tests' names: what is refused, by which route."""
    return [f"{line.name} {line.route}".strip() for line in lines]
