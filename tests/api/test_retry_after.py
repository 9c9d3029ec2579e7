"""A full queue says when to come again, by how fast the pool is seen to serve."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from supervisord_llm.client import ApiError
from supervisord_llm.events import RequestRejected
from tests.api.house import House, ask, house, read
from tests.api.raw import post, read_until
from tests.harness import QUICK

FULL = QUICK + "queue.max_queued = 1\n"
ENDLESS = "x sim.tokens=100000 sim.tps=100"


async def refused(at: House) -> str:
    """The head of the reply to one request too many."""
    body = b'{"pool": "sim", "prompt": "z"}'
    async with await trio.open_unix_socket(at.socket) as stream:
        await stream.send_all(post("/api/v1/generate", body))
        return (await read_until(stream, b"\r\n\r\n")).decode().lower()


async def test_a_full_queue_says_when_there_will_be_room(tmp_path: Path) -> None:
    """By the time that requests were seen to take, which is more than the least of one second."""
    async with house(tmp_path, settings=FULL) as at:
        async with at.client.generate(ask("x sim.tokens=115 sim.tps=100")) as seen:
            _, finished = await read(seen)
        assert finished.timings.total_ms > 1000
        async with at.client.generate(ask(ENDLESS)), at.client.generate(ask("y")):
            head = await refused(at)
        assert head.startswith("http/1.1 429 ")
        assert "\r\nretry-after: 2\r\n" in head
        assert [event.code for event in at.all(RequestRejected)] == ["queue_full"]


async def test_our_own_client_tells_it_too(tmp_path: Path) -> None:
    """The error that it raises knows the seconds: the least, while nothing was seen to end."""
    async with (
        house(tmp_path, settings=FULL) as at,
        at.client.generate(ask(ENDLESS)),
        at.client.generate(ask("y")),
    ):
        with pytest.raises(ApiError) as caught:
            async with at.client.generate(ask("z")):
                pass
    assert (caught.value.code, caught.value.retry_after) == ("queue_full", 1)
