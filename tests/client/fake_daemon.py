"""A daemon that answers what a test tells it to: real HTTP on a real Unix socket, no models.

It is deliberately ignorant, so that a test can also make it lie, stall or break off.
"""

from __future__ import annotations

import os
import socket as sockets
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import h11
import msgspec
import trio

from supervisord_llm.schema import ErrorBody, ErrorReply


class Exchange:
    """One request, and the means to answer it."""

    def __init__(self, stream: trio.SocketStream, connection: h11.Connection, head: h11.Request):
        self.method = head.method.decode()
        self.target = head.target.decode()
        self.headers = {name.decode(): value.decode() for name, value in head.headers}
        self.body = b""
        self._stream = stream
        self._connection = connection

    async def reply(
        self, value: object, *, status: int = 200, headers: dict[str, str] | None = None
    ) -> None:
        """Answer with one JSON document; `bytes` go out as they are."""
        body = value if isinstance(value, bytes) else msgspec.json.encode(value)
        fields = {"content-length": str(len(body)), **(headers or {})}
        head = h11.Response(status_code=status, headers=list(fields.items()))
        await self._send(head, h11.Data(data=body), h11.EndOfMessage())

    async def refuse(
        self,
        status: int,
        code: str,
        message: str,
        *,
        param: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        """Answer with the error envelope."""
        body = ErrorBody(message=message, type="invalid_request_error", code=code, param=param)
        await self.reply(ErrorReply(error=body), status=status, headers=headers)

    async def begin(self, *lines: object) -> None:
        """Begin a stream, with these lines in the same write; `bytes` go out as they are."""
        fields = [("content-type", "application/x-ndjson"), ("transfer-encoding", "chunked")]
        await self._send(h11.Response(status_code=200, headers=fields), *map(_data, lines))

    async def line(self, *lines: object) -> None:
        """Go on with these lines in one write; `bytes` go out as they are."""
        await self._send(*map(_data, lines))

    async def end(self, *lines: object) -> None:
        """Send the last lines and end the stream as it should be."""
        await self._send(*map(_data, lines), h11.EndOfMessage())

    async def break_off(self) -> None:
        """Close the connection in the middle of the answer."""
        await self._stream.aclose()

    async def wait_left(self) -> None:
        """Wait until the client has closed the connection."""
        # Whoever closes a Unix socket with something unread in it resets the connection.
        with suppress(trio.BrokenResourceError):
            assert await self._stream.receive_some(1) == b""

    async def _send(self, *events: h11.Event) -> None:
        await self._stream.send_all(
            b"".join(self._connection.send(event) or b"" for event in events)
        )


def _data(line: object) -> h11.Data:
    raw = line if isinstance(line, bytes) else msgspec.json.encode(line) + b"\n"
    return h11.Data(data=raw)


Handler = Callable[[Exchange], Awaitable[None]]


class FakeDaemon:
    """Answers by ``METHOD /path``; ``exchanges`` is everything that was asked, in order."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self.exchanges: list[Exchange] = []
        self._routes: dict[str, Handler] = {}

    def on(self, route: str, handler: Handler) -> None:
        """Answer a route, given without its query, from now on."""
        self._routes[route] = handler

    def answer(self, route: str, value: object, *, status: int = 200) -> None:
        """Answer a route with one JSON document from now on."""

        async def handler(exchange: Exchange) -> None:
            await exchange.reply(value, status=status)

        self.on(route, handler)

    @property
    def asked(self) -> list[str]:
        """``METHOD /path?query`` of everything that was asked."""
        return [f"{exchange.method} {exchange.target}" for exchange in self.exchanges]

    async def serve_connection(self, stream: trio.SocketStream) -> None:
        """Serve one connection until either side closes it."""
        connection = h11.Connection(h11.SERVER)
        async with stream:
            while True:
                exchange = await self._next(stream, connection)
                if exchange is None:
                    return
                self.exchanges.append(exchange)
                try:
                    await self._dispatch(exchange)
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    return
                if connection.our_state is not h11.DONE:
                    return
                connection.start_next_cycle()

    async def _dispatch(self, exchange: Exchange) -> None:
        route = f"{exchange.method} {exchange.target.partition('?')[0]}"
        handler = self._routes.get(route)
        if handler is None:
            await exchange.refuse(404, "not_found", f"cannot find {route}")
        else:
            await handler(exchange)

    async def _next(self, stream: trio.SocketStream, connection: h11.Connection) -> Exchange | None:
        exchange: Exchange | None = None
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                try:
                    connection.receive_data(await stream.receive_some())
                except trio.BrokenResourceError:
                    return None
            elif isinstance(event, h11.Request):
                exchange = Exchange(stream, connection, event)
            elif isinstance(event, h11.Data):
                assert exchange is not None
                exchange.body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return exchange
            else:
                return None


@asynccontextmanager
async def fake_daemon(folder: Path) -> AsyncGenerator[FakeDaemon]:
    """Serve a fake daemon on ``control.sock`` in the folder."""
    daemon = FakeDaemon(folder / "control.sock")
    with trio.socket.socket(sockets.AF_UNIX, sockets.SOCK_STREAM) as listening:
        await listening.bind(os.fspath(daemon.socket))
        listening.listen()
        async with trio.open_nursery() as nursery:
            listener = trio.SocketListener(listening)
            nursery.start_soon(trio.serve_listeners, daemon.serve_connection, [listener])
            yield daemon
            nursery.cancel_scope.cancel()
    daemon.socket.unlink()
