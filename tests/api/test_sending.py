"""The short way of a token to its client, and the long one where the short one is shut."""

from __future__ import annotations

import json
import os
from collections.abc import Callable

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from supervisord_llm.api.connection import SMALL_PIECE
from supervisord_llm.api.stream import GuardedStream
from supervisord_llm.runtime.request import Request
from tests.api.conftest import Door
from tests.api.raw import GENERATE, post, read_until, stream_lines

Write = Callable[[GuardedStream, bytes], int]


async def texts(door: Door, feed: Callable[[Request], None], *, head: bytes = b"") -> list[str]:
    """The tokens that a client reads while ``feed`` is the worker, each put after the last."""
    async with await door.connect() as stream:
        await stream.send_all(head or post("/api/v1/generate", GENERATE))
        request = await door.pool.next_request()
        door.pool.assign(request)
        await read_until(stream, b'"event":"started"')
        await wait_all_tasks_blocked()
        feed(request)
        door.pool.complete(request)
        lines = await stream_lines(stream, lambda line: line["event"] == "finished")
    return [line["text"] for line in lines if line["event"] == "token"]


def put_each(door: Door, tokens: list[str]) -> Callable[[Request], None]:
    """A worker that writes one token at a time, faster than any task can run."""

    def feed(request: Request) -> None:
        for token in tokens:
            request.output([token], door.daemon.clock.now())

    return feed


async def test_a_lone_token_is_sent_before_any_task_runs(door: Door) -> None:
    """It is at the client's socket when the worker's reader has handed it on."""
    async with await door.connect() as stream:
        await stream.send_all(post("/api/v1/generate", GENERATE))
        request = await door.pool.next_request()
        door.pool.assign(request)
        await read_until(stream, b'"attempt":1}\n\r\n')
        await wait_all_tasks_blocked()
        request.output(["first"], door.daemon.clock.now())
        raw = os.read(stream.socket.fileno(), 1000)
        door.pool.complete(request)
    size, line = raw.split(b"\r\n")[:2]
    assert {"event": "token", "text": "first"} == json.loads(line)
    assert int(size, 16) == len(line)


@pytest.mark.parametrize("size", [1, SMALL_PIECE, 100 * SMALL_PIECE])
async def test_tokens_of_any_size_come_in_order(door: Door, size: int) -> None:
    """Pieces that are too large for the short way, and those behind them, take the long one."""
    tokens = ["a", "b" * size, "c", "d" * size, "e"]
    assert tokens == await texts(door, put_each(door, tokens))


async def test_a_client_that_takes_no_more_loses_nothing(door: Door) -> None:
    """With a full socket the tokens wait in the mailbox, and come in order when it reads."""
    tokens = [f"{number} {'x' * 1000}" for number in range(1000)]
    assert tokens == await texts(door, put_each(door, tokens))


@pytest.mark.parametrize(
    "write",
    [
        lambda stream, data: os.write(stream.socket.fileno(), data[: len(data) // 2 + 1]),
        lambda _stream, _data: 0,
    ],
    ids=["half", "nothing"],
)
async def test_a_piece_that_does_not_go_at_once_is_sent_whole_first(
    door: Door, monkeypatch: pytest.MonkeyPatch, write: Write
) -> None:
    """Whatever part of a piece the system takes, the rest goes before anything else."""
    monkeypatch.setattr(GuardedStream, "send_now", write)
    tokens = [f"t{number}" for number in range(50)]
    assert tokens == await texts(door, put_each(door, tokens))


async def test_an_http_1_0_client_gets_lines_without_chunks(door: Door) -> None:
    """The short way frames a token as the reply began."""
    request = post("/api/v1/generate", GENERATE).replace(b"HTTP/1.1", b"HTTP/1.0")
    tokens = ["a", "b"]
    assert tokens == await texts(door, put_each(door, tokens), head=request)


async def test_a_client_that_left_is_not_written_to(door: Door) -> None:
    """Its request is cancelled as ever, and the worker's reader is not disturbed."""
    stream = await door.connect()
    await stream.send_all(post("/api/v1/generate", GENERATE))
    request = await door.pool.next_request()
    door.pool.assign(request)
    await read_until(stream, b'"event":"started"')
    await wait_all_tasks_blocked()
    await stream.aclose()
    request.output(["unread"], door.daemon.clock.now())
    with trio.fail_after(5):
        while request.cancel_asked_at is None:
            await trio.lowlevel.checkpoint()
