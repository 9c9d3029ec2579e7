"""One request over the daemon's socket, with nothing between: every client can misbehave."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import h11
import trio


class BrokenReply(Exception):
    """The daemon ended a reply in its midst, or said what is not HTTP."""


class Exchange:
    """A connection that carries one request and its reply."""

    def __init__(self, stream: trio.SocketStream) -> None:
        """Nothing was said yet."""
        self._stream = stream
        self._http = h11.Connection(h11.CLIENT)
        self._rest = b""

    async def send(self, method: str, path: str, body: object = None) -> None:
        """Send a whole request, its body as JSON."""
        data = b"" if body is None else json.dumps(body).encode()
        headers = [("host", "daemon"), ("content-length", str(len(data)))]
        pieces = [
            self._http.send(h11.Request(method=method, target=path, headers=headers)),
            self._http.send(h11.Data(data=data)),
            self._http.send(h11.EndOfMessage()),
        ]
        await self.send_bytes(b"".join(piece or b"" for piece in pieces))

    async def send_bytes(self, data: bytes) -> None:
        """Send anything."""
        await self._stream.send_all(data)

    async def half_close(self) -> None:
        """Send no more, and read on."""
        self._stream.socket.shutdown(socket.SHUT_WR)
        await trio.lowlevel.checkpoint()

    async def read_some(self, limit: int) -> bytes:
        """Read what is there, as bytes."""
        return bytes(await self._stream.receive_some(limit))

    async def status(self) -> int:
        """Read up to the reply's body; its status."""
        event = await self._next(65536)
        while isinstance(event, h11.InformationalResponse):
            event = await self._next(65536)
        if not isinstance(event, h11.Response):
            raise BrokenReply(f"no response but {type(event).__name__}")
        return event.status_code

    async def body(self, limit: int = 65536) -> bytes:
        """Read some of the body, at most ``limit`` bytes; nothing at its end."""
        event = await self._next(limit)
        if isinstance(event, h11.EndOfMessage):
            return b""
        if not isinstance(event, h11.Data):
            raise BrokenReply(f"no body but {type(event).__name__}")
        return bytes(event.data)

    async def lines(self, limit: int = 65536) -> list[Any]:
        """Read some of the body's JSON lines; none at its end."""
        while data := await self.body(limit):
            *whole, self._rest = (self._rest + data).split(b"\n")
            if whole:
                return [_value(line) for line in whole]
        if self._rest:
            raise BrokenReply(f"the last line has no end: {self._rest[:200]!r}")
        return []

    async def _next(self, piece: int) -> object:
        try:
            while (event := self._http.next_event()) is h11.NEED_DATA:
                self._http.receive_data(await self.read_some(piece))
        except (h11.RemoteProtocolError, trio.BrokenResourceError) as error:
            raise BrokenReply(str(error)) from error
        return event


@asynccontextmanager
async def connect(path: Path) -> AsyncIterator[Exchange]:
    """Connect; leaving closes the connection at once, whatever is under way."""
    stream = await trio.open_unix_socket(str(path))
    try:
        yield Exchange(stream)
    finally:
        with trio.CancelScope(shield=True):
            await trio.aclose_forcefully(stream)


async def ask(path: Path, method: str, target: str, body: object = None) -> tuple[int, Any]:
    """Make a request; the status, and the JSON value that the reply is, or begins with."""
    status, text = await ask_text(path, method, target, body)
    first = text.partition(b"\n")[0]
    return status, _value(first) if first else None


async def ask_text(path: Path, method: str, target: str, body: object = None) -> tuple[int, bytes]:
    """Make a request; the status and the body."""
    async with connect(path) as exchange:
        await exchange.send(method, target, body)
        status = await exchange.status()
        text = b""
        while data := await exchange.body():
            text += data
        return status, text


def _value(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise BrokenReply(f"no JSON but {text[:200]!r}") from error
