"""Whatever a client sends, in whatever pieces, it is answered or cut off, and others are served."""

from __future__ import annotations

import itertools
from contextlib import suppress

import httpx
import pytest
import trio
import trio.testing
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from supervisord_llm.api import connection
from supervisord_llm.events import DaemonError, WorkerResumed
from tests.api.conftest import Door, OpenDoor
from tests.api.raw import GENERATE, get, post, read_to_end, read_until

PIECES = st.sampled_from(
    [
        b"GET ",
        b"POST ",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"/api/v1/generate",
        b"/api/v1/events?follow=true",
        b"/api/v1/requests/%00/cancel?wait=true",
        b"/livez",
        b" HTTP/1.1",
        b" HTTP/1.0",
        b"\r\n",
        b"\r\n\r\n",
        b"\n",
        b"host: a\r\n",
        b"content-length: 5\r\n",
        b"content-length: 99999999999999999999\r\n",
        b"transfer-encoding: chunked\r\n",
        b"expect: 100-continue\r\n",
        b"connection: upgrade\r\nupgrade: h2c\r\n",
        b"connection: close\r\n",
        b"5\r\nhello\r\n",
        b"0\r\n\r\n",
        b"ffffffffffffffff\r\n",
        b"\x00",
        b"\xff\xfe",
        GENERATE,
        get("/livez"),
        get("/api/v1/status"),
        post("/api/v1/generate", GENERATE),
        post("/api/v1/workers/smollm.0/reload", b"{}"),
    ]
)
SCRIPT = st.lists(st.one_of(PIECES, st.binary(max_size=20)), min_size=1, max_size=12)

quick = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


async def livez(door: Door) -> bytes:
    """What a client is told; on a busy machine its first connection may idle for too long."""
    with suppress(httpx.TransportError):
        return (await door.http.get("/livez")).content
    return (await door.http.get("/livez")).content


@quick
@example(script=[post("/api/v1/generate", GENERATE) + get("/livez")], half=False)
@example(script=[get("/api/v1/events?follow=true") + b"GET "], half=False)
@given(script=SCRIPT, half=st.booleans())
async def test_any_bytes_are_survived(open_door: OpenDoor, script: list[bytes], half: bool) -> None:
    """No bug of ours is reached, nothing of it stays, and other clients are served meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection, "EARLY_BYTES_PATIENCE", 0.01)
        async with (
            open_door(idle_timeout=0.05, body_timeout=0.05) as door,
            await door.connect() as other,
        ):
            await other.send_all(get("/api/v1/events?follow=true"))
            await read_until(other, b"stream.opened")
            async with await door.connect() as stream:
                with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                    for piece in script:
                        await stream.send_all(piece)
                    if half:
                        await stream.send_eof()
                assert b"live\n" == await livez(door)
                # Long enough for each of the limits above to cut the connection.
                with trio.move_on_after(0.1), suppress(trio.BrokenResourceError):
                    async for _ in stream:
                        pass
            async with await door.connect() as fresh:  # httpx might take one that idles no more
                await fresh.send_all(get("/livez", "connection: close"))
                assert (await read_to_end(fresh)).endswith(b"live\n")
            door.daemon.log.publish(WorkerResumed(pool="p", worker="p.0", generation=1))
            await read_until(other, b"worker.resumed")
            door.close()
            with trio.fail_after(5):
                await door.ended.wait()
                for request in door.daemon.requests():
                    await request.wait_finished()
    assert not [event for event in door.daemon.events if isinstance(event, DaemonError)]


@quick
@given(cuts=st.lists(st.integers(1, 200), max_size=6, unique=True))
async def test_a_request_may_come_in_any_pieces(open_door: OpenDoor, cuts: list[int]) -> None:
    """Where the bytes are cut makes no difference."""
    whole = post("/api/v1/generate", b'{"pool": "other", "prompt": "x"}', "connection: close")
    ends = [0, *sorted(cut for cut in cuts if cut < len(whole)), len(whole)]
    async with open_door() as door, await door.connect() as stream:
        for begin, end in itertools.pairwise(ends):
            await stream.send_all(whole[begin:end])
            await trio.testing.wait_all_tasks_blocked()
        answer = await read_to_end(stream)
    assert answer.startswith(b"HTTP/1.1 404 ")
    assert b'"unknown_model"' in answer
