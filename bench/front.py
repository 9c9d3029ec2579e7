"""The OpenAI routes: requests per second, the time to the first byte, and slow readers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec

from bench.figures import Figure, Spread, held, paired
from bench.front_client import TOKENS, Caller, beginnings, chat, prompt
from bench.processes import BenchError, Daemon, cpu_seconds, daemon, floor, result
from bench.rounds import Rounds, rounds
from bench.sizes import Sizes

PACES = {1: 80, 16: 80, 256: 5}
"""By the number of clients: the tokens per second of each, where the first byte is timed.

So 16 clients and 256 alike make 80 requests a second, evenly; what they wait for is not the queue
of a daemon that has more to do than it can.
"""

SLOW_READERS = 50
SLOW_MOST = 1.1
"""Times what it is without slow readers that a fast client's 99th percentile may be with them."""
_SLOW_LISTEN = 'send_timeout = "5m"\n'
"""Otherwise a client that is so far behind would be cut off in a long measurement."""


def http(folder: Path, sizes: Sizes) -> Iterator[Figure]:
    """Chat completions from 1, 16 and 256 clients, with as many workers; then slow readers."""
    for clients in PACES:
        with daemon(folder / f"http{clients}", workers=clients) as running:
            for streamed in (False, True):
                yield from _rate(running, clients, sizes, streamed=streamed)
                yield _first_byte(running, clients, sizes, streamed=streamed)
    yield _beside_slow_readers(folder / "slow", sizes)


def _rate(running: Daemon, clients: int, sizes: Sizes, *, streamed: bool) -> Iterator[Figure]:
    ours, theirs, cpu = [], [], []
    wanted = max(sizes.http_requests, 2 * clients)
    for _ in range(sizes.repeats):
        theirs.append(_direct(clients, wanted, 0, streamed=streamed).rate)
        before = cpu_seconds(running.pid)
        ours.append(_through(running, clients, wanted, 0, streamed=streamed).rate)
        cpu.append((cpu_seconds(running.pid) - before) * 1000 / wanted)
    name = _name(clients, streamed=streamed)
    yield Figure(
        section="http",
        name=f"{name}, as fast as they are answered",
        unit="requests/s",
        measured=Spread.of(ours),
        floor=Spread.of(theirs),
        ratio=paired(ours, theirs),
    )
    yield Figure(
        section="http",
        name=f"{name}, daemon's CPU",
        unit="ms/request",
        measured=Spread.of(cpu),
    )


def _first_byte(running: Daemon, clients: int, sizes: Sizes, *, streamed: bool) -> Figure:
    pace = PACES[clients]
    wanted = clients * max(round(sizes.http_seconds * pace / TOKENS), 1)
    theirs = Spread.of(_direct(clients, wanted, pace, streamed=streamed).waits)
    ours = Spread.of(_through(running, clients, wanted, pace, streamed=streamed).waits)
    added = f"adds {ours.p50 - theirs.p50:.2f} at p50, {ours.p99 - theirs.p99:.2f} at p99"
    return Figure(
        section="http",
        name=f"{_name(clients, streamed=streamed)}, first byte ({added})",
        unit="ms",
        measured=ours,
        floor=theirs,
    )


def _through(running: Daemon, clients: int, wanted: int, pace: int, *, streamed: bool) -> Rounds:
    request = chat(prompt(pace), streamed=streamed)
    with ExitStack() as stack:
        callers = [
            Caller(running.socket, request, streamed=streamed, stack=stack) for _ in range(clients)
        ]
        return rounds(callers, wanted, delays=beginnings(clients, pace))


def _direct(clients: int, wanted: int, pace: int, *, streamed: bool) -> Rounds:
    found = result(floor("asked", clients, wanted, pace, "first" if streamed else "last"))
    return msgspec.convert(found, Rounds)


def _beside_slow_readers(folder: Path, sizes: Sizes) -> Figure:
    alone, beside = [], []
    with daemon(folder, workers=SLOW_READERS + 1, listen=_SLOW_LISTEN) as running:
        for _ in range(sizes.repeats):
            alone.append(_fast(running, sizes))
            with _slow_readers(running):
                beside.append(_fast(running, sizes))
    ratio = paired(beside, alone)
    return Figure(
        section="http",
        name=f"p99 of one client's whole streams beside {SLOW_READERS} slow readers (floor: alone)",
        unit="ms",
        measured=Spread.of(beside),
        floor=Spread.of(alone),
        ratio=ratio,
        targets=[held("ratio", ratio.p50, SLOW_MOST, "")],
    )


def _fast(running: Daemon, sizes: Sizes) -> float:
    found = _through(running, 1, sizes.http_fast, 0, streamed=True)
    _wait_finished(running, sizes.http_fast)
    return Spread.of(found.answers).p99


@contextmanager
def _slow_readers(running: Daemon) -> Iterator[None]:
    """Have clients that are behind, and see that they were so until the end."""
    argv = [sys.executable, "-m", "bench.slow_readers", running.socket, SLOW_READERS]
    with subprocess.Popen(
        [str(each) for each in argv], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as readers:
        assert readers.stdout is not None
        try:
            if readers.stdout.readline() != b"ready\n":
                raise BenchError("the slow readers failed; see above")
            # The workers have written everything: what is measured is to wait, not to write.
            _wait_finished(running, SLOW_READERS)
            yield
        finally:
            behind = result(readers)
        if behind < SLOW_READERS:
            raise BenchError(f"{SLOW_READERS - behind} slow readers came to the end; not slow")


def _wait_finished(running: Daemon, count: int) -> None:
    for _ in range(count):
        running.wait_event("request.finished")


def _name(clients: int, *, streamed: bool) -> str:
    who = "1 client" if clients == 1 else f"{clients} clients"
    return f"{who}, {'streams' if streamed else 'whole answers'}"
