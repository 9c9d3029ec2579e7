"""Sockets that the service manager listens on and hands over, instead of ones of our own.

They outlive the daemon: whoever connects while it is being restarted waits instead of being
refused. Hence they are neither made nor unlinked here, and their owner and mode are the unit's
business. What the configuration says of an address stays true, though: a passed socket may not turn
a listener for this machine into one for others.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence

import msgspec

from supervisord_llm.api.tcp_listener import TcpListener, look_for_the_gone
from supervisord_llm.config.addresses import Address, TcpAddress, UnixAddress, parse_address
from supervisord_llm.config.problems import ConfigWarning
from supervisord_llm.config.schema import ListenConfig
from supervisord_llm.config.units import show
from supervisord_llm.host.systemd import PassedSocket


class PassedListener:
    """A Unix socket that was handed over, and the listener of the configuration that it is for."""

    def __init__(self, config: ListenConfig, sock: socket.socket) -> None:
        """Take the socket; ``close`` is idempotent."""
        self.config = config
        self.address = f"unix:{sock.getsockname()}"
        self.socket = sock

    def close(self) -> None:
        """Take no more connections; they wait for the next daemon."""
        self.socket.close()


class Passed(msgspec.Struct, frozen=True):
    """What became of the sockets that were passed."""

    listeners: dict[int, PassedListener | TcpListener]
    """By the index of the listener in the configuration."""
    problems: list[str]
    """Why the daemon cannot start with them, a sentence each."""
    warnings: list[ConfigWarning]

    def close(self) -> None:
        """Let go of the sockets."""
        for listener in self.listeners.values():
            listener.close()


def adopt(configs: Sequence[ListenConfig], passed: Sequence[PassedSocket]) -> Passed:
    """Find the listener that each passed socket is for: by its name, else by its address.

    Args:
        configs: the listeners of a valid configuration.
        passed: the sockets; each is closed unless it has become a listener.
    """
    found = Passed({}, [], [])
    for each in passed:
        try:
            sock = socket.socket(fileno=each.fd)
        except OSError:
            os.close(each.fd)
            found.problems.append(f"{_named(each)}: it is no socket; pass sockets only")
            continue
        if (problem := _adopt(found, configs, each, sock)) is not None:
            found.problems.append(f"{_named(each)}: {problem}")
            sock.close()
    for index, config in enumerate(configs):
        if passed and config.name and index not in found.listeners:
            warning = ConfigWarning(
                "listen",
                f"the service manager passed no socket for listen[{index}], whose name is "
                f"{show(config.name)}, so the daemon made that one itself",
                f"start a .socket unit with FileDescriptorName={config.name}, or remove the name",
            )
            found.warnings.append(warning)
    return found


def _adopt(
    found: Passed, configs: Sequence[ListenConfig], each: PassedSocket, sock: socket.socket
) -> str | None:
    """Make a listener of a socket; otherwise the reason why not, and what to do."""
    if sock.type != socket.SOCK_STREAM or not sock.getsockopt(
        socket.SOL_SOCKET, socket.SO_ACCEPTCONN
    ):
        return "nobody can connect to it; use ListenStream= and Accept=no"
    address = _address(sock)
    if address is None:
        return "its address is of a kind that is not served; use the path of a socket, or TCP"
    wanted = [parse_address(config.address) for config in configs]
    by_name = [index for index, config in enumerate(configs) if each.name == config.name != ""]
    by_address = [index for index, other in enumerate(wanted) if other == address]
    index = next(iter([*by_name, *by_address]), None)
    where = _shown(address)
    if index is None:
        return f"no [[listen]] has its name or its address, {where}; add one, or stop passing it"
    if index in found.listeners:
        return f"listen[{index}] has a socket already; pass one, or give this one another name"
    if wanted[index] != address and not isinstance(wanted[index], type(address)):
        return f"its address is {where}, and that of listen[{index}] is of another kind; correct it"
    if wanted[index] != address and isinstance(address, TcpAddress):
        # The keys that the configuration asks for were judged by who can reach its address.
        return f"its address is {where}, and that of listen[{index}] is another; write the same"
    sock.settimeout(0)
    if isinstance(address, TcpAddress):
        look_for_the_gone(sock)
        found.listeners[index] = TcpListener(configs[index], sock)
    else:
        found.listeners[index] = PassedListener(configs[index], sock)
    return None


def _address(sock: socket.socket) -> Address | None:
    name = sock.getsockname()
    if sock.family in {socket.AF_INET, socket.AF_INET6}:
        return TcpAddress(name[0], name[1])
    # One without a path has no permissions either: everybody could use it.
    if sock.family == socket.AF_UNIX and isinstance(name, str) and name.startswith("/"):
        return UnixAddress(os.path.normpath(name))
    return None


def _shown(address: Address) -> str:
    return str(address) if isinstance(address, TcpAddress) else f"unix:{address.path}"


def _named(each: PassedSocket) -> str:
    return f"cannot use the socket {show(each.name)} that the service manager passed"
