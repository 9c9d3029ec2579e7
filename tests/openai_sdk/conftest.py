"""A daemon with sim workers and a TCP listener with keys, and the library's clients for it."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from openai import AsyncOpenAI, OpenAI

from tests.daemon.running import PROGRAM, Running, running, until
from tests.harness import QUICK, SECONDS, write_config


def said(content: str) -> Any:
    """A conversation of one message."""
    return [{"role": "user", "content": content}]


@dataclass
class Served:
    """A daemon, the URL of its TCP listener, and a key for it."""

    daemon: Running
    url: str
    key: str

    def over_tcp(self, **options: Any) -> OpenAI:
        """A client as any application has it; the caller closes it."""
        settings = {"timeout": SECONDS, "max_retries": 0, "api_key": self.key, **options}
        return OpenAI(base_url=self.url, **settings)

    def over_unix(self) -> OpenAI:
        """A client of the Unix socket; the caller closes it."""
        transport = httpx2.HTTPTransport(uds=str(self.daemon.socket))
        http = httpx2.Client(transport=transport, timeout=SECONDS)
        return OpenAI(base_url="http://daemon/v1", api_key="none", http_client=http, max_retries=0)

    @asynccontextmanager
    async def asynchronous(self, way: str) -> AsyncIterator[AsyncOpenAI]:
        """A client over ``tcp`` or ``unix``, closed in the end."""
        unix = way == "unix"
        transport = httpx2.AsyncHTTPTransport(uds=str(self.daemon.socket) if unix else None)
        async with (
            httpx2.AsyncClient(transport=transport, timeout=SECONDS) as http,
            AsyncOpenAI(
                base_url="http://daemon/v1" if unix else self.url,
                api_key=self.key,
                http_client=http,
                max_retries=0,
            ) as client,
        ):
            yield client

    def wait_idle(self) -> None:
        """Wait until every worker is ready, and nothing waits or runs."""

        def idle() -> bool:
            workers = self.daemon.client.get("/api/v1/workers").json()["workers"]
            return all(each["state"] == "ready" and not each["requests"] for each in workers)

        until(idle, "idle workers")

    def wait_served(self, state: str, count: int = 1) -> None:
        """Wait until so many requests are ``running``, or ``queued``."""

        def there() -> bool:
            requests = self.daemon.client.get("/api/v1/requests").json()["requests"]
            return bool(count == sum(each["state"] == state for each in requests))

        until(there, f"{count} {state} requests")

    def since(self, name: str, seen: int) -> list[dict[str, object]]:
        """The events of a name after the first ``seen`` ones."""
        return self.daemon.events(name)[seen:]


@contextmanager
def serving(folder: Path, options: str = "", settings: str = "") -> Iterator[Served]:
    """Run a daemon with two workers, and ``settings`` of its pool ``sim``."""
    keys = folder / "keys"
    argv = [str(PROGRAM), "new-key", "alice", "--file", str(keys)]
    key = subprocess.check_output(argv, text=True, timeout=SECONDS).strip()
    config = write_config(folder, options, workers=2, settings=f"{QUICK}{settings}\n")
    listener = f'address = "tcp:127.0.0.1:0"\nserve = ["inference"]\napi_keys = "{keys}"'
    text = f'sse_keep_alive = "100ms"\n[[listen]]\n{listener}\nsse_keep_alive = "100ms"\n[pool.sim]'
    config.write_text(config.read_text().replace("[pool.sim]", text))
    with running(folder, config) as daemon:
        daemon.wait("worker.ready", 2)
        address = str(daemon.wait("daemon.listening", 2)["address"])
        yield Served(daemon, f"http://{address.removeprefix('tcp:')}/v1", key)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One daemon for the tests of a file."""
    with serving(tmp_path_factory.mktemp("served"), "--sessions=2", 'models = ["gpt-4o"]') as made:
        yield made


@pytest.fixture(params=["tcp", "unix"])
def client(request: pytest.FixtureRequest, served: Served) -> Iterator[OpenAI]:
    """The library's client, over each of both."""
    made = served.over_tcp() if request.param == "tcp" else served.over_unix()
    with made:
        yield made
