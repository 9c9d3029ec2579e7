"""``/v1/chat/completions`` over sim workers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from supervisord_llm.events import RequestFinished, RequestRejected
from tests.api.house import house
from tests.api.openai import chat, choices, complete, error_of, events, http_of
from tests.harness import QUICK

ECHO = "--chat_template={{{{messages[-1].content}}}}{{{{''if(tools)}}}}"
"""Says what was said last, and takes tools without a word of them."""
"""The prompt is the last message, so that it may hold what the sim worker is to do."""

WEATHER = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}},
}
CALL = "<function=weather><parameter=city>Rome</parameter></function>"
"""In a form without an underscore, which the sim worker would write as a space."""


async def test_a_chat_is_one_message(tmp_path: Path) -> None:
    """With the role, the reason and the usage."""
    async with house(tmp_path, ECHO) as at:
        got = (await chat(at, "a sim.text=good_day")).json()
    assert got["id"].startswith("chatcmpl-")
    [choice] = got["choices"]
    assert ("assistant", "good day") == (
        choice["message"]["role"],
        choice["message"]["content"].strip(),
    )
    assert ("chat.completion", "stop", 0) == (
        got["object"],
        choice["finish_reason"],
        choice["index"],
    )
    assert 1 == got["usage"]["prompt_tokens"]


async def test_a_chat_is_streamed(tmp_path: Path) -> None:
    """The role first, then the text, then the reason."""
    async with house(tmp_path, ECHO) as at:
        reply = await chat(at, "a sim.tokens=50 sim.tps=2000", stream=True)
    first, *rest = [each["delta"] for each in choices(events(reply.text))]
    assert {"role": "assistant", "content": ""} == first
    assert {} == rest.pop()
    text = "".join(each["content"] for each in rest)
    assert [f"t{number}" for number in range(50)] == text.split()


async def test_parts_and_variables_reach_the_template(tmp_path: Path) -> None:
    """The parts as one text, and what chat_template_kwargs say."""
    template = "--chat_template={{{{messages[0].content}}}}{{{{mood}}}}"
    async with house(tmp_path, template) as at:
        parts = [{"type": "text", "text": "one two "}, {"type": "text", "text": "sim.text="}]
        got = (await chat(at, parts, chat_template_kwargs={"mood": "merry"})).json()
    assert "merry" == got["choices"][0]["message"]["content"].strip()
    assert 2 == got["usage"]["prompt_tokens"]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_call_of_a_tool_comes_whole(tmp_path: Path, stream: bool) -> None:
    """Beside the text, with arguments that are JSON; nothing of its tags is shown."""
    async with house(tmp_path, ECHO) as at:
        reply = await chat(at, f"a sim.text=Look._{CALL}", tools=[WEATHER], stream=stream)
    if stream:
        parts = choices(events(reply.text))
        deltas = [each["delta"] for each in parts]
        text = "".join(each.get("content") or "" for each in deltas)
        calls = [call for each in deltas for call in each.get("tool_calls", [])]
        assert [0] == [call["index"] for call in calls]
    else:
        parts = reply.json()["choices"]
        text, calls = parts[0]["message"]["content"], parts[0]["message"]["tool_calls"]
    assert ("Look.", "tool_calls") == (text.strip(), parts[-1]["finish_reason"])
    [call] = calls
    assert ("function", "weather", {"city": "Rome"}) == (
        call["type"],
        call["function"]["name"],
        json.loads(call["function"]["arguments"]),
    )
    assert call["id"].startswith("call_")


@pytest.mark.parametrize("fields", [{}, {"tools": [WEATHER], "tool_choice": "none"}, {"tools": []}])
async def test_without_tools_a_call_is_text(tmp_path: Path, fields: dict[str, Any]) -> None:
    """Nobody asked for it."""
    async with house(tmp_path, ECHO) as at:
        got = (await chat(at, f"a sim.text={CALL}", **fields)).json()
    [choice] = got["choices"]
    assert CALL == choice["message"]["content"].strip()
    assert "tool_calls" not in choice["message"]


async def test_tools_are_not_passed_over_in_silence(tmp_path: Path) -> None:
    """Where the model's template does not tell of them, unless the model is not to call any."""
    async with house(tmp_path, "--chat_template={{{{messages[-1].content}}}}") as at:
        refused = await chat(at, "a sim.tokens=1", tools=[WEATHER])
        taken = await chat(at, "a sim.tokens=1", tools=[WEATHER], tool_choice="none")
    error = refused.json()["error"]
    assert (400, "unsupported_parameter", "tools") == (
        refused.status_code,
        error["code"],
        error["param"],
    )
    assert "does not tell of tools" in error["message"]
    assert taken.status_code == 200


async def test_a_conversation_that_the_template_refuses_is_400(tmp_path: Path) -> None:
    """In the template's own words, and never accepted."""
    template = "--chat_template={{{{raise_exception('no')}}}}"
    async with house(tmp_path, template) as at:
        reply = await chat(at, "a")
    error = error_of(reply)
    assert (400, "invalid_request", "messages") == (
        reply.status_code,
        error["code"],
        error["param"],
    )
    assert ["sim"] == [each.pool for each in at.all(RequestRejected)]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_model_is_loaded_for_a_chat(tmp_path: Path, stream: bool) -> None:
    """The request waits for its model, and only then for its template."""
    settings = QUICK + 'load = "on_demand"\n'
    async with house(tmp_path, ECHO, settings=settings, ready=False) as at:
        reply = await chat(at, f"a sim.text={CALL}", tools=[WEATHER], stream=stream)
    assert 200 == reply.status_code
    assert '"finish_reason":"tool_calls"' in reply.text


@pytest.mark.parametrize("stream", [False, True])
async def test_what_its_template_refuses_later_is_400_too(tmp_path: Path, stream: bool) -> None:
    """Although it was accepted, for the model was not known."""
    settings = QUICK + 'load = "on_demand"\n'
    template = "--chat_template={{{{raise_exception('no')}}}}"
    async with house(tmp_path, template, settings=settings, ready=False) as at:
        reply = await chat(at, "a", stream=stream)
    assert (400, "invalid_request") == (reply.status_code, error_of(reply)["code"])
    assert 1 == len(at.all(RequestFinished))


async def test_aliases_name_the_same_pool(tmp_path: Path) -> None:
    """In models, completions, chats and for sessions; the answer says what was asked for."""
    settings = QUICK + 'models = ["owner/big", "gpt"]\n'
    options = f"{ECHO} --sessions=2"
    async with house(tmp_path, options, settings=settings) as at, http_of(at.socket) as http:
        listed = [each["id"] for each in (await http.get("/v1/models")).json()["data"]]
        alone = (await http.get("/v1/models/owner/big")).json()
        text = await complete(at, "a sim.tokens=1", model="gpt")
        talk = await chat(at, "a sim.tokens=1", model="owner/big", session_id="trip")
        path = "/v1/sessions/trip/reset"
        reset = await http.post(path, json={"model": "owner/big"})
        missing = await http.post(path, json={"model": "other"})
    assert ["sim", "owner/big", "gpt"] == listed
    assert ("owner/big", "sim") == (alone["id"], alone["pool"])
    assert ["gpt", "owner/big"] == [each.json()["model"] for each in (text, talk)]
    assert (True, 404) == (reset.json()["existed"], missing.status_code)


async def test_a_session_reads_only_what_is_new(tmp_path: Path) -> None:
    """And the usage says how much it had read already."""
    async with house(tmp_path, f"{ECHO} --sessions=2") as at:
        await chat(at, "a b sim.eos_at=0", session_id="trip")
        got = (await chat(at, "a b c sim.eos_at=0", session_id="trip")).json()
    assert {"cached_tokens": 2} == got["usage"]["prompt_tokens_details"]
    assert 3 == got["usage"]["prompt_tokens"]
