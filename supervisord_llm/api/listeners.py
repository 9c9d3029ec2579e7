"""The sockets to listen on: all taken, or refused with a reason, before anything else happens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from supervisord_llm.api.inherited import PassedListener
from supervisord_llm.api.tcp_listener import TcpListener, open_tcp
from supervisord_llm.api.unix_listener import UnixListener, open_unix
from supervisord_llm.config.addresses import TcpAddress, parse_address
from supervisord_llm.config.schema import ListenConfig

Listener = UnixListener | TcpListener | PassedListener


@contextmanager
def open_listeners(
    configs: Iterable[ListenConfig],
    *,
    runtime_dir: Path | None = None,
    passed: Mapping[int, Listener] = {},
) -> Iterator[list[Listener]]:
    """Open every configured listener, or none; they are closed when the block ends.

    ``passed`` are those that are open already, by their place in the configuration.

    ``runtime_dir`` is the one folder that may be created (mode 0700) if it is missing. Raises
    ``AddressInUse`` if another program serves an address, ``OperatorError`` for all else that the
    operator must mend.
    """
    with ExitStack() as stack:
        for listener in passed.values():
            stack.callback(listener.close)
        listeners: list[Listener] = []
        for index, config in enumerate(configs):
            listeners.append(passed.get(index) or _open(config, runtime_dir))
            stack.callback(listeners[-1].close)
        yield listeners


def _open(config: ListenConfig, runtime_dir: Path | None) -> Listener:
    if config.address.startswith("tcp:"):
        address = parse_address(config.address)
        assert isinstance(address, TcpAddress)
        return open_tcp(config, address)
    return open_unix(config, runtime_dir)
