"""Who is at the other end of a Unix socket, as the kernel knows it (``SO_PEERCRED``, unix(7))."""

from __future__ import annotations

import socket
import struct

import msgspec

_UCRED = struct.Struct("3i")
"""``struct ucred``: pid, uid, gid."""


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """The credentials of the process that connected, taken by the kernel at that moment.

    ``pid`` is 0 where the peer lives in a pid namespace that this one cannot see.
    """

    uid: int
    gid: int
    pid: int

    def __str__(self) -> str:
        return f"uid={self.uid} gid={self.gid} pid={self.pid}"


def peer_of(fileno: int) -> Peer:
    """Return the credentials of the process at the other end of a connected Unix socket.

    ``fileno`` stays open and its owner's. Raises ``OSError`` if it is not such a socket.
    """
    with socket.socket(fileno=fileno) as borrowed:
        try:
            raw = borrowed.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
        finally:
            borrowed.detach()
    pid, uid, gid = _UCRED.unpack(raw)
    return Peer(uid=uid, gid=gid, pid=pid)
