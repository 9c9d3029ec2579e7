from __future__ import annotations

import os
import socket
from contextlib import suppress

import pytest
import trio
import trio.testing

from supervisord_llm.events import CancelRequested, DaemonWarning, HttpRefused
from tests.api.conftest import Door, OpenDoor
from tests.api.raw import GENERATE, get, post, read_to_end, read_until

HEAD_413 = b"HTTP/1.1 413 "


@pytest.mark.parametrize(
    ("sent", "status", "reason"),
    [
        (b"hello\r\n\r\n", 400, "illegal request line"),
        (b"GET / HTTP/1.1\r\n\r\n", 400, "Missing mandatory Host"),
        (b"GET / HTTP/1.1\r\nhost: a\r\nbad header\r\n\r\n", 400, "illegal header line"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400, ""),
        (b"GET / HTTP/1.1\r\nx-long: " + b"x" * 70_000, 431, "Receive buffer too long"),
        (
            b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
            400,
            "conflicting Content-Length headers",
        ),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, "another version than HTTP/1.x"),
        (get("/livez", "connection: upgrade", "upgrade: websocket"), 400, "an upgrade"),
        (
            post("/api/v1/generate", GENERATE, "connection: upgrade", "upgrade: h2c"),
            400,
            "an upgrade",
        ),
        (b"CONNECT daemon:80 HTTP/1.1\r\nhost: a\r\n\r\n", 400, "CONNECT"),
    ],
)
async def test_what_is_not_plain_http_is_refused(
    door: Door, sent: bytes, status: int, reason: str
) -> None:
    """A bare status, a closed connection, and an event that says why and who."""
    async with await door.connect() as stream:
        await stream.send_all(sent)
        if not sent.startswith((b"GET", b"POST", b"PRI", b"CONNECT", b"hello")):
            await stream.send_eof()
        answer = await read_to_end(stream)
    event = await door.daemon.wait_event(HttpRefused)
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert answer.endswith(b"\r\n\r\n")
    assert status == event.status
    assert event.reason.startswith(reason)
    assert f"uid={os.getuid()} gid={os.getgid()} pid={os.getpid()}" == event.peer
    assert not door.pool.specs


async def test_a_refused_header_is_not_told(door: Door) -> None:
    """What the client sent may be a secret: the event names the fault without the text."""
    async with await door.connect() as stream:
        await stream.send_all(b"GET / HTTP/1.1\r\nhost: a\r\nauthorization secret\r\n\r\n")
        await read_to_end(stream)
    event = await door.daemon.wait_event(HttpRefused)
    assert "secret" not in event.reason


async def test_pipelined_bytes_cut_the_connection(door: Door) -> None:
    """Behind them the client's leaving could not be seen, so they end the request at once."""
    async with await door.connect() as stream:
        await stream.send_all(post("/api/v1/generate", GENERATE))
        await door.pool.next_request()
        await read_until(stream, b"accepted")
        await stream.send_all(get("/livez"))
        await read_to_end(stream)
    refused = await door.daemon.wait_event(HttpRefused)
    asked = await door.daemon.wait_event(CancelRequested)
    assert (0, "client") == (refused.status, asked.by)
    assert "still being answered" in refused.reason


async def test_a_pipelined_pair_in_one_write_cuts_the_connection(door: Door) -> None:
    """It does not matter whether the second request comes with the first or after it."""
    async with await door.connect() as stream:
        await stream.send_all(post("/api/v1/generate", GENERATE) + get("/livez"))
        await read_to_end(stream)
    refused = await door.daemon.wait_event(HttpRefused)
    assert 0 == refused.status


async def test_a_connection_that_is_cut_takes_no_other_with_it(door: Door) -> None:
    """Others in the middle of a reply go on, and new ones are taken."""
    async with await door.connect() as other, await door.connect() as stream:
        await other.send_all(get("/api/v1/events?follow=true"))
        await read_until(other, b"stream.opened")
        await stream.send_all(post("/api/v1/generate", GENERATE) + get("/livez"))
        await read_to_end(stream)
        await read_until(other, b"http.refused")
        assert 200 == (await door.http.get("/livez")).status_code


async def test_requests_one_after_the_other_share_a_connection(door: Door) -> None:
    """Keep-alive works as long as each request waits for the reply before it."""
    async with await door.connect() as stream:
        for _ in range(3):
            await stream.send_all(get("/livez"))
            await read_until(stream, b"\r\n\r\nlive\n")


async def test_an_old_client_gets_a_stream_that_ends_with_the_connection(door: Door) -> None:
    """HTTP/1.0 knows no chunks; the lines are the same."""
    async with await door.connect() as stream:
        await stream.send_all(b"GET /api/v1/events HTTP/1.0\r\n\r\n")
        head, _, body = (await read_to_end(stream)).partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head.lower()
    assert body.startswith(b'{"event":"stream.opened"')


async def test_a_client_may_ask_before_it_sends_its_body(door: Door) -> None:
    """Expect: 100-continue is answered, as curl wants for large prompts."""
    async with await door.connect() as stream:
        await stream.send_all(
            b"POST /api/v1/generate HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\n"
            b"content-length: %d\r\n\r\n" % len(GENERATE)
        )
        await read_until(stream, b"HTTP/1.1 100 ")
        await stream.send_all(GENERATE)
        await read_until(stream, b"accepted")


async def test_a_get_with_a_body_is_served(door: Door) -> None:
    """A body that means nothing is thrown away; an endless stream wants none at all."""
    async with await door.connect() as stream:
        body = b"GET /livez HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\nxyz"
        await stream.send_all(body)
        assert (await read_to_end(stream)).endswith(b"live\n")
    reply = await door.http.request("GET", "/api/v1/events?follow=true", content=b"xyz")
    assert 400 == reply.status_code


async def test_a_body_over_the_limit_is_refused_by_its_announcement(open_door: OpenDoor) -> None:
    """A content-length that is too large is answered before a byte of the body is read."""
    async with open_door(max_body=1000) as door, await door.connect() as stream:
        await stream.send_all(
            b"POST /api/v1/generate HTTP/1.1\r\nhost: a\r\ncontent-length: 1001\r\n\r\n"
        )
        answer = await read_to_end(stream)
    assert answer.startswith(HEAD_413)
    assert b'"code":"body_too_large"' in answer


async def test_a_body_over_the_limit_is_refused_while_it_comes(open_door: OpenDoor) -> None:
    """Without an announcement the count decides; the rest is thrown away."""
    async with open_door(max_body=100_000) as door, await door.connect() as stream:
        await stream.send_all(
            b"POST /api/v1/generate HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        chunk = b"4000\r\n" + b"x" * 0x4000 + b"\r\n"
        try:
            for _ in range(200):
                await stream.send_all(chunk)
        except trio.BrokenResourceError:
            pass
        assert (await read_to_end(stream)).startswith(HEAD_413)


async def test_a_body_that_nobody_reads_holds_nothing(door: Door) -> None:
    """A large body to a route that does not exist gets its 404 and its connection closed."""
    async with await door.connect() as stream, trio.open_nursery() as nursery:

        async def send() -> None:
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                await stream.send_all(post("/nowhere", b"x" * 8_000_000))

        nursery.start_soon(send)
        answer = await read_to_end(stream)
    assert answer.startswith(b"HTTP/1.1 404 ")
    assert b"connection: close" in answer


async def test_a_body_that_does_not_arrive_times_out(open_door: OpenDoor) -> None:
    """408 within body_timeout, and an event."""
    async with open_door(body_timeout=0.2) as door, await door.connect() as stream:
        await stream.send_all(
            b"POST /api/v1/generate HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\n{"
        )
        answer = await read_to_end(stream)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b'"code":"request_timeout"' in answer


async def test_a_head_that_does_not_arrive_is_cut(open_door: OpenDoor) -> None:
    """A client that feeds its header byte by byte is closed after idle_timeout, with an event."""
    async with open_door(idle_timeout=0.3) as door, await door.connect() as stream:
        await stream.send_all(b"GET /livez HTTP/1.1\r\nx: ")
        async with trio.open_nursery() as nursery:

            async def drip() -> None:
                try:
                    while True:
                        await stream.send_all(b"x")
                        await trio.sleep(0.02)
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    pass

            nursery.start_soon(drip)
            assert b"" == await read_to_end(stream)
        refused = await door.daemon.wait_event(HttpRefused)
    assert (0, "a request head that did not arrive within idle_timeout") == (
        refused.status,
        refused.reason,
    )


async def test_an_idle_connection_is_closed_without_an_event(open_door: OpenDoor) -> None:
    """Keep-alive has an end, which is nobody's fault."""
    async with open_door(idle_timeout=0.2) as door, await door.connect() as stream:
        await stream.send_all(get("/livez"))
        assert (await read_to_end(stream)).endswith(b"live\n")
        assert not door.daemon.events


async def test_a_client_that_stops_reading_is_cut(open_door: OpenDoor) -> None:
    """Without progress for send_timeout the connection breaks and its request is cancelled."""
    async with open_door(send_timeout=0.3) as door:
        client = socket.socket(socket.AF_UNIX)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(str(door.path))
        with client:
            client.sendall(post("/api/v1/generate", GENERATE))
            request = await door.pool.next_request()
            door.pool.assign(request)
            with trio.fail_after(10):
                while request.record is None:
                    request.output(["x" * 10_000], door.daemon.clock.now())
                    await trio.sleep(0.01)
            refused = await door.daemon.wait_event(HttpRefused)
            asked = await door.daemon.wait_event(CancelRequested)
    assert (0, "client") == (refused.status, asked.by)
    assert "did not read for listen.send_timeout" in refused.reason


async def test_a_slow_reader_is_not_cut(open_door: OpenDoor) -> None:
    """The timeout counts from the last progress: a reply may take much longer than it."""
    async with open_door(send_timeout=1.0) as door, await door.connect() as stream:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        await stream.send_all(post("/api/v1/generate", GENERATE))
        request = await door.pool.next_request()
        door.pool.assign(request)
        request.output(["x" * 3_000_000], door.daemon.clock.now())
        door.pool.complete(request)
        got = 0
        begun = trio.current_time()
        with trio.fail_after(15):
            while piece := await stream.receive_some(150_000):
                got += len(piece)
                if piece.endswith(b"\r\n0\r\n\r\n"):
                    break
                await trio.sleep(0.1)
        assert trio.current_time() - begun > 1.0
    assert got > 3_000_000


async def test_one_connection_too_many_is_closed_at_once(open_door: OpenDoor) -> None:
    """If each that is there has a request; when one of them ends there is room again."""
    async with open_door(max_connections=2) as door:
        first, second = await door.connect(), await door.connect()
        async with first, second:
            for stream in (first, second):
                await stream.send_all(post("/api/v1/generate", GENERATE))
                await read_until(stream, b"accepted")
            async with await door.connect() as third:
                assert b"" == await read_to_end(third)
            refused = await door.daemon.wait_event(HttpRefused)
            assert (0, "one connection more than listen.max_connections") == (
                refused.status,
                refused.reason,
            )
            request = await door.pool.next_request()
            door.pool.assign(request)
            door.pool.complete(request)
            await read_until(first, b"\r\n0\r\n\r\n")
            await trio.testing.wait_all_tasks_blocked()
            async with await door.connect() as fourth:
                await fourth.send_all(get("/livez", "connection: close"))
                assert (await read_to_end(fourth)).endswith(b"live\n")


async def test_an_idle_connection_makes_room(open_door: OpenDoor) -> None:
    """The one that has been idle for longest is closed, the others go on; one warning tells it."""
    async with open_door(max_connections=2) as door:
        first, second = await door.connect(), await door.connect()
        async with first, second:
            for stream in (first, second, first):
                await stream.send_all(get("/livez"))
                await read_until(stream, b"live\n")
            async with await door.connect() as third:
                await third.send_all(get("/livez"))
                await read_until(third, b"live\n")
                assert b"" == await read_to_end(second)
                async with await door.connect() as fourth:
                    await fourth.send_all(get("/livez"))
                    await read_until(fourth, b"live\n")
                assert b"" == await read_to_end(first)
        [warning] = door.daemon.events
        assert isinstance(warning, DaemonWarning)
        assert ("connections", f"unix:{door.path} has 2 connections") == (
            warning.topic,
            warning.message.partition(";")[0],
        )
