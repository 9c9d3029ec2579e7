"""The written contract of the OpenAI routes, held against a daemon from outside.

What a client does to the connection itself (slow heads and bodies, thousands of idle connections,
chunked garbage) is in ``tests/api/test_hostile.py`` and ``test_bad_days.py``; leaving at every
moment in ``tests/api/test_openai_leaving.py``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from tests.harness import SECONDS
from tests.openai_sdk.conftest import Served, said
from tests.openai_sdk.contract import CHAT, REFUSED, TAKEN, TEXT, WEATHER, Refused, Taken, names

ROUTES = pytest.mark.parametrize("route", [CHAT, TEXT])
STREAM = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
EVENT = re.compile(r"(: keep-alive|data: (\[DONE\]|\{[^\n]*\}))\n\n")


@pytest.fixture
def http(served: Served) -> Iterator[httpx2.Client]:
    """A plain client with a key."""
    key = {"authorization": f"Bearer {served.key}"}
    with httpx2.Client(base_url=served.url, headers=key, timeout=SECONDS) as made:
        yield made


def usual(route: str, content: str = "a sim.tokens=2", **fields: Any) -> dict[str, Any]:
    """A body that is answered with two tokens."""
    asked = {"messages": said(content)} if route == CHAT else {"prompt": content}
    return {"model": "sim", **asked, **fields}


def events(text: str) -> list[Any]:
    """The values of a stream, each line of which follows the grammar; ``[DONE]`` is its end."""
    found = list(EVENT.finditer(text))
    assert text == "".join(each[0] for each in found)
    assert ["[DONE]"] == [each[2] for each in found if each[2] == "[DONE]"]
    assert "[DONE]" == found[-1][2]
    return [json.loads(each[2]) for each in found[:-1] if each[2]]


def routes(line: Taken | Refused) -> list[str]:
    """By which routes a line is tried."""
    return [line.route] if line.route else [CHAT, TEXT]


def check_error(reply: httpx2.Response, status: int, code: str, param: str | None) -> None:
    """The envelope, with something to read."""
    assert "application/json" == reply.headers["content-type"]
    error = reply.json()["error"]
    assert {"message", "type", "code", "param"} == error.keys()
    assert (status, code, param) == (reply.status_code, error["code"], error["param"])
    assert error["type"].endswith("_error")
    assert error["message"]


@STREAM
@pytest.mark.parametrize("line", TAKEN, ids=names(TAKEN))
def test_it_is_taken(http: httpx2.Client, line: Taken, stream: bool) -> None:
    """Answered with 200 and at least one choice that has ended."""
    for route in routes(line):
        body = usual(route, **{"stream": stream, **line.fields})
        reply = http.post(route, json=body)
        assert 200 == reply.status_code, reply.text
        chunks = events(reply.text) if body["stream"] else [reply.json()]
        reasons = [choice["finish_reason"] for chunk in chunks for choice in chunk["choices"]]
        ended = [reason for reason in reasons if reason]
        assert _choices(line.fields.get("prompt")) == len(ended)
        assert {"stop", "length"} >= set(ended)


def _choices(prompt: object) -> int:
    """How many choices a prompt has: token ids are one."""
    return len(prompt) if isinstance(prompt, list) and not isinstance(prompt[0], int) else 1


@STREAM
@pytest.mark.parametrize("line", REFUSED, ids=names(REFUSED))
def test_it_is_refused(http: httpx2.Client, line: Refused, stream: bool) -> None:
    """With the status, the code and the field, and never as a stream."""
    for route in routes(line):
        body = usual(route, **line.fields)
        if "stream_options" not in line.fields:
            body["stream"] = stream
        for name in line.without:
            del body[name]
        check_error(http.post(route, json=body), line.status, line.code, line.param)


@ROUTES
@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b'{"model": "\xff"}', b'{"model": "sim"} x']
)
def test_what_is_no_object_of_json_is_refused(http: httpx2.Client, route: str, body: bytes) -> None:
    """As the client's mistake."""
    reply = http.post(route, content=body)
    assert 400 == reply.status_code
    assert "invalid_request" == reply.json()["error"]["code"]


@ROUTES
def test_other_methods_are_refused_with_those_that_are_not(http: httpx2.Client, route: str) -> None:
    """405 and ``Allow``; a route that is none is 404."""
    reply = http.get(route)
    check_error(reply, 405, "method_not_allowed", None)
    assert "POST" == reply.headers["allow"]
    check_error(http.post(f"{route}/more", json={}), 404, "not_found", None)


@pytest.mark.parametrize("route", [CHAT, TEXT, "/models", "/models/sim", "/sessions/s/reset"])
@pytest.mark.parametrize("header", [None, "Bearer wrong", "Basic YTpi", "Bearer"])
def test_without_a_key_nothing_is_served(served: Served, route: str, header: str | None) -> None:
    """401, before anything is looked at."""
    headers = {} if header is None else {"authorization": header}
    method = "GET" if "models" in route else "POST"
    reply = httpx2.request(method, f"{served.url}{route}", headers=headers)
    check_error(reply, 401, "invalid_api_key", None)
    assert "Bearer" == reply.headers["www-authenticate"]


def test_the_control_routes_are_not_served_over_tcp(served: Served, http: httpx2.Client) -> None:
    """Whoever has a key cannot end workers."""
    reply = http.get(served.url.removesuffix("/v1") + "/api/v1/status")
    check_error(reply, 404, "not_found", None)


@ROUTES
@STREAM
def test_a_request_id_comes_back(http: httpx2.Client, route: str, stream: bool) -> None:
    """The client's own, with an error too; else one of the daemon's."""
    mine = {"x-request-id": "my-id.1"}
    for body in (usual(route, stream=stream), usual(route, model="nobody")):
        reply = http.post(route, json=body, headers=mine)
        assert "my-id.1" == reply.headers["x-request-id"]
    reply = http.post(route, json=usual(route, stream=stream))
    assert reply.headers["x-request-id"].startswith("req_")


@ROUTES
@pytest.mark.parametrize("with_usage", [False, True])
def test_a_stream_follows_its_grammar(http: httpx2.Client, route: str, with_usage: bool) -> None:
    """One id, one moment, one reason; the usage only where it was asked for, and once."""
    options = {"stream_options": {"include_usage": True}} if with_usage else {}
    body = usual(route, "a sim.tokens=40 sim.tps=2000", stream=True, **options)
    reply = http.post(route, json=body)
    assert "text/event-stream; charset=utf-8" == reply.headers["content-type"]
    assert "no-cache" == reply.headers["cache-control"]
    chunks = events(reply.text)
    kind = "chat.completion.chunk" if route == CHAT else "text_completion"
    heads = {(each["id"], each["created"], each["model"], each["object"]) for each in chunks}
    [(_, created, model, object_)] = heads
    assert ("sim", kind, int) == (model, object_, type(created))
    if with_usage:
        last = chunks.pop()
        assert ([], 40) == (last["choices"], last["usage"]["completion_tokens"])
        assert all(each["usage"] is None for each in chunks)
    else:
        assert not any("usage" in each for each in chunks)
    choices = [each["choices"][0] for each in chunks]
    assert all(1 == len(each["choices"]) for each in chunks)
    assert [None] * (len(choices) - 1) + ["length"] == [each["finish_reason"] for each in choices]
    if route == CHAT:
        assert {"role": "assistant", "content": ""} == choices[0]["delta"]
        assert not any("role" in each["delta"] for each in choices[1:])


@ROUTES
def test_whole_and_streamed_are_the_same(http: httpx2.Client, route: str) -> None:
    """Text, reason and usage; with characters of several bytes, none of which is broken."""
    content = "a b sim.utf8 sim.tokens=80 sim.tps=4000"
    whole = http.post(route, json=usual(route, content)).json()
    options = {"stream": True, "stream_options": {"include_usage": True}}
    chunks = events(http.post(route, json=usual(route, content, **options)).text)
    [choice] = whole["choices"]
    if route == CHAT:
        text = choice["message"]["content"]
        pieces = [each["delta"].get("content") or "" for c in chunks for each in c["choices"]]
    else:
        text = choice["text"]
        pieces = [each["text"] for c in chunks for each in c["choices"]]
    assert text == "".join(pieces)
    assert not text.isascii()
    assert not any("\ufffd" in piece for piece in pieces)
    assert choice["finish_reason"] == chunks[-2]["choices"][0]["finish_reason"]
    usage = whole["usage"]
    assert usage == chunks[-1]["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert {"cached_tokens": 0} == usage["prompt_tokens_details"]


@ROUTES
def test_a_long_prefill_is_bridged_by_comments(http: httpx2.Client, route: str) -> None:
    """Before the first event, as often as the listener says."""
    body = usual(route, "a sim.prefill_ms=500 sim.tokens=2", stream=True)
    text = http.post(route, json=body).text
    assert events(text)
    before = text.partition("data: ")[0]
    assert 2 <= before.count(": keep-alive\n\n") <= 5


@ROUTES
def test_a_failure_before_the_first_byte_is_a_status(http: httpx2.Client, route: str) -> None:
    """In the same words, whether a stream was asked for or not."""
    for stream in (False, True):
        reply = http.post(route, json=usual(route, "a sim.error=too_hot", stream=stream))
        check_error(reply, 502, "worker_failed", None)
        assert "too hot" in reply.json()["error"]["message"]
        assert "false" == reply.headers["x-should-retry"]


@ROUTES
def test_a_failure_behind_it_is_an_event(http: httpx2.Client, route: str) -> None:
    """The last one before the end, with no reason and no usage beside it."""
    content = "a sim.tokens=40 sim.tps=400 sim.error=too_hot sim.at=20"
    options = {"stream": True, "stream_options": {"include_usage": True}}
    reply = http.post(route, json=usual(route, content, **options))
    *chunks, last = events(reply.text)
    assert (200, "worker_failed") == (reply.status_code, last["error"]["code"])
    assert not any(each["choices"][0]["finish_reason"] for each in chunks)


@ROUTES
@STREAM
def test_an_overlong_prompt_has_its_own_code(http: httpx2.Client, route: str, stream: bool) -> None:
    """From the model's real limit."""
    reply = http.post(route, json=usual(route, "a " * 140_000, stream=stream))
    check_error(reply, 400, "context_length_exceeded", None)
    assert "131072" in reply.json()["error"]["message"]


@STREAM
def test_a_malformed_call_stays_text(http: httpx2.Client, stream: bool) -> None:
    """And so does the call of a tool that was not offered."""
    for said_ in ("<function=weather><parameter=city>Oslo", "<function=bomb></function>"):
        body = usual(CHAT, f"a sim.text={said_}", tools=[WEATHER], stream=stream)
        reply = http.post(CHAT, json=body)
        chunks = events(reply.text) if stream else [reply.json()]
        part = "delta" if stream else "message"
        choices = [each[part] for chunk in chunks for each in chunk["choices"]]
        assert said_ in "".join(each.get("content") or "" for each in choices)
        assert not any(each.get("tool_calls") for each in choices)


@pytest.mark.parametrize(
    "header", ["X-Session-ID", "X-ExecuTorch-Session-ID", "session_id", "x-session-affinity"]
)
def test_a_header_names_the_session_and_the_body_wins(http: httpx2.Client, header: str) -> None:
    """Both sessions exist afterwards, each until it is closed, once."""
    own, other = f"own-{header}".lower(), f"other-{header}".lower()
    http.post(TEXT, json=usual(TEXT), headers={header: other})
    http.post(TEXT, json=usual(TEXT, session_id=own), headers={header: "never"})
    for name, existed in ((own, True), (other, True), ("never", False)):
        reset = http.post(f"/sessions/{name}/reset")
        closed = http.delete(f"/sessions/{name}")
        assert (existed, existed) == (reset.json()["existed"], closed.json()["existed"])
