"""Where a listener listens: ``unix:PATH`` or ``tcp:HOST:PORT``, read and judged as text.

A host is a literal address or ``localhost``, which is 127.0.0.1 here. Other names were not taken:
what they resolve to may change, and with it who can reach the listener.
"""

from __future__ import annotations

import ipaddress
import os
import re

import msgspec

from supervisord_llm.config.units import show

SUN_PATH_MAX = 107
"""Bytes of a path in ``sockaddr_un``, its final zero byte excluded (unix(7))."""

_TCP = re.compile(r"tcp:(?:\[(?P<six>[^\[\]]+)\]|(?P<four>[^:\[\]]*)):(?P<port>[0-9]{1,5})")
_UNIX_FORM = 'write "unix:" and the absolute path of a socket'
_TCP_FORM = (
    '"tcp:", an IP address or localhost, and a port, such as "tcp:127.0.0.1:8000" or '
    '"tcp:[::1]:8000"'
)


class UnixAddress(msgspec.Struct, frozen=True):
    """A Unix socket's absolute path."""

    path: str


class TcpAddress(msgspec.Struct, frozen=True):
    """An IP address and a port; port 0 is any that is free, chosen by the kernel."""

    host: str
    """Literal, without brackets."""
    port: int

    @property
    def loopback(self) -> bool:
        """Whether only this machine can connect."""
        return ipaddress.ip_address(self.host).is_loopback

    def __str__(self) -> str:
        """As the configuration writes it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"tcp:{host}:{self.port}"


Address = UnixAddress | TcpAddress


def parse_address(text: str) -> Address:
    """Read a listener's address. Raises ``ValueError`` with what is wrong and what to write."""
    if text.startswith("tcp:"):
        return _tcp(text)
    path = text.removeprefix("unix:")
    if path == text or not os.path.isabs(path):  # noqa: PTH117 - text that may be anything
        form = _UNIX_FORM if path != text else f"{_UNIX_FORM}, or {_TCP_FORM}"
        raise ValueError(f"cannot listen on {show(text)}; {form}")
    if (length := len(os.fsencode(path))) > SUN_PATH_MAX:
        raise ValueError(
            f"cannot listen on {show(text)}: the path has {length} bytes, and a Unix socket's "
            f"may have {SUN_PATH_MAX}; choose a shorter one"
        )
    return UnixAddress(os.path.normpath(path))


def _tcp(text: str) -> TcpAddress:
    match = _TCP.fullmatch(text)
    if match is None:
        raise ValueError(f"cannot listen on {show(text)}; write {_TCP_FORM}")
    if (port := int(match["port"])) > 65535:
        raise ValueError(f"cannot listen on {show(text)}: a port is at most 65535; write one")
    if match["four"] == "localhost":
        return TcpAddress("127.0.0.1", port)
    try:
        host = (
            ipaddress.IPv4Address(match["four"])
            if match["six"] is None
            else ipaddress.IPv6Address(match["six"])
        )
    except ValueError:
        host_text = match["four"] if match["six"] is None else match["six"]
        raise ValueError(
            f"cannot listen on {show(text)}: {show(host_text)} is no IP address; write one, such "
            "as 127.0.0.1 or, in brackets, [::1], or localhost; 0.0.0.0 and [::] are all of this "
            "machine's"
        ) from None
    if isinstance(host, ipaddress.IPv6Address) and host.ipv4_mapped is not None:
        raise ValueError(
            f"cannot listen on {show(text)}: it is an IPv4 address in disguise; write "
            f"tcp:{host.ipv4_mapped}:{port}"
        )
    return TcpAddress(str(host), port)
