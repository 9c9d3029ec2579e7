"""The HTTP front on a real socket, with a fake daemon behind it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio

from supervisord_llm.api.listeners import open_listeners
from supervisord_llm.api.server import serve
from supervisord_llm.config.schema import ListenConfig
from supervisord_llm.telemetry.ring import Ring
from tests.api.fakes import FakeDaemon, FakePool


@dataclass
class Door:
    """A front that serves on ``address``, and what is behind it."""

    address: str
    daemon: FakeDaemon
    http: httpx.AsyncClient
    server: trio.CancelScope = field(default_factory=trio.CancelScope)
    ended: trio.Event = field(default_factory=trio.Event)

    @property
    def pool(self) -> FakePool:
        """The one pool."""
        return self.daemon.pool

    @property
    def path(self) -> Path:
        """Of a Unix listener."""
        return Path(self.address.removeprefix("unix:"))

    async def connect(self) -> trio.SocketStream:
        """Open a bare connection."""
        if self.address.startswith("unix:"):
            return await trio.open_unix_socket(self.path)
        return await trio.open_tcp_stream("127.0.0.1", self.port)

    @property
    def port(self) -> int:
        """Of a TCP listener."""
        return int(self.address.rpartition(":")[2])

    def close(self) -> None:
        """Cancel the server, as the daemon does at its end."""
        self.server.cancel()


OpenDoor = Callable[..., AbstractAsyncContextManager[Door]]


@pytest.fixture
def open_door(tmp_path: Path) -> OpenDoor:
    """Return a context manager that serves.

    Its arguments are those of ``ListenConfig``, by default with an address in ``tmp_path``, and how
    many events the ring holds.
    """

    async def run(
        opened: Door, config: ListenConfig, *, task_status: trio.TaskStatus[None]
    ) -> None:
        with opened.server, open_listeners([config]) as listeners:
            opened.address = listeners[0].address
            async with trio.open_nursery() as nursery:
                await nursery.start(serve, opened.daemon.front(), listeners)
                task_status.started()
        opened.ended.set()

    @asynccontextmanager
    async def door(*, ring_events: int = 1000, **listen: Any) -> AsyncIterator[Door]:
        path = tmp_path / "c.sock"
        daemon = FakeDaemon(ring=Ring(ring_events))
        config = ListenConfig(**{"address": f"unix:{path}", **listen})
        transport = httpx.AsyncHTTPTransport(uds=str(path))
        async with (
            httpx.AsyncClient(transport=transport, base_url="http://daemon") as http,
            trio.open_nursery() as nursery,
        ):
            opened = Door(config.address, daemon, http)
            await nursery.start(run, opened, config)
            with trio.fail_after(20):
                yield opened
            opened.close()

    return door


@pytest.fixture
async def door(open_door: OpenDoor) -> AsyncIterator[Door]:
    """A door with the default configuration."""
    async with open_door() as opened:
        yield opened
