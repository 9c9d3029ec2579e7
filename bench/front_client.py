"""A client of the OpenAI routes that only looks for an answer's beginning and its end."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path

from bench.client import END, connect, post
from bench.pacing import SPREAD_SECONDS, spread
from bench.processes import BenchError

TOKENS = 16
"""Of each answer."""
_COUNTED = b'"completion_tokens":%d,' % TOKENS


def prompt(tokens_per_second: int) -> str:
    """What makes a sim worker write so many tokens, as fast as it can for 0."""
    pace = f" sim.tps={tokens_per_second}" if tokens_per_second else ""
    return f"go sim.tokens={TOKENS}{pace}"


def beginnings(clients: int, tokens_per_second: int) -> list[float]:
    """Seconds after which each client asks first: all over an answer's time; at once for 0."""
    if not tokens_per_second:
        return []
    answer = TOKENS / tokens_per_second
    return [delay / SPREAD_SECONDS * answer for delay in spread(clients)]


def chat(content: str, *, streamed: bool) -> bytes:
    """The bytes that ask for a chat completion."""
    fields = {"stream": True, "stream_options": {"include_usage": True}} if streamed else {}
    messages = [{"role": "user", "content": content}]
    body = {"model": "bench", "messages": messages, **fields}
    return post("/v1/chat/completions", body)


class Caller:
    """A `rounds.Party` with a connection that it keeps for as long as the daemon does."""

    def __init__(self, path: Path, request: bytes, *, streamed: bool, stack: ExitStack) -> None:
        """Connect; the stack closes the connection."""
        self._path = path
        self._request = request
        self._streamed = streamed
        self._stack = stack.enter_context(ExitStack())
        self._socket: socket.socket | None = None
        self._got = b""

    def ask(self) -> int:
        """Send the request."""
        if self._socket is None:
            self._socket = self._stack.enter_context(connect(self._path))
        self._got = b""
        self._socket.sendall(self._request)
        return self._socket.fileno()

    def read(self) -> tuple[bool, bool]:
        """Read what is there. Raises ``BenchError`` for an answer that is not whole."""
        assert self._socket is not None
        piece = self._socket.recv(65536)
        self._got += piece
        if not piece:
            raise BenchError(f"the answer ended early: {self._got[-300:]!r}")
        if not self._ended():
            return True, False
        head = self._got.partition(b"\r\n\r\n")[0].lower()
        if b" 200 " not in head or _COUNTED not in self._got:
            raise BenchError(f"that is no answer of {TOKENS} tokens: {self._got[-600:]!r}")
        if b"connection: close" in head:
            # As after each thousand requests.
            self._stack.close()
            self._socket = None
        return True, True

    def _ended(self) -> bool:
        if self._streamed and b" 200 " in self._got[:16]:
            return self._got.endswith(END)
        head, _, body = self._got.partition(b"\r\n\r\n")
        length = head.lower().partition(b"content-length:")[2].split()
        return bool(length) and len(body) >= int(length[0])
