"""A socket stream that cannot be held for ever by the other side.

Hypercorn sends inside a shielded scope without a deadline, so a client that stops reading would
hold its handler, and a shutdown, for ever. Here a send that makes no progress for ``send_timeout``
breaks the connection, and ``cut`` breaks it from outside, which wakes whoever waits in it.
"""

from __future__ import annotations

import os

import trio


class GuardedStream(trio.abc.HalfCloseableStream):
    """A connected stream socket; after ``cut`` every call raises ``ClosedResourceError``.

    ``send_timeout`` is in seconds without progress, not in total: a slow reader may be slow.
    """

    def __init__(self, stream: trio.SocketStream, *, send_timeout: float) -> None:
        self.socket = stream.socket
        self._stream = stream
        self._send_timeout = send_timeout
        self.stalled = False

    def send_now(self, data: bytes) -> int:
        """Send what goes without waiting; the bytes that went, 0 also if the peer is gone.

        What is wrong then is raised by `send_all`, which must follow for the rest.
        """
        try:
            return os.write(self.socket.fileno(), data)
        except OSError:
            return 0

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send everything. Raises ``BrokenResourceError`` if the peer left or stopped reading."""
        with memoryview(data) as view:
            sent = 0
            while sent < len(view):
                with trio.move_on_after(self._send_timeout) as patience:
                    sent += await self._send_some(view[sent:])
                if patience.cancelled_caught:
                    self.stalled = True
                    self.cut()
                    raise trio.BrokenResourceError("the peer stopped reading")

    async def _send_some(self, view: memoryview) -> int:
        try:
            return await self.socket.send(view)
        except OSError as error:
            raise trio.BrokenResourceError("the peer is gone") from error

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until a send would make progress."""
        await self._stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """Receive what is there, at least one byte; ``b""`` when the peer has finished sending."""
        return await self._stream.receive_some(max_bytes)

    async def send_eof(self) -> None:
        """Tell the peer that nothing more will come."""
        await self._stream.send_eof()

    def cut(self) -> None:
        """Close the socket now; whoever waits in this stream is woken. Idempotent."""
        self.socket.close()

    async def aclose(self) -> None:
        """Close the socket."""
        await self._stream.aclose()
