"""How a stream is written: when its head is sent, in how many pieces, and what fails how."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio

from supervisord_llm.core import ledger
from supervisord_llm.core.words import CancelledBy
from supervisord_llm.runtime.request import Request
from tests.api.conftest import Door, OpenDoor
from tests.api.openai import choices, events
from tests.api.raw import post, read_to_end, read_until

STREAM = b'{"model": "smollm", "prompt": "Hello", "stream": true}'
END = b"data: [DONE]\n\n\r\n0\r\n\r\n"
MARK = b"\n\n\r\n"
"""The end of a chunk of the reply that ends with an event."""


async def begin(door: Door, stream: trio.SocketStream, body: bytes = STREAM) -> Request:
    """Ask for a stream, and give its request to a worker."""
    await stream.send_all(post("/v1/completions", body))
    request = await door.pool.next_request()
    door.pool.assign(request)
    return request


def say(door: Door, request: Request, *texts: str) -> None:
    """Let the worker write tokens, in one read."""
    request.output(list(texts), door.daemon.clock.now())


def fail(door: Door, request: Request) -> None:
    """Let the worker say that it cannot."""
    request.post(ledger.EngineError(door.daemon.clock.now(), "too hot"))


def chunks_of(raw: bytes) -> list[bytes]:
    """The chunks of the reply's body, each of which was one write."""
    found = []
    while raw:
        size, _, rest = raw.partition(b"\r\n")
        length = int(size, 16)
        found.append(rest[:length])
        assert b"\r\n" == rest[length : length + 2]
        raw = rest[length + 2 :]
    assert b"" == found.pop()
    return found


async def test_a_batch_of_tokens_is_one_write_of_one_event(door: Door) -> None:
    """Whatever one read brought; the end is one write too."""
    async with await door.connect() as stream:
        request = await begin(door, stream)
        say(door, request, "a", "b", "c")
        got = await read_until(stream, MARK)
        say(door, request, "d", "é")
        got += await read_until(stream, MARK)
        say(door, request, "f")
        door.pool.complete(request)
        got += await read_until(stream, END)
    head, _, body = got.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    writes = chunks_of(body)
    texts = [[each["text"] for each in choices(_data(write))] for write in writes]
    assert [["abc"], ["dé"], ["f"], [""]] == texts


def _data(write: bytes) -> list[Any]:
    lines = write.removesuffix(b"data: [DONE]\n\n").split(b"\n\n")[:-1]
    return [json.loads(line.removeprefix(b"data: ")) for line in lines]


async def test_a_failure_before_the_first_output_has_a_status(door: Door) -> None:
    """Nothing was sent before, although a worker had the request."""
    async with await door.connect() as stream:
        request = await begin(door, stream)
        fail(door, request)
        reply = await read_until(stream, b"}}\n")
    assert reply.startswith(b"HTTP/1.1 502 ")
    assert b"x-should-retry: false\r\n" in reply
    assert b"content-type: application/json\r\n" in reply


async def test_output_that_came_with_the_failure_is_not_half_an_answer(door: Door) -> None:
    """Where nothing was sent yet, the status is still to be had."""
    async with await door.connect() as stream:
        request = await begin(door, stream)
        say(door, request, "a")
        fail(door, request)
        reply = await read_until(stream, b"}}\n")
    assert reply.startswith(b"HTTP/1.1 502 ")


async def test_a_failure_behind_output_is_the_last_event(door: Door) -> None:
    """All that came is shown; then the error, and the end of the stream."""
    async with await door.connect() as stream:
        request = await begin(door, stream)
        say(door, request, "a")
        got = await read_until(stream, MARK)
        say(door, request, "b")
        fail(door, request)
        got += await read_until(stream, END)
    body = b"".join(chunks_of(got.partition(b"\r\n\r\n")[2])).decode()
    *shown, last = events(body)
    assert "ab" == "".join(each["text"] for each in choices(shown))
    assert ("worker_failed", "server_error") == (last["error"]["code"], last["error"]["type"])


async def test_a_client_that_waits_is_told_that_it_goes_on(open_door: OpenDoor) -> None:
    """The head comes with the first comment; from there on a failure is an event."""
    async with open_door(sse_keep_alive=0.05) as door, await door.connect() as stream:
        request = await begin(door, stream)
        got = await read_until(stream, b": keep-alive" + MARK)
        assert got.startswith(b"HTTP/1.1 200 ")
        await read_until(stream, b": keep-alive" + MARK)
        say(door, request, "a")
        await read_until(stream, b'"text":"a"')
        await read_until(stream, b": keep-alive" + MARK)
        fail(door, request)
        assert b'"code":"worker_failed"' in await read_until(stream, END)


async def test_no_comment_comes_between_tokens_that_come_in_time(open_door: OpenDoor) -> None:
    """Those that pass the box by are output like others."""
    async with open_door(sse_keep_alive=0.5) as door, await door.connect() as stream:
        request = await begin(door, stream)
        say(door, request, "t")
        got = await read_until(stream, MARK)
        for _ in range(20):
            with trio.move_on_after(0.05):
                await request.wait_finished()
            say(door, request, "t")
            got += await read_until(stream, MARK)
        door.pool.complete(request)
        got += await read_until(stream, END)
    assert b"keep-alive" not in got.partition(b"\r\n\r\n")[2]


async def test_a_client_that_only_stops_sending_is_sent_the_end(door: Door) -> None:
    """It has cancelled, and reads on."""
    async with await door.connect() as stream:
        request = await begin(door, stream)
        say(door, request, "a")
        await read_until(stream, MARK)
        await stream.send_eof()
        rest = await read_to_end(stream)
        record = await request.wait_finished()
    assert CancelledBy.CLIENT is record.cancelled_by
    assert b'"code":"cancelled"' in rest
    assert rest.endswith(END)


async def test_what_was_asked_reaches_the_worker(door: Door) -> None:
    """Each field that is supported; what is left out stays unset for the pool's defaults."""
    body = {
        "model": "smollm",
        "prompt": "p",
        "max_tokens": 5,
        "temperature": 0.5,
        "top_p": 0.25,
        "top_k": -1,
        "seed": 7,
        "stop": "\n",
        "session_id": "trip",
        "user": "u",
        "store": True,
        "stream": True,
    }
    async with await door.connect() as stream:
        await begin(door, stream, json.dumps(body).encode())
    async with await door.connect() as stream:
        bare_body = b'{"model": "smollm", "prompt": "q", "stop": null}'
        await stream.send_all(post("/v1/completions", bare_body, "x-session-id: other"))
        await door.pool.next_request()
    full, bare = door.pool.specs
    assert ("p", 5, 0.5, 0.25, 0, 7, ("\n",), "trip") == (
        full.prompt,
        full.max_new_tokens,
        full.temperature,
        full.top_p,
        full.top_k,
        full.seed,
        full.stop,
        full.session_id,
    )
    assert ("q", None, None, (), "other") == (
        bare.prompt,
        bare.max_new_tokens,
        bare.temperature,
        bare.stop,
        bare.session_id,
    )
    assert full.client == bare.client


@pytest.mark.parametrize(
    "header", ["X-Session-ID", "X-ExecuTorch-Session-ID", "session_id", "x-session-affinity"]
)
async def test_each_header_may_name_the_session(door: Door, header: str) -> None:
    """As clients of such servers send them."""
    async with await door.connect() as stream:
        await stream.send_all(post("/v1/completions", STREAM, f"{header}: trip-1"))
        await door.pool.next_request()
    assert ["trip-1"] == [spec.session_id for spec in door.pool.specs]


async def test_a_header_is_passed_over_where_no_sessions_are_kept(door: Door) -> None:
    """Its client sends it to whatever server it has."""
    door.pool.keeps_sessions = False
    async with await door.connect() as stream:
        await stream.send_all(post("/v1/completions", STREAM, "x-session-affinity: trip"))
        await door.pool.next_request()
    assert [None] == [spec.session_id for spec in door.pool.specs]


async def test_a_clients_own_request_id_comes_back(door: Door) -> None:
    """With the head of a stream; without one it is the daemon's."""
    for header, expected in [(["X-Request-ID: abc"], b"abc"), ([], b"req_2")]:
        async with await door.connect() as stream:
            await stream.send_all(post("/v1/completions", STREAM, *header))
            request = await door.pool.next_request()
            door.pool.assign(request)
            say(door, request, "a")
            head = await read_until(stream, MARK)
        assert b"\r\nx-request-id: %b\r\n" % expected in head


@pytest.mark.parametrize("id_", ["a b", "x" * 129, "é"])
async def test_what_is_no_request_id_is_refused(door: Door, id_: str) -> None:
    """It would be shown in logs and headers."""
    headers = {b"x-request-id": id_.encode()}
    reply = await door.http.post("/v1/completions", content=STREAM, headers=headers)
    assert (400, "X-Request-ID") == (reply.status_code, reply.json()["error"]["param"])
