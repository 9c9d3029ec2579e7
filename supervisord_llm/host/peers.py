"""Who is at the other end of a socket, as the kernel knows it.

On a Unix socket that is a process with its user (``SO_PEERCRED``, unix(7)), over TCP only an
address.
"""

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

    @property
    def client(self) -> str:
        """Who takes turns with others for the workers: the user, whatever the process."""
        return f"uid:{self.uid}"

    def __str__(self) -> str:
        return f"uid={self.uid} gid={self.gid} pid={self.pid}"


class TcpPeer(msgspec.Struct, frozen=True, kw_only=True):
    """The address that a TCP connection came from."""

    host: str
    """Literal, without brackets; of a link-local one with its interface."""
    port: int

    @property
    def client(self) -> str:
        """Who takes turns with others for the workers, where no key says it better."""
        return f"tcp:{self.host}"

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"tcp:{host}:{self.port}"


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


def tcp_peer_of(fileno: int) -> TcpPeer:
    """Return the address at the other end of a connected TCP socket.

    ``fileno`` stays open and its owner's. Raises ``OSError`` if it is not connected any more.
    """
    with socket.socket(fileno=fileno) as borrowed:
        try:
            name = borrowed.getpeername()
        finally:
            borrowed.detach()
    # Past the first two, an IPv6 name has the flow and the interface's number.
    return TcpPeer(host=name[0], port=name[1])
