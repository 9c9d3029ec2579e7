"""The makers of replies: one JSON value, one error, plain text, or a stream of JSON lines."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

import msgspec
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from supervisord_llm.api.errors import HttpError

_encoder = msgspec.json.Encoder()


def json_reply(
    value: msgspec.Struct, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Reply with one Struct, and a line feed after it for those who read it in a terminal."""
    return Response(
        _encoder.encode(value) + b"\n",
        status_code=status,
        headers=headers,
        media_type="application/json",
    )


def error_reply(error: HttpError, headers: Mapping[str, str] | None = None) -> Response:
    """Reply with the error envelope, with more headers than are the error's own."""
    return json_reply(error.body, status=error.status, headers={**error.headers, **(headers or {})})


def text_reply(text: str, *, status: int = 200) -> Response:
    """Reply with plain text, for probes that read only the status."""
    return PlainTextResponse(text, status_code=status)


def json_lines(values: Sequence[msgspec.Struct]) -> bytes:
    """Encode each value as one line, all in one piece: one send for a whole batch."""
    return _encoder.encode_lines(values)


_NDJSON = (
    (b"content-type", b"application/x-ndjson"),
    (b"cache-control", b"no-store"),
)


class LineStream:
    """The sending side of a reply that is a stream of lines; ``Streamed`` closes it.

    Nothing here watches the client: the caller runs inside ``until_disconnect``. Starlette's
    StreamingResponse was not taken because whether it listens for a disconnect depends on the ASGI
    version that the server claims.
    """

    def __init__(self, scope: Scope, send: Send) -> None:
        self._send = send
        self._send_now: Callable[[bytes], bool] | None = scope["state"].get("send_body_now")
        self.head_only = scope["method"] == "HEAD"

    async def open(self, headers: Iterable[tuple[bytes, bytes]] = _NDJSON) -> None:
        """Send status 200 and the headers; no more errors can be told by a status from here on."""
        await self._send({"type": "http.response.start", "status": 200, "headers": list(headers)})

    async def send(self, lines: bytes) -> None:
        """Send whole lines."""
        await self._send({"type": "http.response.body", "body": lines, "more_body": True})

    def send_now(self, lines: bytes) -> bool:
        """Send whole lines on the spot; False, and nothing is sent, where that is not possible."""
        return self._send_now is not None and self._send_now(lines)

    async def close(self, lines: bytes) -> None:
        """Send the last lines, if any, and the end of the reply."""
        await self._send({"type": "http.response.body", "body": lines, "more_body": False})


class Streamed:
    """An ASGI reply made from a function that is given the stream's sending side.

    The function returns the last lines, or, if it has not called ``open``, another reply. They are
    sent outside of it, and so outside of its ``until_disconnect``: with the end of a reply the
    server says that this request is over in the words of a disconnect, and must not be cancelled
    while it prepares for the next one.
    """

    def __init__(self, run: Callable[[LineStream], Awaitable[bytes | ASGIApp]]) -> None:
        self._run = run

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the function; what it raises before ``open`` becomes an error reply."""
        lines = LineStream(scope, send)
        last = await self._run(lines)
        if isinstance(last, bytes):
            await lines.close(last)
        else:
            await last(scope, receive, send)
