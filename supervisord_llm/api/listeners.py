"""The sockets to listen on: all taken, or refused with a reason, before anything else happens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from supervisord_llm.api.tcp_listener import TcpListener, open_tcp
from supervisord_llm.api.unix_listener import UnixListener, open_unix
from supervisord_llm.config.addresses import TcpAddress, parse_address
from supervisord_llm.config.schema import ListenConfig

Listener = UnixListener | TcpListener


@contextmanager
def open_listeners(
    configs: Iterable[ListenConfig], *, runtime_dir: Path | None = None
) -> Iterator[list[Listener]]:
    """Open every configured listener, or none; they are closed when the block ends.

    ``runtime_dir`` is the one folder that may be created (mode 0700) if it is missing. Raises
    ``AddressInUse`` if another program serves an address, ``OperatorError`` for all else that the
    operator must mend.
    """
    with ExitStack() as stack:
        listeners: list[Listener] = []
        for config in configs:
            listeners.append(_open(config, runtime_dir))
            stack.callback(listeners[-1].close)
        yield listeners


def _open(config: ListenConfig, runtime_dir: Path | None) -> Listener:
    if config.address.startswith("tcp:"):
        address = parse_address(config.address)
        assert isinstance(address, TcpAddress)
        return open_tcp(config, address)
    return open_unix(config, runtime_dir)
