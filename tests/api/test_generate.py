from __future__ import annotations

import json
import os
from typing import Any

import httpx
import pytest
import trio

from supervisord_llm.core import ledger
from supervisord_llm.core.words import FailureReason, Outcome, RejectReason
from supervisord_llm.errors import Refused
from supervisord_llm.events import (
    CancelRequested,
    DaemonError,
    DaemonWarning,
    RequestFinished,
    RequestRejected,
)
from supervisord_llm.wire.messages import Model
from tests.api.conftest import Door, OpenDoor
from tests.api.raw import GENERATE, post, read_to_end, read_until

MESSAGES = {"pool": "smollm", "messages": [{"role": "user", "content": "Hi"}]}


async def post_generate(door: Door, body: dict[str, Any]) -> httpx.Response:
    """Ask for a generation and read all of it."""
    return await door.http.post("/api/v1/generate", json=body)


def lines(text: str) -> list[dict[str, Any]]:
    """Decode a stream of whole lines."""
    assert text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


async def test_a_generation_is_a_stream_of_lines(door: Door) -> None:
    """accepted, started, the tokens in order, and one finished line at the end."""
    replies: list[httpx.Response] = []
    async with trio.open_nursery() as nursery:

        async def client() -> None:
            replies.append(await post_generate(door, {"pool": "smollm", "prompt": "Hello"}))

        nursery.start_soon(client)
        request = await door.pool.next_request()
        door.pool.assign(request)
        request.output(["Hel", "lo\n", "\u2028", "é"], door.daemon.clock.now())
        door.pool.complete(request)
    [reply] = replies
    got = lines(reply.text.replace("\u2028", "\\u2028"))
    assert "application/x-ndjson" == reply.headers["content-type"]
    assert {"event": "accepted", "id": "req_1", "pool": "smollm", "queued": 0} == got[0]
    assert {"event": "started", "id": "req_1", "worker": "smollm.0", "attempt": 1} == got[1]
    texts = [line["text"] for line in got if line["event"] == "token"]
    assert ["Hel", "lo\n", "\u2028", "é"] == texts
    finished = got[-1]
    assert ("finished", "completed", "stop") == tuple(
        finished[key] for key in ("event", "outcome", "finish_reason")
    )
    assert {"prompt_tokens": 3, "reused_tokens": 0, "generated_tokens": 2} == finished["usage"]
    assert 1 == sum(line["event"] == "finished" for line in got)


async def test_the_answer_begins_when_the_queue_has_the_request(door: Door) -> None:
    """200 and the accepted line do not wait for a slot."""
    door.pool.queued = 3
    async with await door.connect() as stream:
        await stream.send_all(post("/api/v1/generate", GENERATE))
        head = await read_until(stream, b'"queued":3}\n')
        request = await door.pool.next_request()
        assert None is request.worker
    assert head.startswith(b"HTTP/1.1 200 ")


async def test_a_batch_is_one_send(door: Door) -> None:
    """Whatever one batch holds travels in one chunk of the reply."""
    stream = await door.connect()
    async with stream:
        await stream.send_all(post("/api/v1/generate", GENERATE))
        request = await door.pool.next_request()
        await read_until(stream, b'"queued":0}\n\r\n')
        door.pool.assign(request)
        request.output(["a", "b", "c"], door.daemon.clock.now())
        door.pool.complete(request)
        chunk = await read_until(stream, b"0\r\n\r\n")
    size, _, rest = chunk.partition(b"\r\n")
    body = rest[: int(size, 16)]
    events = [json.loads(line)["event"] for line in body.splitlines()]
    assert ["started", "token", "token", "token", "finished"] == events
    assert b"\r\n0\r\n\r\n" == rest[int(size, 16) :]


async def test_what_was_asked_reaches_the_pool(door: Door) -> None:
    """Each field is passed on; what was left out stays unset for the pool's defaults."""
    body = {
        "pool": "smollm",
        "prompt": "p",
        "max_new_tokens": 5,
        "temperature": 0,
        "top_p": 0.5,
        "top_k": 4,
        "seed": 7,
        "stop": ["\n"],
        "session_id": "trip",
        "priority": -10,
        "deadline_ms": 1500,
        "queue_timeout_ms": 250,
    }
    async with door.http.stream("POST", "/api/v1/generate", json=body):
        await door.pool.next_request()
    async with door.http.stream("POST", "/api/v1/generate", json={"pool": "smollm", "prompt": "q"}):
        await door.pool.next_request()
    full, bare = door.pool.specs
    assert ("p", 5, 0.0, 0.5, 4, 7, ("\n",)) == (
        full.prompt,
        full.max_new_tokens,
        full.temperature,
        full.top_p,
        full.top_k,
        full.seed,
        full.stop,
    )
    assert ("trip", -10, 1.5, 0.25, f"uid:{os.getuid()}") == (
        full.session_id,
        full.priority,
        full.deadline,
        full.queue_timeout,
        full.client,
    )
    assert (None, 0, None, None) == (
        bare.session_id,
        bare.priority,
        bare.deadline,
        bare.queue_timeout,
    )
    assert (None, None, None, None, None, ()) == (
        bare.max_new_tokens,
        bare.temperature,
        bare.top_p,
        bare.top_k,
        bare.seed,
        bare.stop,
    )


async def test_messages_are_rendered_by_the_models_template(door: Door) -> None:
    """The template that the worker announced makes the prompt."""
    template = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    door.pool.model = Model(id="m", chat_template=template)
    async with door.http.stream("POST", "/api/v1/generate", json=MESSAGES):
        request = await door.pool.next_request()
    assert "[user]Hi" == request.spec.prompt


async def test_messages_to_a_model_without_a_template_are_refused(door: Door) -> None:
    """They can never be served, so they are not queued."""
    door.pool.model = Model(id="m")
    reply = await post_generate(door, MESSAGES)
    error = reply.json()["error"]
    expected = (400, "invalid_request", "messages")
    assert expected == (reply.status_code, error["code"], error["param"])


async def test_messages_wait_for_a_model_that_nobody_knows_yet(door: Door) -> None:
    """The request is accepted like any other, and its prompt is made when a worker is there."""
    async with door.http.stream("POST", "/api/v1/generate", json=MESSAGES):
        request = await door.pool.next_request()
        assert "" == request.spec.prompt
        assert request.spec.render is not None
        model = Model(id="m", chat_template="{{ messages[0].content }}!")
        assert "Hi!" == await request.spec.render(model)


@pytest.mark.parametrize(
    ("body", "status", "code", "param"),
    [
        ({"pool": "other", "prompt": "x"}, 404, "unknown_model", "pool"),
        ({"pool": "smollm"}, 400, "invalid_request", "prompt"),
        ({**MESSAGES, "prompt": "x"}, 400, "invalid_request", "messages"),
        (
            {"pool": "smollm", "prompt": "x", "urgency": "s"},
            400,
            "invalid_request",
            "urgency",
        ),
    ],
)
async def test_a_bad_request_is_refused_before_the_queue(
    door: Door, body: dict[str, Any], status: int, code: str, param: str
) -> None:
    """The reply and the event name the same code and field; the pool hears nothing."""
    reply = await post_generate(door, body)
    error = reply.json()["error"]
    assert (status, code, param) == (reply.status_code, error["code"], error["param"])
    event = await door.daemon.wait_event(RequestRejected)
    assert (code, param) == (event.code, event.field)
    assert (1, []) == (len(door.daemon.events), door.pool.specs)


@pytest.mark.parametrize(
    ("reason", "retry_after", "status", "header"),
    [
        (RejectReason.QUEUE_FULL, 2.1, 429, "3"),
        (RejectReason.QUEUE_FULL, None, 429, "1"),
        (RejectReason.POOL_UNAVAILABLE, 0.2, 503, "1"),
        (RejectReason.SHUTTING_DOWN, None, 503, "1"),
    ],
)
async def test_a_refusal_of_the_pool_has_its_status(
    door: Door, reason: RejectReason, retry_after: float | None, status: int, header: str
) -> None:
    """Retry-After is in whole seconds, rounded up, and at least one."""
    door.pool.failure = Refused(reason, "cannot take it; wait", retry_after=retry_after)
    reply = await post_generate(door, {"pool": "smollm", "prompt": "x"})
    assert (status, reason, header) == (
        reply.status_code,
        reply.json()["error"]["code"],
        reply.headers["retry-after"],
    )
    event = await door.daemon.wait_event(RequestRejected)
    assert (reason, "smollm") == (event.code, event.pool)


async def test_a_failure_is_the_last_line(door: Door) -> None:
    """Once the stream has begun, an error is its finished line; the status stays 200."""
    async with door.http.stream(
        "POST", "/api/v1/generate", json={"pool": "smollm", "prompt": "x"}
    ) as reply:
        request = await door.pool.next_request()
        door.pool.assign(request)
        request.post(
            ledger.WorkerLost(
                now=door.daemon.clock.now(), error=FailureReason.WORKER_EXITED, detail="exit:3"
            )
        )
        got = lines((await reply.aread()).decode())
    assert {"code": "worker_exited", "message": "exit:3", "retryable": True} == got[-1]["error"]


async def test_a_bug_before_the_stream_is_a_500_with_an_id(door: Door) -> None:
    """The traceback goes to the event log; the client gets the id to quote."""
    door.pool.failure = RuntimeError("secret detail")
    reply = await post_generate(door, {"pool": "smollm", "prompt": "x"})
    event = await door.daemon.wait_event(DaemonError)
    assert (500, "internal") == (reply.status_code, reply.json()["error"]["code"])
    assert event.id in reply.json()["error"]["message"]
    assert "secret detail" not in reply.text
    assert "RuntimeError: secret detail" in event.traceback


async def test_a_bug_in_the_middle_of_a_stream_breaks_it_off(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client sees that the stream is not whole, and the request is cancelled."""
    async with await door.connect() as stream:
        await stream.send_all(post("/api/v1/generate", GENERATE))
        request = await door.pool.next_request()
        await read_until(stream, b"accepted")
        monkeypatch.setattr("supervisord_llm.api.generate._encode", lambda *_: 1 / 0)
        door.pool.assign(request)
        rest = await read_to_end(stream)
    event = await door.daemon.wait_event(DaemonError)
    await door.daemon.wait_event(CancelRequested)
    assert "ZeroDivisionError" in event.error
    assert b"0\r\n\r\n" not in rest


async def test_a_template_that_fails_is_told_to_both_sides(door: Door) -> None:
    """The client learns what to send instead, the operator what to mend."""
    door.pool.model = Model(id="m", chat_template="{% for %}")
    reply = await post_generate(door, MESSAGES)
    error = reply.json()["error"]
    assert (400, "messages") == (reply.status_code, error["param"])
    assert "send 'prompt' instead" in error["message"]
    warning = await door.daemon.wait_event(DaemonWarning)
    assert ("chat_template", "smollm") == (warning.topic, warning.pool)


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("moment", ["queued", "streaming"])
async def test_a_client_that_leaves_cancels_its_request(
    door: Door, half: bool, moment: str
) -> None:
    """Closing and half-closing are the same, in the queue and in the middle of the tokens."""
    stream = await door.connect()
    async with stream:
        await stream.send_all(post("/api/v1/generate", GENERATE))
        request = await door.pool.next_request()
        await read_until(stream, b"accepted")
        if moment == "streaming":
            door.pool.assign(request)
            request.output(["a"], door.daemon.clock.now())
            await read_until(stream, b'"a"')
        if half:
            await stream.send_eof()
        else:
            await stream.aclose()
        asked = await door.daemon.wait_event(CancelRequested)
        finished = await door.daemon.wait_event(RequestFinished)
    assert ("client", Outcome.CANCELLED) == (asked.by, finished.outcome)


async def test_a_request_and_a_half_close_in_one_write_are_cancelled(door: Door) -> None:
    """A client that has left by the time its request is read is noticed all the same."""
    async with await door.connect() as stream:
        await stream.send_all(post("/api/v1/generate", GENERATE))
        await stream.send_eof()
        await read_to_end(stream)
    for request in door.daemon.requests():
        with trio.fail_after(5):
            record = await request.wait_finished()
        assert Outcome.CANCELLED == record.outcome


async def test_a_connection_serves_one_generation_after_the_other(door: Door) -> None:
    """The end of one reply leaves the connection fit for the next request."""
    async with await door.connect() as stream:
        for _ in range(3):
            await stream.send_all(post("/api/v1/generate", GENERATE))
            request = await door.pool.next_request()
            door.pool.assign(request)
            door.pool.complete(request)
            await read_until(stream, b"\r\n0\r\n\r\n")
    outcomes = {request.record and request.record.outcome for request in _all(door)}
    assert {Outcome.COMPLETED} == outcomes


async def test_an_idle_connection_after_a_stream_still_times_out(open_door: OpenDoor) -> None:
    """The idle clock starts again when a streamed reply has ended."""
    async with open_door(idle_timeout=0.2) as door, await door.connect() as stream:
        await stream.send_all(post("/api/v1/generate", GENERATE))
        request = await door.pool.next_request()
        door.pool.assign(request)
        door.pool.complete(request)
        assert (await read_to_end(stream)).endswith(b"0\r\n\r\n")


def _all(door: Door) -> list[Any]:
    return door.daemon.requests()
