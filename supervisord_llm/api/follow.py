"""Streams without an end of their own: they go on until the client leaves or the listener closes.

A follower holds a position, never a queue: the publisher is not slowed down by a reader who does
not keep up. What such a reader has missed is named in one ``stream.gap`` line. A reader that does
not read at all is not judged here but by the connection, within ``send_timeout``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from supervisord_llm.api.replies import LineStream


async def follow(
    next_lines: Callable[[], Awaitable[bytes]], lines: LineStream, closing: trio.Event
) -> None:
    """Send what ``next_lines`` waits for until ``closing``.

    Only the waiting is cut short, never a send. ``next_lines`` must not move on before it returns.
    """
    waiting = trio.CancelScope()

    async def stop() -> None:
        await closing.wait()
        waiting.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(stop)
        while not closing.is_set():
            found = b""
            with trio.CancelScope() as waiting:
                found = await next_lines()
            if found:
                await lines.send(found)
        nursery.cancel_scope.cancel()
