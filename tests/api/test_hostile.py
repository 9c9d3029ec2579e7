"""Clients that mean ill, or are broken, over TCP; each time somebody else's stream goes on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import pytest
import trio

from supervisord_llm.api import connection
from supervisord_llm.events import HttpRefused
from tests.api.conftest import Door, OpenDoor
from tests.api.raw import GENERATE, get, post, read_to_end, read_until

ANY = "tcp:127.0.0.1:0"
HEAD = b"POST /v1/sessions/s/reset HTTP/1.1\r\nhost: localhost\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"
GONE = (trio.BrokenResourceError, trio.ClosedResourceError)


@asynccontextmanager
async def neighbour(door: Door) -> AsyncIterator[None]:
    """A stream that is under way before and after whatever the block does."""
    async with await door.connect() as stream:
        await stream.send_all(post("/api/v1/generate", GENERATE))
        request = await door.pool.next_request()
        door.pool.assign(request)
        request.output(["before"], door.daemon.clock.now())
        await read_until(stream, b'"text":"before"')
        yield
        request.output(["after"], door.daemon.clock.now())
        await read_until(stream, b'"text":"after"')
        door.pool.complete(request)
        await read_until(stream, b'"outcome":"completed"')


async def drip(stream: trio.SocketStream) -> None:
    """Send a byte now and then until the other side has enough."""
    with suppress(*GONE):
        while True:
            await stream.send_all(b"x")
            await trio.sleep(0.02)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET /livez\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
        (b"GET /livez HTTP/1.1\r\n\r\n", 400),
        (b"GET /livez HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n", 400),
        (b"GET /livez HTTP/1.1\r\nhost: a\r\nx: \0\r\n\r\n", 400),
        (b"GET /livez HTTP/1.1\r\nhost : a\r\n\r\n", 400),
        (b"GET /livez HTTP/1.1\r\nhost: a\r\nx: " + b"x" * 40_000, 431),
        (b"GET /" + b"x" * 40_000, 431),
        (HEAD + b"content-length: -1\r\n\r\n", 400),
        (HEAD + b"content-length: 1\r\ncontent-length: 2\r\n\r\n", 400),
        (HEAD + b"content-length: " + b"9" * 4000 + b"\r\n\r\n", 400),
        (HEAD + b"content-length: 99999999999999\r\n\r\n", 413),
        (HEAD + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (HEAD + b"transfer-encoding: gzip, chunked\r\n\r\n", 501),
        (CHUNKED + b"zz\r\n", 400),
        (CHUNKED + b"-1\r\n", 400),
        (CHUNKED + b"f" * 30 + b"\r\n", 400),
        (CHUNKED + b"1;" + b"x" * 40_000, 431),
        (CHUNKED + b"1\r\nxx\r\n", 400),
    ],
)
async def test_what_is_malformed_is_refused_at_once(
    open_door: OpenDoor, data: bytes, status: int
) -> None:
    """With a status, an event, and the connection's end."""
    async with (
        open_door(address=ANY) as door,
        neighbour(door),
        await door.connect() as stream,
    ):
        await stream.send_all(data)
        assert str(status).encode() == (await read_to_end(stream)).split()[1]
        refused = await door.daemon.wait_event(HttpRefused)
        assert (status, str(stream.socket.getsockname()[1])) == (
            refused.status,
            refused.peer.rpartition(":")[2],
        )


async def test_requests_that_do_not_wait_for_their_answers_end_the_connection(
    open_door: OpenDoor,
) -> None:
    """Behind them a client's leaving could not be seen."""
    async with (
        open_door(address=ANY) as door,
        neighbour(door),
        await door.connect() as stream,
    ):
        await stream.send_all(post("/api/v1/generate", GENERATE) + 100 * get("/livez"))
        request = await door.pool.next_request()
        assert b"livez" not in await read_to_end(stream)
        with trio.fail_after(5):
            await request.wait_finished()


async def test_heads_that_never_end_keep_nobody_out(open_door: OpenDoor) -> None:
    """More of them than there is room: whoever comes is served all the same, at once."""
    async with (
        open_door(address=ANY, max_connections=8) as door,
        neighbour(door),
        AsyncExitStack() as stack,
        trio.open_nursery() as nursery,
    ):
        for _ in range(24):
            slow = await stack.enter_async_context(await door.connect())
            await slow.send_all(b"GET /livez HTTP/1.1\r\nx: ")
            nursery.start_soon(drip, slow)
        for _ in range(24):
            async with await door.connect() as stream:
                await stream.send_all(get("/livez", "connection: close"))
                assert (await read_to_end(stream)).endswith(b"live\n")
        nursery.cancel_scope.cancel()


async def test_a_thousand_idle_connections_keep_nobody_out(open_door: OpenDoor) -> None:
    """As many as there is room for, many times over; the oldest of them are closed."""
    async with (
        open_door(address=ANY, max_connections=50) as door,
        neighbour(door),
        AsyncExitStack() as stack,
    ):
        idle = [await stack.enter_async_context(await door.connect()) for _ in range(400)]
        async with await door.connect() as stream:
            await stream.send_all(get("/livez"))
            await read_until(stream, b"live\n")
            for displaced in idle[:350]:
                assert b"" == await read_to_end(displaced)
            await stream.send_all(get("/livez"))
            await read_until(stream, b"live\n")


async def test_bodies_that_never_end_are_given_up(open_door: OpenDoor) -> None:
    """However busily they drip, body_timeout is for all of it."""
    async with (
        open_door(address=ANY, body_timeout=0.3) as door,
        neighbour(door),
        await door.connect() as stream,
        trio.open_nursery() as nursery,
    ):
        await stream.send_all(HEAD + b"content-length: 1000000\r\n\r\n")
        nursery.start_soon(drip, stream)
        assert b'"code":"request_timeout"' in await read_until(stream, b"}}")
        nursery.cancel_scope.cancel()


async def test_a_client_without_a_key_hears_so_though_it_sends_all_first(
    open_door: OpenDoor,
) -> None:
    """As simple clients do: the reply must not be lost to a reset."""
    async with (
        open_door(address=ANY, api_keys="/etc/keys") as door,
        neighbour(door),
        await door.connect() as stream,
    ):
        body = b"x" * 3_000_000
        with trio.fail_after(5):
            await stream.send_all(post("/v1/sessions/s/reset", body))
        assert b'"code":"invalid_api_key"' in await read_to_end(stream)


async def test_a_client_that_goes_on_sending_is_heard_out_only_so_long(
    open_door: OpenDoor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its body is nobody's concern any more, and its connection is no longer its."""
    monkeypatch.setattr(connection, "LINGER", 0.2)
    async with (
        open_door(address=ANY, api_keys="/etc/keys") as door,
        neighbour(door),
        await door.connect() as stream,
    ):
        await stream.send_all(HEAD + b"content-length: 999999999\r\n\r\n")
        with trio.fail_after(5):
            await drip(stream)


async def test_a_client_that_is_heard_out_may_be_displaced(
    open_door: OpenDoor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who was refused has no claim to a place."""
    monkeypatch.setattr(connection, "LINGER", 60.0)
    async with (
        open_door(address=ANY, api_keys="/etc/keys", max_connections=2) as door,
        neighbour(door),
        await door.connect() as stream,
    ):
        await stream.send_all(HEAD + b"content-length: 999\r\n\r\nx")
        await read_until(stream, b'"code":"invalid_api_key"')
        async with await door.connect() as other:
            await other.send_all(get("/livez", "connection: close"))
            assert (await read_to_end(other)).endswith(b"live\n")
