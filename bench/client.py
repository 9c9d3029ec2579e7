"""A client that is never the bottleneck: raw sockets, and counting instead of parsing.

A JSON decoder would take longer for a token than the daemon does. Every line of a reply begins with
the only brace of a token's line, so braces are counted while the stream runs, and at its end the
count is held against the usage that the daemon reports. `bench.floors.flood` shows how much this
client could take.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from bench.processes import PATIENCE, BenchError

TOKEN_LINE = b'{"event":"token","text":"t12345 "}\n'
"""How a token looks in a reply."""

_BUFFER_SIZE = 1 << 18
_TAIL_SIZE = 4096
END = b"\r\n0\r\n\r\n"
"""How a chunked reply ends."""


def post(path: str, body: object = None) -> bytes:
    """The bytes of a POST."""
    data = b"" if body is None else msgspec.json.encode(body)
    head = f"POST {path} HTTP/1.1\r\nHost: daemon\r\nContent-Length: {len(data)}\r\n\r\n"
    return head.encode() + data


def get(path: str) -> bytes:
    """The bytes of a GET."""
    return f"GET {path} HTTP/1.1\r\nHost: daemon\r\n\r\n".encode()


def generate(prompt: str, **fields: object) -> bytes:
    """The bytes that ask pool ``bench`` for a generation."""
    return post("/api/v1/generate", {"pool": "bench", "prompt": prompt, **fields})


@contextmanager
def connect(path: Path) -> Iterator[socket.socket]:
    """Connect to a daemon."""
    with socket.socket(socket.AF_UNIX) as made:
        made.settimeout(PATIENCE)
        made.connect(str(path))
        yield made


def finished(tail: bytes) -> dict[str, Any]:
    """The ``finished`` line in the last bytes of a reply. Raises ``BenchError`` without one."""
    at = tail.find(b'{"event":"finished"')
    if at < 0:
        raise BenchError(f"the reply has no record; it ends with {tail[-300:]!r}")
    record: dict[str, Any] = msgspec.json.decode(tail[at : tail.index(b"\n", at)])
    return record


class Reader:
    """Reads a connection, or a pipe, up to what is waited for; ``read`` blocks."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read = read
        self._got = bytearray()

    def until(self, mark: bytes) -> bytes:
        """Wait until ``mark`` has come, and take everything up to its end."""
        while (at := self._got.find(mark)) < 0:
            self._more()
        return self._take(at + len(mark))

    def message(self) -> bytes:
        """Wait for a whole reply that has a length, and take its body."""
        head = self.until(b"\r\n\r\n").lower()
        size = int(head.partition(b"content-length:")[2].split()[0])
        while len(self._got) < size:
            self._more()
        return self._take(size)

    def _more(self) -> None:
        piece = self._read(65536)
        if not piece:
            raise BenchError(f"the reply ended early: {bytes(self._got[-300:])!r}")
        self._got += piece

    def _take(self, size: int) -> bytes:
        taken = bytes(self._got[:size])
        del self._got[:size]
        return taken


class Counter:
    """Counts the lines of one reply, and keeps its end."""

    def __init__(self) -> None:
        self.braces = 0
        self.marks = 0
        """Tokens, but for those whose mark was cut by the end of a read: for rates only."""
        self.tail = b""

    def take(self, data: memoryview) -> bool:
        """Take what one read brought; whether the reply has ended with it."""
        piece = bytes(data)
        self.braces += piece.count(b"{")
        self.marks += piece.count(b'"token"')
        self.tail = (self.tail + piece[-_TAIL_SIZE:])[-_TAIL_SIZE:]
        return self.tail.endswith(END)

    def tokens(self) -> int:
        """The tokens of a whole reply. Raises ``BenchError`` if the daemon counted others."""
        at = self.tail.find(b'{"event":"finished"')
        record = finished(self.tail)
        if record["outcome"] != "completed":
            raise BenchError(f"the request was not completed: {record}")
        counted = self.braces - 2 - self.tail[at:].count(b"{")  # `accepted` and `started`
        if counted != record["usage"]["generated_tokens"]:
            raise BenchError(f"{counted} tokens came, but the record says {record['usage']}")
        return counted


def stream_all(path: Path, requests: Sequence[bytes]) -> tuple[int, float]:
    """Send requests at once and read all replies; the tokens, and the seconds until the last."""
    counters = [Counter() for _ in requests]
    with ExitStack() as stack:
        sockets = [stack.enter_context(connect(path)) for _ in requests]
        began = time.monotonic()
        for stream, request in zip(sockets, requests, strict=True):
            stream.sendall(request)
        drain(sockets, counters)
        seconds = time.monotonic() - began
    return sum(counter.tokens() for counter in counters), seconds


def drain(
    sockets: Sequence[socket.socket], counters: Sequence[Counter], *, seconds: float | None = None
) -> None:
    """Read replies, or streams that end by being closed: to their ends, or for so long."""
    until = None if seconds is None else time.monotonic() + seconds
    buffer = bytearray(_BUFFER_SIZE)
    view = memoryview(buffer)
    with selectors.DefaultSelector() as selector:
        for stream, counter in zip(sockets, counters, strict=True):
            selector.register(stream, selectors.EVENT_READ, counter)
        while selector.get_map():
            left = PATIENCE if until is None else until - time.monotonic()
            if left <= 0:
                return
            ready = selector.select(left)
            if not ready and until is None:
                raise BenchError(f"nothing came for {PATIENCE:g} s")
            for key, _ in ready:
                assert isinstance(key.fileobj, socket.socket)
                size = key.fileobj.recv_into(buffer)
                counter = key.data
                if counter.take(view[:size]) or not size:
                    selector.unregister(key.fileobj)


@contextmanager
def accepting(path: Path) -> Iterator[socket.socket]:
    """Listen for floors that write to the client."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.settimeout(PATIENCE)
        listener.bind(str(path))
        listener.listen(128)
        yield listener
    path.unlink()


def accept(listener: socket.socket, count: int, stack: ExitStack) -> list[socket.socket]:
    """Take ``count`` connections, closed with the stack."""
    return [stack.enter_context(listener.accept()[0]) for _ in range(count)]
