"""What a service manager gives a service: a socket to report to, a watchdog, sockets to listen on.

The protocols are sd_notify(3), sd_watchdog_enabled(3) and sd_listen_fds(3), which are a datagram
and a few environment variables; so no library is needed, and without these variables nothing here
does anything. What is taken is removed from the environment: whoever inherited it could speak, or
listen, in the daemon's name.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, MutableMapping

import msgspec

FIRST_FD = 3
"""The first descriptor that is passed (``SD_LISTEN_FDS_START``)."""

VARIABLES = (
    "LISTEN_FDNAMES",
    "LISTEN_FDS",
    "LISTEN_PID",
    "NOTIFY_SOCKET",
    "WATCHDOG_PID",
    "WATCHDOG_USEC",
)
"""What a service manager sets for one process alone."""


class PassedSocket(msgspec.Struct, frozen=True):
    """A descriptor that was passed, and the name that its unit gives it."""

    name: str
    """``FileDescriptorName=``, by default the unit's name; empty if none was told."""
    fd: int
    """Open, and not inherited by anything that is started."""


class NotifySocket:
    """Where the service manager hears what becomes of the service."""

    def __init__(self, address: str) -> None:
        """Prepare to write to a Unix socket: a path, or ``@`` and a name without one."""
        # An abstract name begins with a zero byte, which no environment variable can hold.
        self._address = b"\0" + os.fsencode(address[1:]) if address[0] == "@" else address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)

    def send(self, text: str) -> bool:
        """Send assignments, one per line (sd_notify(3)); never waits, never raises.

        Returns:
            Whether it was taken; if not, nobody has heard anything of it.
        """
        data = text.encode("utf-8", "backslashreplace")
        flags = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL
        try:
            self._socket.sendto(data, flags, self._address)
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Let go of the socket."""
        self._socket.close()


class Service(msgspec.Struct, frozen=True):
    """What this process was given; all of it is empty where there is no service manager."""

    notify_address: str | None = None
    """Where to report to (`NotifySocket`)."""
    watchdog: float | None = None
    """The service is ended when nothing was reported for so many seconds."""
    sockets: tuple[PassedSocket, ...] = ()

    def notify_socket(self) -> NotifySocket | None:
        """A socket to report to, if somebody wants to hear; close it."""
        return None if self.notify_address is None else NotifySocket(self.notify_address)


def take(environ: MutableMapping[str, str], *, first_fd: int = FIRST_FD) -> Service:
    """Read what was given to this process, and remove it from the environment.

    A value that makes no sense counts as none: it is not the daemon's place to judge its manager.

    Args:
        environ: the process's environment.
        first_fd: the number of the first passed descriptor.
    """
    given = {name: environ.pop(name) for name in VARIABLES if name in environ}
    address = given.get("NOTIFY_SOCKET", "")
    return Service(
        notify_address=address if address[:1] in {"/", "@"} and len(address) > 1 else None,
        watchdog=_watchdog(given),
        sockets=tuple(_sockets(given, first_fd)),
    )


def stderr_is_journal(environ: Mapping[str, str], fd: int = 2) -> bool:
    """Whether a descriptor is the stream to the journal that the service manager opened for it."""
    device, _, inode = environ.get("JOURNAL_STREAM", "").partition(":")
    try:
        found = os.fstat(fd)
    except OSError:
        return False
    return (device, inode) == (str(found.st_dev), str(found.st_ino))


def _watchdog(given: Mapping[str, str]) -> float | None:
    microseconds = _number(given.get("WATCHDOG_USEC"))
    for_us = given.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
    return microseconds / 1e6 if microseconds and for_us else None


def _sockets(given: Mapping[str, str], first_fd: int) -> list[PassedSocket]:
    # The variables may have been inherited from a service that this process is not.
    if given.get("LISTEN_PID") != str(os.getpid()):
        return []
    count = _number(given.get("LISTEN_FDS"))
    names = given.get("LISTEN_FDNAMES", "").split(":")
    passed = []
    for index in range(count):
        fd = first_fd + index
        try:
            os.set_inheritable(fd, False)  # noqa: FBT003 - its only form
        except OSError:  # fewer were passed than was said
            break
        passed.append(PassedSocket(names[index] if index < len(names) else "", fd))
    return passed


def _number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 19 else 0
