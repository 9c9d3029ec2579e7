"""``/v1/completions`` and ``/v1/models`` over sim workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
import trio

from supervisord_llm.core.words import CancelledBy
from supervisord_llm.events import (
    CancelRequested,
    RequestAccepted,
    RequestFinished,
    RequestRejected,
    RequestStarted,
)
from supervisord_llm.schema import Token
from tests.api.conftest import Door
from tests.api.house import ask, house, next_of
from tests.api.openai import choices, complete, error_of, events, http_of
from tests.harness import QUICK


async def test_a_completion_is_one_value(tmp_path: Path) -> None:
    """The text, why it ended, and what was counted."""
    async with house(tmp_path) as at:
        reply = await complete(at, "a b sim.tokens=3")
    got = reply.json()
    request = at.all(RequestAccepted)[0].request
    assert (200, "application/json") == (reply.status_code, reply.headers["content-type"])
    assert request == reply.headers["x-request-id"]
    assert request.replace("req_", "cmpl-") == got["id"]
    assert ("text_completion", "sim") == (got["object"], got["model"])
    assert [{"index": 0, "text": "t0 t1 t2 ", "logprobs": None, "finish_reason": "length"}] == got[
        "choices"
    ]
    assert {
        "prompt_tokens": 2,
        "completion_tokens": 3,
        "total_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 0},
    } == got["usage"]


async def test_a_stream_has_the_same_text(tmp_path: Path) -> None:
    """As events, ending with the reason and the usage that was asked for."""
    async with house(tmp_path) as at:
        options = {"stream": True, "stream_options": {"include_usage": True}}
        reply = await complete(at, "a b sim.text=so_be_it", **options)
    assert "text/event-stream; charset=utf-8" == reply.headers["content-type"]
    *chunks, last = events(reply.text)
    parts = choices(chunks)
    assert "so be it" == "".join(each["text"] for each in parts).strip()
    assert [None] * (len(parts) - 1) + ["stop"] == [each["finish_reason"] for each in parts]
    assert ([], 2) == (last["choices"], last["usage"]["prompt_tokens"])


async def test_no_character_is_broken(tmp_path: Path) -> None:
    """Those of several bytes come whole, in whichever chunk."""
    async with house(tmp_path) as at:
        whole = (await complete(at, "a sim.utf8 sim.tokens=80")).json()["choices"][0]["text"]
        reply = await complete(at, "a sim.utf8 sim.tokens=80 sim.tps=2000", stream=True)
    assert whole == "".join(each["text"] for each in choices(events(reply.text)))
    assert "\ufffd" not in whole
    assert not whole.isascii()


@pytest.mark.parametrize("stream", [False, True])
async def test_each_prompt_has_its_choice(tmp_path: Path, stream: bool) -> None:
    """With its index, its own stop and its own reason; the usage is that of all."""
    prompts = ["a sim.tokens=2", "b sim.text=x_y_z", "c sim.tokens=900"]
    options: dict[str, Any] = {"stop": "t5"}
    if stream:
        options |= {"stream": True, "stream_options": {"include_usage": True}}
    async with house(tmp_path, workers=2) as at:
        reply = await complete(at, prompts, **options)
    chunks = events(reply.text) if stream else [reply.json()]
    texts = ["".join(each["text"] for each in choices(chunks, index)) for index in range(3)]
    reasons = [choices(chunks, index)[-1]["finish_reason"] for index in range(3)]
    assert ["t0 t1", "x y z", "t0 t1 t2 t3 t4"] == [text.strip() for text in texts]
    assert ["length", "stop", "stop"] == reasons
    assert 3 == chunks[-1]["usage"]["prompt_tokens"]
    assert 3 == len(at.all(RequestFinished))


@pytest.mark.parametrize("stream", [False, True])
async def test_a_stop_string_is_no_cancellation(tmp_path: Path, stream: bool) -> None:
    """What is before it is shown, and the worker serves on."""
    async with house(tmp_path) as at:
        reply = await complete(at, "a sim.tokens=900 sim.tps=2000", stop=["t3 t"], stream=stream)
        again = await complete(at, "a sim.tokens=1")
    chunks = events(reply.text) if stream else [reply.json()]
    assert "t0 t1 t2 " == "".join(each["text"] for each in choices(chunks))
    assert "stop" == choices(chunks)[-1]["finish_reason"]
    assert "t0 " == again.json()["choices"][0]["text"]
    assert not at.all(CancelRequested)
    assert {"completed"} == {str(each.outcome) for each in at.all(RequestFinished)}


@pytest.mark.parametrize("stream", [False, True])
async def test_one_failure_is_that_of_all_prompts(tmp_path: Path, stream: bool) -> None:
    """The others are cancelled: an answer is whole or there is none."""
    prompts = ["a sim.slow=prefill", "b sim.error=too_hot"]
    async with house(tmp_path, workers=2) as at:
        reply = await complete(at, prompts, stream=stream)
        await at.wait(RequestFinished, 2)
    assert (502, "worker_failed") == (reply.status_code, error_of(reply)["code"])
    assert "too hot" in error_of(reply)["message"]
    outcomes = sorted(str(each.outcome) for each in at.all(RequestFinished))
    assert ["cancelled", "failed"] == outcomes


async def test_a_prompt_may_be_token_ids(tmp_path: Path) -> None:
    """They are counted as they are."""
    async with house(tmp_path) as at:
        one = await complete(at, [1, 2, 3], max_tokens=1)
        two = await complete(at, [[1, 2], [3]], max_tokens=1)
    counts = [each.json()["usage"]["prompt_tokens"] for each in (one, two)]
    assert [3, 3] == counts
    assert 2 == len(two.json()["choices"])


@pytest.mark.parametrize("stream", [False, True])
async def test_a_prompt_beyond_the_context_is_refused(tmp_path: Path, stream: bool) -> None:
    """With the status that clients know, before a stream begins."""
    async with house(tmp_path, "--context_length=8") as at:
        reply = await complete(at, "a " * 20, stream=stream)
    error = error_of(reply)
    assert (400, "context_length_exceeded") == (reply.status_code, error["code"])
    assert "8" in error["message"]
    assert "invalid_request_error" == error["type"]


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"n": 2}, "n", "unsupported_parameter"),
        ({"echo": True}, "echo", "unsupported_parameter"),
        ({"logprobs": 1}, "logprobs", "unsupported_parameter"),
        ({"temperature": 3}, "temperature", "invalid_request"),
        ({"prompt": []}, "prompt", "invalid_request"),
        ({"model": "gpt"}, "model", "unknown_model"),
        ({"stream_options": {}}, "stream_options", "invalid_request"),
        ({"session_id": "a b"}, "session_id", "invalid_request"),
        ({"session_id": "a", "prompt": ["a", "b"]}, "session_id", "invalid_request"),
    ],
)
async def test_what_cannot_be_done_is_said_with_its_field(
    door: Door, fields: dict[str, Any], param: str, code: str
) -> None:
    """And told once, as a request that was never accepted."""
    body = {"model": "smollm", "prompt": "a", **fields}
    headers = {"x-request-id": "mine"}
    reply = await door.http.post("/v1/completions", json=body, headers=headers)
    error = error_of(reply)
    assert (param, code) == (error["param"], error["code"])
    assert "mine" == reply.headers["x-request-id"]
    told = [each for each in door.daemon.events if isinstance(each, RequestRejected)]
    assert [(code, param)] == [(each.code, each.field) for each in told]
    assert not door.daemon.accepted


@pytest.mark.parametrize("stream", [False, True])
async def test_a_queue_that_is_full_takes_none_of_the_prompts(tmp_path: Path, stream: bool) -> None:
    """429, and when to come again; the one that had been taken is withdrawn."""
    settings = QUICK + "queue.max_queued = 1\n"
    async with (
        house(tmp_path, settings=settings) as at,
        at.client.generate(ask("x sim.tokens=100000 sim.tps=200")) as other,
    ):
        await next_of(other, Token)
        reply = await complete(at, ["a", "b"], stream=stream)
        withdrawn = await at.wait(RequestFinished)
    assert (429, "queue_full") == (reply.status_code, error_of(reply)["code"])
    assert 1 <= int(reply.headers["retry-after"])
    assert CancelledBy.CLIENT is withdrawn.cancelled_by
    assert ["queue_full"] == [each.code for each in at.all(RequestRejected)]


@pytest.mark.parametrize("stream", [False, True])
async def test_what_an_operator_cancels_is_not_to_be_sent_again(
    tmp_path: Path, stream: bool
) -> None:
    """While it is still read, it has a status, and the header that libraries follow."""
    async with house(tmp_path) as at, trio.open_nursery() as nursery:
        replies: list[httpx.Response] = []

        async def client() -> None:
            replies.append(await complete(at, "x sim.slow=prefill", stream=stream))

        nursery.start_soon(client)
        started = await at.wait(RequestStarted)
        await at.client.cancel(started.request)
    [reply] = replies
    assert (503, "cancelled") == (reply.status_code, error_of(reply)["code"])
    assert "false" == reply.headers["x-should-retry"]


async def test_models_are_listed(tmp_path: Path) -> None:
    """Each pool, alone too; and one that is not there is not found."""
    async with house(tmp_path) as at, http_of(at.socket) as http:
        listed = (await http.get("/v1/models")).json()
        alone = (await http.get("/v1/models/sim")).json()
        missing = await http.get("/v1/models/some/other")
    assert "list" == listed["object"]
    assert ("sim", "model", "supervisord-llm", 131072) == tuple(
        alone[key] for key in ("id", "object", "owned_by", "context_length")
    )
    assert alone in listed["data"]
    assert (404, "unknown_model") == (missing.status_code, error_of(missing)["code"])
