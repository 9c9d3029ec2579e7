"""A service manager that only listens."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness import SECONDS


class Manager:
    """The socket that a daemon reports to, and what it has said."""

    def __init__(self, folder: Path) -> None:
        """Listen in a folder."""
        self.address = str(folder / "notify")
        self.said: list[str] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self.address)
        self._socket.settimeout(0)

    def read(self) -> list[str]:
        """All that was said so far, one message after the other."""
        while True:
            try:
                self.said.append(self._socket.recv(65536).decode())
            except BlockingIOError:
                return self.said

    def has(self, text: str) -> bool:
        """Whether a message is this one, or has begun with it if it ends in ``…``."""
        begins = text.endswith("…")
        messages = self.read()
        return any(each.startswith(text[:-1]) if begins else each == text for each in messages)

    def wait(self, *texts: str) -> None:
        """Wait, in a process of its own, until each of these messages has come; see `has`."""
        self.wait_for(lambda: all(self.has(text) for text in texts), " and ".join(texts))

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until what was said is as it should be."""
        deadline = time.monotonic() + SECONDS
        while not condition():
            if time.monotonic() >= deadline:
                pytest.fail(f"timed out waiting for {what}; there was {self.said}")
            select.select([self._socket], [], [], 0.1)

    def close(self) -> None:
        """Listen no more."""
        self._socket.close()
