"""Whatever one client does wrong, it is told what to do, it is told once, and no other pays for it.

Each deed happens while a neighbour's request runs on a worker of the same pool, and the neighbour
gets every token.
"""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from supervisord_llm.core.words import CancelledBy, Outcome
from supervisord_llm.events import (
    DaemonError,
    DaemonWarning,
    Event,
    HttpRefused,
    RequestAccepted,
    RequestFinished,
    RequestRejected,
    WorkerQuarantined,
)
from supervisord_llm.schema import GenerateRequest, Token
from tests.api.house import House, ask, house, next_of, read
from tests.api.raw import get, post, read_to_end, read_until
from tests.harness import SECONDS

GENERATE = "/api/v1/generate"
TROUBLES = (DaemonError, DaemonWarning, HttpRefused, RequestRejected, WorkerQuarantined)
LIMITS = 'max_body = "64KiB"\nbody_timeout = "300ms"\nsend_timeout = "500ms"\n'


@asynccontextmanager
async def neighbour(folder: Path) -> AsyncIterator[House]:
    """Serve on two workers, with a request on one of them, which must run through the block."""
    async with (
        house(folder, workers=2, listen=LIMITS) as at,
        at.client.generate(ask("y sim.tokens=100 sim.tps=100")) as stream,
    ):
        await next_of(stream, Token)
        yield at
        text, finished = await read(stream)
    assert (99, Outcome.COMPLETED) == (len(text.split()), finished.outcome)


def troubles(at: House) -> list[Event]:
    """What happened that is not the ordinary course of things."""
    return [event for event in at.events if isinstance(event, TROUBLES)]


def body(text: str) -> bytes:
    """A generation with more fields."""
    return b'{"pool": "sim", "prompt": "x", ' + text.encode() + b"}"


@pytest.mark.parametrize(
    ("sent", "status", "code", "field", "message"),
    [
        pytest.param(
            b"", 400, "invalid_request", None, "it is empty; send a JSON object", id="empty"
        ),
        pytest.param(
            b'{"pool": "sim", "pro',
            400,
            "invalid_request",
            None,
            "truncated; send one JSON object in UTF-8",
            id="cut off",
        ),
        pytest.param(
            b'{"pool": "sim", "prompt": "\xff"}',
            400,
            "invalid_request",
            None,
            "send one JSON object in UTF-8",
            id="not UTF-8",
        ),
        pytest.param(
            b"[" * 60_000, 400, "invalid_request", None, "expected `object`", id="deep array"
        ),
        pytest.param(
            body('"x": ' + "[" * 60_000),
            400,
            "invalid_request",
            "x",
            "there is no such field; leave it out",
            id="deep unknown field",
        ),
        pytest.param(
            b'{"pool": "sim", "messages": ' + b'[{"role":' * 6000,
            400,
            "invalid_request",
            "messages[0].role",
            "expected `str`, got `array`",
            id="deep known field",
        ),
        pytest.param(b'{"prompt": "x"}', 400, "invalid_request", "pool", "add it", id="no pool"),
        pytest.param(
            b'{"pool": "nope", "prompt": "x"}',
            404,
            "unknown_model",
            "pool",
            "cannot find pool 'nope'; there are: sim",
            id="unknown pool",
        ),
        pytest.param(
            body('"max_new_tokens": ' + "9" * 5000),
            400,
            "invalid_request",
            "max_new_tokens",
            "its number is too large; send a smaller one",
            id="enormous",
        ),
        pytest.param(
            body('"temperature": 1e999'),
            400,
            "invalid_request",
            "temperature",
            "its number is too large; send a smaller one",
            id="infinite",
        ),
        pytest.param(
            body('"seed": -1'), 400, "invalid_request", "seed", "expected `int` >= 0", id="negative"
        ),
        pytest.param(
            body('"messages": [{"role": "user", "content": "x"}]'),
            400,
            "invalid_request",
            "messages",
            "together with 'prompt'; send one of them",
            id="both",
        ),
        pytest.param(
            body('"user": "' + "u" * 70_000 + '"'),
            413,
            "body_too_large",
            None,
            "larger than 65536 bytes; shorten it, or raise listen.max_body",
            id="too large",
        ),
    ],
)
async def test_a_bad_body_is_answered(
    tmp_path: Path, sent: bytes, status: int, code: str, field: str | None, message: str
) -> None:
    """The envelope names the field and the remedy; one ``request.rejected``, nothing accepted."""
    async with neighbour(tmp_path) as at, await trio.open_unix_socket(at.socket) as stream:
        await stream.send_all(post(GENERATE, sent, "connection: close"))
        head, _, answer = (await read_to_end(stream)).partition(b"\r\n\r\n")
        [event] = troubles(at)
        assert 1 == len(at.all(RequestAccepted))
    error = json.loads(answer)["error"]
    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert (code, field) == (error["code"], error["param"])
    assert message in error["message"]
    assert isinstance(event, RequestRejected)
    assert (code, field) == (event.code, event.field)


async def test_a_body_that_never_arrives_is_given_up(tmp_path: Path) -> None:
    """408 after body_timeout, with what to do."""
    async with neighbour(tmp_path) as at, await trio.open_unix_socket(at.socket) as stream:
        await stream.send_all(post(GENERATE, b"x" * 100)[:-50])
        answer = await read_to_end(stream)
        [event] = troubles(at)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"send it faster, or raise listen.body_timeout" in answer
    assert isinstance(event, RequestRejected)
    assert "request_timeout" == event.code


@pytest.mark.parametrize(
    ("sent", "answered", "reason"),
    [
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", 400, "illegal", id="TLS"),
        pytest.param(b"hello, model\r\n\r\n", 400, "illegal request line", id="plain text"),
        pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, "another version", id="HTTP/2"),
        pytest.param(
            get("/livez", "connection: upgrade", "upgrade: websocket"),
            400,
            "an upgrade",
            id="upgrade",
        ),
        pytest.param(
            b"GET / HTTP/1.1\r\nx: " + b"x" * 70_000, 431, "Receive buffer too long", id="long"
        ),
        pytest.param(
            post(GENERATE, b'{"pool": "sim", "prompt": "x sim.slow=prefill"}') + get("/livez"),
            0,
            "bytes after a request that was still being answered",
            id="pipelined",
        ),
        pytest.param(
            get("/api/v1/generate", "connection: close"),
            405,
            "method_not_allowed: GET /api/v1/generate",
            id="wrong method",
        ),
    ],
)
async def test_what_is_not_our_http_is_turned_away(
    tmp_path: Path, sent: bytes, answered: int, reason: str
) -> None:
    """One ``http.refused`` with the reason and the peer; the connection is closed."""
    async with neighbour(tmp_path) as at, await trio.open_unix_socket(at.socket) as stream:
        await stream.send_all(sent)
        answer = await read_to_end(stream)
        [event] = troubles(at)
    assert isinstance(event, HttpRefused)
    assert (answered, True) == (event.status, event.reason.startswith(reason))
    assert event.peer.startswith("uid=")
    if answered:
        assert answer.startswith(b"HTTP/1.1 %d " % answered)


Deed = Callable[[House, trio.SocketStream], Awaitable[object]]


async def nothing(_at: House, _stream: trio.SocketStream) -> None:
    """Leave before saying anything."""


async def half_a_head(_at: House, stream: trio.SocketStream) -> None:
    """Leave in the middle of a request line."""
    await stream.send_all(b"POST /api/v1/gen")


async def half_a_body(_at: House, stream: trio.SocketStream) -> None:
    """Leave in the middle of a body."""
    await stream.send_all(post(GENERATE, b"x" * 100)[:-50])


async def half_a_cancel(_at: House, stream: trio.SocketStream) -> None:
    """Leave while waiting for another's cancellation, of a request that does not exist."""
    await stream.send_all(post("/api/v1/requests/req_0/cancel?wait=true", b""))


async def follow(_at: House, stream: trio.SocketStream) -> None:
    """Leave while following the events, and the log before it."""
    await stream.send_all(get("/api/v1/events?follow=true"))
    await read_until(stream, b"stream.opened")


async def at_once(_at: House, stream: trio.SocketStream) -> None:
    """Leave without looking at the answer."""
    await stream.send_all(post(GENERATE, b'{"pool": "sim", "prompt": "x sim.slow=prefill"}'))


async def in_prefill(_at: House, stream: trio.SocketStream) -> None:
    """Leave while the worker reads the prompt."""
    await at_once(_at, stream)
    await read_until(stream, b"started")


async def in_decode(_at: House, stream: trio.SocketStream) -> None:
    """Leave in the middle of the answer."""
    prompt = b'{"pool": "sim", "prompt": "x sim.tokens=100000 sim.tps=100"}'
    await stream.send_all(post(GENERATE, prompt))
    await read_until(stream, b'"token"')


async def half_closed(at: House, stream: trio.SocketStream) -> None:
    """Say that nothing more will come, in the middle of the answer."""
    await in_decode(at, stream)
    await stream.send_eof()
    await read_to_end(stream)


async def after(_at: House, stream: trio.SocketStream) -> None:
    """Leave when everything was said."""
    await stream.send_all(post(GENERATE, b'{"pool": "sim", "prompt": "x sim.tokens=1"}'))
    await read_until(stream, b"0\r\n\r\n")


@pytest.mark.parametrize(
    "deed",
    [nothing, half_a_cancel, follow, at_once, in_prefill, in_decode, half_closed, after],
)
async def test_a_client_that_vanishes_costs_nobody_anything(tmp_path: Path, deed: Deed) -> None:
    """Its request ends once and as the client's; nothing of it stays, and no worker suffers."""
    async with neighbour(tmp_path) as at:
        async with await trio.open_unix_socket(at.socket) as stream:
            await deed(at, stream)
        await wait_alone(at)
        # The free worker takes the next request.
        async with at.client.generate(ask("z sim.tokens=2")) as good:
            _, finished = await read(good)
        assert Outcome.COMPLETED == finished.outcome
        assert [] == troubles(at)
    accepted = [event.request for event in at.all(RequestAccepted)]
    ended = {event.request: event for event in at.all(RequestFinished)}
    assert sorted(accepted) == sorted(ended)
    expected = Outcome.COMPLETED if deed is after else Outcome.CANCELLED
    for request in accepted[1:-1]:
        assert expected == ended[request].outcome
        assert ended[request].cancelled_by in {None, CancelledBy.CLIENT}


@pytest.mark.parametrize("deed", [half_a_head, half_a_body])
async def test_a_client_that_breaks_off_is_told_of_once(tmp_path: Path, deed: Deed) -> None:
    """Half a request is an ``http.refused``, and no request."""
    async with neighbour(tmp_path) as at:
        async with await trio.open_unix_socket(at.socket) as stream:
            await deed(at, stream)
        event = await at.wait(HttpRefused)
        await wait_alone(at)
        assert [event] == troubles(at)
        assert 1 == len(at.all(RequestAccepted))
    assert 400 == event.status


async def wait_alone(at: House) -> None:
    """Wait until the neighbour's is the only request."""
    pool = at.supervisor.pools["sim"]
    with trio.fail_after(SECONDS):
        while pool.in_flight + pool.queued > 1:
            await at.ring.wait_appended()


async def test_a_client_that_stops_reading_is_shed(tmp_path: Path) -> None:
    """Its own request fails, its connection is cut within send_timeout, and that is told once."""
    async with neighbour(tmp_path) as at:
        with socket.socket(socket.AF_UNIX) as lazy:
            lazy.connect(str(at.socket))
            prompt = b'{"pool": "sim", "prompt": "x sim.tokens=1000000", "max_new_tokens": 1000000}'
            lazy.sendall(post(GENERATE, prompt))
            event = await at.wait(HttpRefused)
        assert [event] == troubles(at)
    assert (0, "a client that did not read for listen.send_timeout") == (event.status, event.reason)
    failed, completed = at.all(RequestFinished)
    assert [Outcome.FAILED, Outcome.COMPLETED] == [failed.outcome, completed.outcome]


async def test_numbers_at_their_limits_are_served(tmp_path: Path) -> None:
    """What the API takes, the worker takes: nobody trips over the largest number."""
    async with neighbour(tmp_path) as at:
        request = GenerateRequest(
            pool="sim",
            prompt="x sim.text=yes",
            max_new_tokens=2**31 - 1,
            temperature=100.0,
            top_p=5e-324,
            top_k=2**31 - 1,
            seed=2**63 - 1,
            stop=["\U0010ffff" * 1024] * 15,
        )
        async with at.client.generate(request) as stream:
            text, finished = await read(stream)
        assert ("yes", Outcome.COMPLETED) == (text, finished.outcome)
        assert [] == troubles(at)
