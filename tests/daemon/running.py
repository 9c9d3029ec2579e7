"""A daemon in a process of its own, for tests to talk to."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.harness import QUICK, SCRIPTS, SECONDS, write_config

PROGRAM = SCRIPTS / "supervisord-llm"
"""What is started as the daemon."""


class Running:
    """A daemon in a process of its own, and an HTTP client for its socket."""

    def __init__(self, folder: Path, process: subprocess.Popen[bytes], log: Path) -> None:
        """Adopt a started daemon."""
        self.process = process
        self.log = log
        self.socket = folder / "control.sock"
        self.client = httpx.Client(
            transport=httpx.HTTPTransport(uds=str(self.socket)),
            base_url="http://daemon",
            timeout=SECONDS,
        )

    def events(self, name: str) -> list[dict[str, object]]:
        """The events of a name that are in the log so far."""
        lines = [
            json.loads(line)
            for line in self.log.read_text().splitlines(keepends=True)
            if line.endswith("\n")
        ]
        return [event for event in lines if event["event"] == name]

    def wait(self, name: str, count: int = 1) -> dict[str, object]:
        """Wait until an event has been logged ``count`` times."""
        until(
            lambda: len(self.events(name)) >= count,
            lambda: f"{name} in {self.log.read_text()}",
        )
        return self.events(name)[count - 1]

    def worker_pids(self) -> list[int]:
        """The pids of the workers."""
        workers = self.client.get("/api/v1/workers").json()["workers"]
        return [worker["pid"] for worker in workers]


def until(condition: Callable[[], bool], what: str | Callable[[], str]) -> None:
    """Wait for something that another process does; ``what`` tells what that is, at the end."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        if time.monotonic() >= deadline:
            pytest.fail(f"timed out waiting for {what if isinstance(what, str) else what()}")
        time.sleep(0.01)


@contextmanager
def daemon(
    folder: Path, options: str = "", *, workers: int = 1, settings: str = QUICK
) -> Iterator[Running]:
    """Run a daemon with sim workers; see `running`."""
    with running(folder, write_config(folder, options, workers=workers, settings=settings)) as it:
        yield it


@contextmanager
def running(folder: Path, config: Path) -> Iterator[Running]:
    """Run a daemon; end it by SIGTERM, and twice if it is in the middle of something."""
    log = folder / f"log.{time.monotonic_ns()}"
    with log.open("wb") as stderr:
        process = subprocess.Popen([PROGRAM, "run", "--config", config], stderr=stderr)
    with ending(Running(folder, process, log)) as made:
        made.wait("daemon.ready")
        yield made


@contextmanager
def ending(made: Running) -> Iterator[Running]:
    """End a daemon with the block: by SIGTERM, by a second one, by SIGKILL at the very last."""
    process = made.process
    try:
        yield made
    finally:
        made.client.close()
        if process.poll() is None:
            process.terminate()
            time.sleep(0.05)
            process.terminate()
        try:
            process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
