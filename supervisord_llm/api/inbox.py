"""What a client sends after the head of its request: the body, then only its leaving."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio
from starlette.requests import Request
from starlette.types import Message, Receive, Scope

from supervisord_llm.api.errors import ClientGone
from supervisord_llm.config.schema import ListenConfig
from supervisord_llm.errors import BodyTimeout, BodyTooLarge, InvalidRequest

T = TypeVar("T")


class Inbox:
    """The application's ``receive``, which remembers how far the request's body has come."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.body_ended = not any(
            name == b"transfer-encoding" or (name == b"content-length" and value.strip(b"0"))
            for name, value in scope["headers"]
        )
        self._receive = receive

    async def __call__(self) -> Message:
        """Receive the next message: a piece of the body, or the disconnect."""
        message = await self._receive()
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            self.body_ended = True
        return message

    async def discard(self) -> None:
        """Throw away what comes, until cancelled.

        A body that nobody reads fills Hypercorn's queue, and then the end of the response waits for
        room in that queue, for ever.
        """
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                return


async def read_body(request: Request) -> bytes:
    """Return the whole body: at most ``max_body`` bytes, within ``body_timeout``.

    Raises ``BodyTooLarge``, ``BodyTimeout``, or ``ClientGone``.
    """
    listen: ListenConfig = request.state.listen
    limit = listen.max_body
    if int(request.headers.get("content-length", 0)) > limit:
        raise _too_large(limit)
    body = bytearray()
    with trio.move_on_after(listen.body_timeout):
        while True:
            message = await request.receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            body += message.get("body", b"")
            if len(body) > limit:
                raise _too_large(limit)
            if not message.get("more_body", False):
                return bytes(body)
    raise BodyTimeout(
        f"cannot read the body: it did not arrive within {listen.body_timeout}; send it "
        "faster, or raise listen.body_timeout"
    )


async def read_no_body(request: Request) -> None:
    """Check that a request that takes no body has none, or an empty JSON object.

    Raises as ``read_body`` does, and ``InvalidRequest`` for anything else.
    """
    body = await read_body(request)
    if body.strip() not in {b"", b"{}"}:
        raise InvalidRequest(f"cannot use the body: {request.url.path} takes none; leave it out")


async def until_disconnect(request: Request, work: Callable[[], Awaitable[T]]) -> T:
    """Run ``work``, whose request's body has been read; cancel it when the client leaves.

    Returns its result, raises what it raises, or ``ClientGone`` after it was cancelled.
    """
    return await _watched(request, work, lambda scope: scope.cancel())


async def despite_disconnect(
    request: Request, work: Callable[[], Awaitable[T]], left: Callable[[], None]
) -> T:
    """Run ``work``, whose request's body has been read, to its end; tell when the client leaves.

    A client that has only closed its sending side still reads, and cannot be told from one that is
    gone: to the latter, nothing gets through. ``left`` has to make the end come soon.
    """
    return await _watched(request, work, lambda _: left())


async def _watched(
    request: Request,
    work: Callable[[], Awaitable[T]],
    on_disconnect: Callable[[trio.CancelScope], None],
) -> T:
    failure: Exception | None = None
    async with trio.open_nursery() as nursery:

        async def watch() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass
            on_disconnect(nursery.cancel_scope)

        nursery.start_soon(watch)
        try:
            result = await work()
        except Exception as error:  # noqa: BLE001 - raised below, without a group around it
            failure = error
            nursery.cancel_scope.cancel()
        else:
            nursery.cancel_scope.cancel()
            return result
    if failure is not None:
        raise failure
    raise ClientGone


def _too_large(limit: int) -> BodyTooLarge:
    return BodyTooLarge(
        f"cannot take the body: it is larger than {limit} bytes; shorten it, or raise "
        "listen.max_body"
    )
