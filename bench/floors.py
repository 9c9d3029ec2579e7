"""The least that could be done: each floor is a process of its own that does one thing.

``python -m bench.floors KIND ARGUMENT…`` writes what it measured as one line of JSON. A floor has
no queue, no bounds, no deadlines and no records; what the daemon costs beyond it is the price of
those.
"""

from __future__ import annotations

import os
import selectors
import socket
import sys
import time
from collections.abc import Callable

import msgspec
import trio

from bench.client import TOKEN_LINE
from bench.front_client import beginnings, prompt
from bench.pacing import spread
from bench.processes import cpu_seconds, resident_mib
from bench.rounds import rounds
from bench.worker import BareWorker, bare_workers

_READ_SIZE = 65536

_TERMINAL = b'"finish_reason"'
"""Only in the last line of a generation; heartbeats have a "done" too."""


class _Token(msgspec.Struct, gc=False):
    token: str


class _Lines:
    """Bytes of one worker to decoded lines; keeps the tokens, as a program with a use for them."""

    def __init__(self) -> None:
        self._decoder = msgspec.json.Decoder(_Token)
        self._rest = b""
        self.tokens = 0
        self.done = False

    def feed(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        decode = self._decoder.decode
        for line in lines:
            try:
                decode(line)
                self.tokens += 1
            except msgspec.ValidationError:
                self.done = self.done or _TERMINAL in line


def saturated(streams: str, tokens: str) -> object:
    """Tokens per second of a loop that reads the workers' pipes and decodes each line."""
    with bare_workers(int(streams)) as workers, selectors.DefaultSelector() as selector:
        for worker in workers:
            selector.register(worker.stdout, selectors.EVENT_READ, _Lines())
        began = time.monotonic()
        for worker in workers:
            worker.generate(1, f"go sim.tokens={tokens}")
        counted = 0
        running = len(workers)
        while running:
            for key, _ in selector.select():
                lines: _Lines = key.data
                lines.feed(os.read(key.fd, _READ_SIZE))
                if lines.done:
                    selector.unregister(key.fd)
                    counted += lines.tokens
                    running -= 1
        return {"tokens": counted, "seconds": time.monotonic() - began}


def paced(path: str, streams: str, prompt: str) -> object:
    """Run a trio loop that reads each pipe and writes chunks to a Unix socket."""
    with bare_workers(int(streams)) as workers:
        return trio.run(_relay_all, path, workers, prompt)


async def _relay_all(path: str, workers: list[BareWorker], prompt: str) -> None:
    sockets = [await trio.open_unix_socket(path) for _ in workers]
    async with trio.open_nursery() as nursery:
        for delay, worker, client in zip(spread(len(workers)), workers, sockets, strict=True):
            nursery.start_soon(_relay, delay, worker, client, prompt)


async def _relay(delay: float, worker: BareWorker, client: trio.SocketStream, prompt: str) -> None:
    async with client:
        await trio.sleep(delay)
        worker.generate(1, prompt)
        done = False
        while not done:
            await trio.lowlevel.wait_readable(worker.stdout)
            data = os.read(worker.stdout, _READ_SIZE)
            await client.send_all(b"%x\r\n%b\r\n" % (len(data), data))
            done = _TERMINAL in data


def flood(path: str, streams: str, tokens: str) -> object:
    """Write token lines to Unix sockets as fast as they are taken: what the client can count."""
    block = TOKEN_LINE * (_READ_SIZE // len(TOKEN_LINE))
    blocks = int(tokens) // int(streams) * len(TOKEN_LINE) // len(block)
    with selectors.DefaultSelector() as selector:
        for _ in range(int(streams)):
            client = socket.socket(socket.AF_UNIX)
            client.connect(path)
            client.settimeout(0)
            selector.register(client, selectors.EVENT_WRITE, [memoryview(block * blocks)])
        while selector.get_map():
            for key, _ in selector.select():
                assert isinstance(key.fileobj, socket.socket)
                key.data[0] = key.data[0][key.fileobj.send(key.data[0][: len(block)]) :]
                if not key.data[0]:
                    selector.unregister(key.fileobj)
                    key.fileobj.close()
    return None


def first_token(count: str) -> object:
    """Milliseconds from the request to the first token, with nothing between."""
    waited: list[float] = []
    with bare_workers(1) as (worker,):
        os.set_blocking(worker.stdout, True)
        for number in range(1, int(count) + 1):
            began = time.perf_counter()
            worker.generate(number, "go sim.tokens=1")
            data = os.read(worker.stdout, _READ_SIZE)
            while b'"token"' not in data:
                data += os.read(worker.stdout, _READ_SIZE)
            waited.append((time.perf_counter() - began) * 1000)
            while _TERMINAL not in data:
                data += os.read(worker.stdout, _READ_SIZE)
    return waited


def timer(seconds: str) -> object:
    """Milliseconds that a bare sleep of ``seconds`` took."""

    async def sleep() -> float:
        began = time.perf_counter()
        await trio.sleep(float(seconds))
        return (time.perf_counter() - began) * 1000

    return trio.run(sleep)


def start() -> object:
    """Start one worker and wait for its ready line."""
    with bare_workers(1) as (worker,):
        return worker.ready.decode()


def idle(workers: str, settle: str, seconds: str) -> object:
    """Memory (MiB) and CPU (ms per second) of a trio loop that waits for idle workers."""
    with bare_workers(int(workers)) as started:
        return trio.run(_wait_idle, started, float(settle), float(seconds))


async def _wait_idle(workers: list[BareWorker], settle: float, seconds: float) -> list[float]:
    async def watch(worker: BareWorker) -> None:
        while True:
            await trio.lowlevel.wait_readable(worker.stdout)
            os.read(worker.stdout, _READ_SIZE)

    async with trio.open_nursery() as nursery:
        for worker in workers:
            nursery.start_soon(watch, worker)
        await trio.sleep(settle)
        before = cpu_seconds(os.getpid())
        await trio.sleep(seconds)
        used = cpu_seconds(os.getpid()) - before
        nursery.cancel_scope.cancel()
    return [resident_mib(os.getpid()), used * 1000 / seconds]


class _Asker:
    """A `rounds.Party` with a worker of its own."""

    def __init__(self, worker: BareWorker, prompt: str, first: bytes) -> None:
        self._worker = worker
        self._prompt = prompt
        self._first = first
        self._wire_id = 0
        self._got = b""

    def ask(self) -> int:
        self._wire_id += 1
        self._got = b""
        self._worker.generate(self._wire_id, self._prompt)
        return self._worker.stdout

    def read(self) -> tuple[bool, bool]:
        self._got += os.read(self._worker.stdout, _READ_SIZE)
        return self._first in self._got, _TERMINAL in self._got


def asked(clients: str, wanted: str, pace: str, kind: str) -> object:
    """Answers of workers that are asked anew at once; waits for the "first" token or the "last"."""
    first = b'"token"' if kind == "first" else _TERMINAL
    with bare_workers(int(clients)) as workers:
        parties = [_Asker(worker, prompt(int(pace)), first) for worker in workers]
        return rounds(parties, int(wanted), delays=beginnings(len(workers), int(pace)))


KINDS: dict[str, Callable[..., object]] = {
    each.__name__: each
    for each in (saturated, paced, flood, first_token, timer, start, idle, asked)
}


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(KINDS[sys.argv[1]](*sys.argv[2:])) + b"\n")
