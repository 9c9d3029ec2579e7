"""The body of a chat completion, and what of it a template is given."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from supervisord_llm.errors import ClientError, InvalidRequest, UnsupportedParameter
from supervisord_llm.openai.chat import ChatRequest

USER = {"role": "user", "content": "Hi"}
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tell it",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


def request(*messages: dict[str, Any], **fields: Any) -> ChatRequest:
    """Decode a body; without messages it says hi."""
    body = {"model": "m", "messages": list(messages or [USER]), **fields}
    return msgspec.json.decode(json.dumps(body), type=ChatRequest)


def test_a_turn_is_passed_to_the_template_with_what_it_has() -> None:
    """And nothing that it has not: templates ask whether something is there."""
    turns = request({"role": "system", "content": "Be kind", "name": "boss"}, USER).turns
    assert [{"role": "system", "content": "Be kind", "name": "boss"}, USER] == turns


def test_parts_of_text_become_one_text() -> None:
    """Templates know no parts."""
    parts = [{"type": "text", "text": "a\n"}, {"type": "text", "text": "b"}]
    assert "a\nb" == request({"role": "user", "content": parts}).turns[0]["content"]


def test_a_picture_is_refused_by_its_place() -> None:
    """A model that does not see it would answer something else."""
    parts = [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "data:"}}]
    asked = request(USER, {"role": "user", "content": parts})
    with pytest.raises(UnsupportedParameter) as caught:
        _ = asked.turns
    assert "messages[1].content[1].type" == caught.value.param


def test_calls_and_their_results_are_passed_on() -> None:
    """Arguments as an object, as templates expect; what is no object stays text."""
    calls = [
        {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": "ä"}'}},
        {"id": "c2", "type": "function", "function": {"name": "g", "arguments": "a mess"}},
    ]
    turns = request(
        USER,
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "content": "12", "tool_call_id": "c1"},
    ).turns
    functions = [
        {"id": "c1", "type": "function", "function": {"name": "f", "arguments": {"a": "ä"}}},
        {"id": "c2", "type": "function", "function": {"name": "g", "arguments": "a mess"}},
    ]
    assert {"role": "assistant", "content": "", "tool_calls": functions} == turns[1]
    assert {"role": "tool", "content": "12", "tool_call_id": "c1"} == turns[2]


def test_only_an_assistant_may_say_nothing() -> None:
    """It may have called instead."""
    with pytest.raises(InvalidRequest, match=r"messages\[0\].content"):
        _ = request({"role": "user"}).turns


@pytest.mark.parametrize("field", ["function_call", "audio"])
def test_what_a_template_cannot_be_given_is_refused(field: str) -> None:
    """Null is nothing."""
    said = {"role": "assistant", "content": "x"}
    assert 1 == len(request({**said, field: None}).turns)
    with pytest.raises(UnsupportedParameter, match=field):
        _ = request({**said, field: {"id": "1"}}).turns


def test_tools_are_offered_as_they_came() -> None:
    """To the template whole, to the parser as the schemas of their arguments."""
    asked = request(tools=[WEATHER], tool_choice="auto", parallel_tool_calls=True)
    asked.check()
    assert [WEATHER] == asked.offered
    assert {"weather": WEATHER["function"]["parameters"]} == asked.tool_schemas  # type: ignore[index]


def test_the_model_is_told_of_no_tool_that_it_must_not_call() -> None:
    """tool_choice none is the same as no tools."""
    asked = request(tools=[WEATHER], tool_choice="none")
    asked.check()
    assert ([], {}) == (asked.offered, asked.tool_schemas)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice"),
        ({"tools": [WEATHER], "parallel_tool_calls": False}, "parallel_tool_calls"),
        ({"tools": [{"type": "custom", "custom": {"name": "x"}}]}, "tools[0].type"),
        ({"tools": [WEATHER, {"type": "function"}]}, "tools[1].type"),
        (
            {"tools": [{"type": "function", "function": {"name": "f", "strict": True}}]},
            "tools[0].function.strict",
        ),
    ],
)
def test_what_cannot_be_promised_is_refused(fields: dict[str, Any], param: str) -> None:
    """Tools that must be called, called alone, or called by the letter of their schema."""
    with pytest.raises(UnsupportedParameter) as caught:
        request(**fields).check()
    assert param == caught.value.param


def test_what_is_said_of_tools_without_tools_changes_nothing() -> None:
    """Some clients always say it."""
    request(parallel_tool_calls=False, tool_choice="auto", tools=[]).check()


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, None),
        ({"max_tokens": 5}, 5),
        ({"max_completion_tokens": 6}, 6),
        ({"max_tokens": 7, "max_completion_tokens": 7}, 7),
    ],
)
def test_the_limit_has_two_names(fields: dict[str, Any], expected: object) -> None:
    """Either of them, or both if they agree."""
    asked = request(**fields)
    asked.check()
    assert expected == asked.token_limit


def test_two_limits_that_differ_are_refused() -> None:
    """Nobody could tell which is meant."""
    with pytest.raises(ClientError, match="max_tokens"):
        request(max_tokens=1, max_completion_tokens=2).check()


@pytest.mark.parametrize(
    "fields",
    [
        {"messages": []},
        {"messages": [{"role": "robot", "content": "x"}]},
        {"messages": [{"role": "user", "content": 1}]},
        {"tools": [{"type": "function", "function": {"name": "a b"}}]},
        {"chat_template_kwargs": []},
    ],
)
def test_a_field_of_another_shape_is_refused(fields: dict[str, Any]) -> None:
    """The decoder names the field."""
    with pytest.raises(msgspec.ValidationError, match=next(iter(fields))):
        request(**fields)
