"""A TCP socket to listen on: taken, or refused with a reason."""

from __future__ import annotations

import errno
import socket

from supervisord_llm.api.unix_listener import BACKLOG
from supervisord_llm.config.addresses import TcpAddress
from supervisord_llm.config.schema import ListenConfig
from supervisord_llm.errors import AddressInUse, OperatorError

KEEPALIVE_IDLE, KEEPALIVE_INTERVAL, KEEPALIVE_PROBES = 15, 5, 3
"""Seconds, seconds, and how many (tcp(7)): after half a minute without a sign of life a client is
gone, although it has not said so. Else the request of a machine that lost its power would wait for
its turn, and be worked on, for nobody.
"""

_REFUSALS = {
    errno.EADDRNOTAVAIL: "no interface of this machine has that address; write one that `ip addr` "
    "shows, or 0.0.0.0 or [::] for all",
    errno.EAFNOSUPPORT: "this machine has no IPv6; write an IPv4 address",
    errno.EACCES: "that port needs a privilege; choose one from 1024 on, or give the daemon "
    "CAP_NET_BIND_SERVICE",
}


class TcpListener:
    """One listening socket and the configuration it came from.

    Made by ``open_tcp`` only. ``address`` is where it listens indeed, whatever port was asked for.
    ``close`` is idempotent.
    """

    def __init__(self, config: ListenConfig, sock: socket.socket) -> None:
        host, port = sock.getsockname()[:2]
        self.config = config
        self.address = str(TcpAddress(host, port))
        self.port: int = port
        self.socket = sock

    def close(self) -> None:
        """Stop listening."""
        self.socket.close()


def open_tcp(config: ListenConfig, address: TcpAddress) -> TcpListener:
    """Listen on an address.

    Raises ``AddressInUse`` if another program does, ``OperatorError`` for all else that the
    operator must mend.
    """
    # The literal address is turned into what bind takes, the number of an interface included.
    family, *_, name = socket.getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
    )[0]
    sock: socket.socket | None = None
    try:
        sock = socket.socket(family, socket.SOCK_STREAM)
        _prepare(sock)
        sock.bind(name)
        sock.listen(BACKLOG)
        sock.settimeout(0)
        return TcpListener(config, sock)
    except OSError as error:
        if sock is not None:
            sock.close()
        raise _refusal(address, error) from error


def _prepare(sock: socket.socket) -> None:
    # Connections of a daemon that has ended are no obstacle to the next one; its socket would be.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if sock.family is socket.AF_INET6:
        # So that [::] and 0.0.0.0 mean the same on every machine: of each family all addresses.
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    look_for_the_gone(sock)


def look_for_the_gone(sock: socket.socket) -> None:
    """Have the kernel ask silent clients whether they are still there; see `KEEPALIVE_IDLE`."""
    # Accepted sockets inherit these.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_IDLE)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_INTERVAL)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_PROBES)


def _refusal(address: TcpAddress, error: OSError) -> OperatorError:
    if error.errno == errno.EADDRINUSE:
        return AddressInUse(
            f"cannot listen on {address}: another program does; stop that one, or change "
            "listen.address"
        )
    why = _REFUSALS.get(error.errno or 0)
    return OperatorError(
        f"cannot listen on {address}: {why or f'{error.strerror}; change listen.address'}"
    )
