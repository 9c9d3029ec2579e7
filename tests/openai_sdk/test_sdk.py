"""The real ``openai`` library, synchronous, over TCP and over the Unix socket."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import openai
import pytest
from openai import OpenAI

from tests.openai_sdk.conftest import Served, said

WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
CALL = "<function=weather><parameter=city>Oslo</parameter></function>"
"""In a form without an underscore, which a sim worker would write as a space."""


def test_the_models_are_the_pools_and_their_aliases(client: OpenAI) -> None:
    """Listed, and each by its name."""
    assert ["sim", "gpt-4o"] == [model.id for model in client.models.list()]
    assert "gpt-4o" == client.models.retrieve("gpt-4o").id


def test_a_chat_is_answered_whole(client: OpenAI) -> None:
    """By an alias of the pool too, which comes back as it was asked for."""
    answer = client.chat.completions.create(model="gpt-4o", messages=said("hello sim.tokens=3"))
    [choice] = answer.choices
    assert ("gpt-4o", "chat.completion") == (answer.model, answer.object)
    assert ("assistant", "t0 t1 t2 ", None) == (
        choice.message.role,
        choice.message.content,
        choice.message.tool_calls,
    )
    assert "length" == choice.finish_reason
    assert answer.usage is not None
    assert 3 == answer.usage.completion_tokens
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 3


def test_a_chat_is_streamed_with_its_usage(client: OpenAI) -> None:
    """The role first, then text, the reason, and the usage without a choice."""
    stream = client.chat.completions.create(
        model="sim",
        messages=said("hello sim.text=so_be_it"),
        stream=True,
        stream_options={"include_usage": True},
    )
    *chunks, last = list(stream)
    deltas = [chunk.choices[0].delta for chunk in chunks]
    assert "assistant" == deltas[0].role
    assert "so be it" == "".join(delta.content or "" for delta in deltas).strip()
    assert "stop" == chunks[-1].choices[0].finish_reason
    assert all(chunk.usage is None for chunk in chunks)
    assert last.usage is not None
    assert ([], True) == (last.choices, last.usage.completion_tokens > 0)
    assert 1 == len({chunk.id for chunk in [*chunks, last]})


def test_a_long_prefill_does_not_confuse_it(client: OpenAI) -> None:
    """Comments that keep the connection alive are nothing to the library."""
    stream = client.chat.completions.create(
        model="sim", messages=said("hello sim.prefill_ms=400 sim.tokens=2"), stream=True
    )
    texts = [chunk.choices[0].delta.content or "" for chunk in stream]
    assert "t0 t1 " == "".join(texts)


def test_no_emoji_is_broken(client: OpenAI) -> None:
    """In a stream as in a whole answer."""
    content = said("hello sim.utf8 sim.tokens=80 sim.tps=2000")
    stream = client.chat.completions.create(model="sim", messages=content, stream=True)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
    whole = client.chat.completions.create(model="sim", messages=content)
    assert whole.choices[0].message.content == text
    assert not text.isascii()
    assert "\ufffd" not in text


def test_texts_are_completed(client: OpenAI) -> None:
    """Several prompts have a choice each; a stop string ends one."""
    answer = client.completions.create(
        model="sim", prompt=["a sim.tokens=2", "b sim.tokens=900"], max_tokens=1000, stop=["t4"]
    )
    assert ["t0 t1 ", "t0 t1 t2 t3 "] == [choice.text for choice in answer.choices]
    assert ["length", "stop"] == [choice.finish_reason for choice in answer.choices]


def test_a_text_is_streamed(client: OpenAI) -> None:
    """From token ids too, which are no directives."""
    stream = client.completions.create(model="sim", prompt=[1, 2, 3], max_tokens=4, stream=True)
    assert "t0 t1 t2 t3 " == "".join(chunk.choices[0].text for chunk in stream)


def test_a_tool_is_called_and_its_result_is_taken(client: OpenAI) -> None:
    """The call is whole, and goes back with the next turn as the library has it."""
    messages = said(f"hello sim.text={CALL}")
    answer = client.chat.completions.create(model="sim", messages=messages, tools=[WEATHER])
    [choice] = answer.choices
    assert "tool_calls" == choice.finish_reason
    assert choice.message.tool_calls is not None
    [call] = choice.message.tool_calls
    assert call.type == "function"
    assert ("weather", {"city": "Oslo"}) == (
        call.function.name,
        json.loads(call.function.arguments),
    )
    result = {"role": "tool", "tool_call_id": call.id, "content": "sim.text=rain"}
    messages = [*messages, choice.message.to_dict(), result]
    after = client.chat.completions.create(model="sim", messages=messages, tools=[WEATHER])
    assert "rain" == (after.choices[0].message.content or "").strip()


def test_a_streamed_tool_call_comes_in_one_piece(client: OpenAI) -> None:
    """Its name and all of its arguments in one chunk."""
    stream = client.chat.completions.create(
        model="sim", messages=said(f"hello sim.text={CALL}"), tools=[WEATHER], stream=True
    )
    chunks = list(stream)
    calls = [call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or ()]
    assert ["weather"] == [call.function.name for call in calls if call.function]
    assert "tool_calls" == chunks[-1].choices[0].finish_reason


def test_a_session_is_warm_the_second_time(client: OpenAI) -> None:
    """What its worker had read counts as cached; then it is closed."""
    cached = []
    for content in ("one two three sim.eos_at=0", "one two three four sim.eos_at=0"):
        answer = client.completions.create(
            model="sim", prompt=content, extra_body={"session_id": "trip"}
        )
        assert answer.usage is not None
        assert answer.usage.prompt_tokens_details is not None
        cached.append(answer.usage.prompt_tokens_details.cached_tokens)
    assert [0, 3] == cached
    closed = client.delete("/sessions/trip?model=sim", cast_to=httpx2.Response)
    assert closed.json()["deleted"]


@pytest.mark.parametrize(
    ("fields", "error", "code", "param"),
    [
        ({"model": "nobody"}, openai.NotFoundError, "unknown_model", "model"),
        ({"n": 2}, openai.BadRequestError, "unsupported_parameter", "n"),
        ({"temperature": 5}, openai.BadRequestError, "invalid_request", "temperature"),
        ({"messages": []}, openai.BadRequestError, "invalid_request", "messages"),
        (
            {"messages": said("a " * 200_000)},
            openai.BadRequestError,
            "context_length_exceeded",
            None,
        ),
        (
            {"messages": said("a sim.error=too_hot")},
            openai.InternalServerError,
            "worker_failed",
            None,
        ),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_errors_are_the_librarys_own(
    client: OpenAI,
    fields: dict[str, Any],
    error: type[openai.APIStatusError],
    code: str,
    param: str | None,
    stream: bool,
) -> None:
    """With the status, the code and the field of what is wrong, before a stream begins."""
    body: dict[str, Any] = {"model": "sim", "messages": said("a"), "stream": stream, **fields}
    with pytest.raises(error) as caught:
        client.chat.completions.create(**body)
    assert code == caught.value.code
    assert param == caught.value.param


def test_a_wrong_key_is_told_as_such(served: Served) -> None:
    """With the exception that applications know."""
    with served.over_tcp(api_key="sk-wrong") as client, pytest.raises(openai.AuthenticationError):
        client.models.list()


def test_closing_a_stream_cancels_its_request(client: OpenAI, served: Served) -> None:
    """By the client, in the order of the ladder, and the worker serves on as it is."""
    names = ("cancel.requested", "cancel.settled", "request.finished", "worker.quarantined")
    seen = {name: len(served.daemon.events(name)) for name in names}
    stream = client.chat.completions.create(
        model="sim", messages=said("a sim.tokens=90000 sim.tps=200"), stream=True
    )
    with stream:
        for chunk in stream:
            if chunk.choices[0].delta.content:
                break
    served.daemon.wait("cancel.settled", seen["cancel.settled"] + 1)
    served.wait_idle()
    [asked], [settled], [finished] = (served.since(name, seen[name]) for name in names[:3])
    assert ("client", "cancelled", "client") == (
        asked["by"],
        finished["outcome"],
        finished["cancelled_by"],
    )
    assert 1 == len({event["request"] for event in (asked, settled, finished)})
    assert not served.since("worker.quarantined", seen["worker.quarantined"])


def test_its_own_request_id_is_the_daemons(served: Served) -> None:
    """The library tells the id under which the events know the request."""
    with served.over_tcp() as client:
        raw = client.chat.completions.with_raw_response.create(
            model="sim", messages=said("a sim.tokens=1")
        )
    finished = [event["request"] for event in served.daemon.events("request.finished")]
    assert raw.headers["x-request-id"] in finished
