from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

from supervisord_llm.runtime.self_check import answers
from tests.harness import SECONDS

Handler = Callable[[trio.SocketStream], Awaitable[None]]


async def ask(folder: Path, handler: Handler, *, within: float = SECONDS) -> bool:
    """What comes of asking a server that handles its connections like this."""
    address = str(folder / "s")
    listening = trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    await listening.bind(address)
    listening.listen(1)

    async def handle(stream: trio.SocketStream) -> None:
        with stream.socket:
            await handler(stream)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, handle, [trio.SocketListener(listening)])
        found = await answers(address, "/livez", within=within)
        nursery.cancel_scope.cancel()
    return found


def replies(text: bytes) -> Handler:
    """A server that reads a request, then says this."""

    async def handle(stream: trio.SocketStream) -> None:
        data = b""
        while not data.endswith(b"\r\n\r\n"):
            data += await stream.receive_some()
        assert data.startswith(b"GET /livez HTTP/1.1\r\n")
        await stream.send_all(text)

    return handle


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (b"HTTP/1.1 200 \r\n\r\nlive\n", True),
        (b"HTTP/1.1 503 \r\n\r\nnot live\n", False),
        (b"HTTP/1.1 404 Not Found\r\n\r\n", False),
        (b"nonsense", False),
        (b"", True),
    ],
)
async def test_only_a_reply_that_says_so_is_one(
    tmp_path: Path, reply: bytes, expected: bool
) -> None:
    """Or none at all: a listener with as many clients as it may have is not one that hangs."""
    assert expected == await ask(tmp_path, replies(reply))


async def test_a_connection_that_is_closed_unread_was_answered(tmp_path: Path) -> None:
    """That is how a listener turns somebody away; the system may call it a broken connection."""

    async def close(_stream: trio.SocketStream) -> None:
        pass

    assert await ask(tmp_path, close)


async def test_silence_is_waited_for_no_longer_than_was_said(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """A daemon that accepts and does not answer cannot be reached."""

    async def hang(_stream: trio.SocketStream) -> None:
        await trio.sleep_forever()

    before = trio.current_time()
    assert not await ask(tmp_path, hang, within=3.0)
    assert before + 3.0 == trio.current_time()


async def test_nobody_there_is_no_answer(tmp_path: Path, no_fd_leak: None) -> None:
    """Nor is a socket that its owner has left."""
    assert not await answers(str(tmp_path / "absent"), "/livez", within=SECONDS)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "dead"))
    assert not await answers(str(tmp_path / "dead"), "/livez", within=SECONDS)
