"""Whether the daemon answers on its own socket, asked the way that its clients ask."""

from __future__ import annotations

import socket

import trio

_ANSWER_MAX = 64 * 1024
"""Bytes of an answer that are read at most; what is looked at is in its first line."""


async def answers(address: str, path: str, *, within: float) -> bool:
    """Whether a GET on a Unix socket is answered with 200.

    A connection that is accepted and closed without a word counts as well: that is how a listener
    with as many clients as it may have turns one more away, and it was turned away in time.

    Args:
        address: the socket's path.
        path: the route.
        within: seconds for all of it.
    """
    reply = b""
    with trio.move_on_after(within) as bound:
        try:
            with trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
                await client.connect(address)
                stream = trio.SocketStream(client)
                await stream.send_all(
                    f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
                )
                while len(reply) < _ANSWER_MAX and (data := await stream.receive_some()):
                    reply += data
        except trio.BrokenResourceError:
            return not reply
        except OSError:
            return False
    return not bound.cancelled_caught and (not reply or reply.startswith(b"HTTP/1.1 200 "))
