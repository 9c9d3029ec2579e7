"""Tokens per second as fast as they come, and CPU time at a pace."""

from __future__ import annotations

import operator
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from bench.client import Counter, accept, accepting, connect, drain, generate, stream_all
from bench.figures import Figure, Spread, Target, held, paired
from bench.pacing import SPREAD_SECONDS, spread
from bench.processes import cpu_seconds, daemon, floor, result
from bench.sizes import Sizes

SATURATED_SHARE = 0.5
"""Of the floor that one stream must reach at least."""
PACED_MOST = 1.6
"""Times the floor's CPU time that a stream at a pace may cost."""
_MARGIN_SECONDS = 1.0
"""Streamed before and after the time that counts."""


def saturated(folder: Path, sizes: Sizes) -> Iterator[Figure]:
    """Tokens per second through ``generate``, for one stream and for eight."""
    for streams in (1, 8):
        each = sizes.saturated_tokens // streams
        ours, theirs, cpu = [], [], []
        with daemon(folder / f"saturated{streams}", workers=streams) as running:
            requests = [generate(f"go sim.tokens={each}")] * streams
            for _ in range(sizes.repeats):
                found = result(floor("saturated", streams, each))
                theirs.append(found["tokens"] / found["seconds"])
                before = cpu_seconds(running.pid)
                tokens, seconds = stream_all(running.socket, requests)
                ours.append(tokens / seconds)
                cpu.append((cpu_seconds(running.pid) - before) * 1e7 / tokens)
        ratio = paired(ours, theirs)
        share = Target(f"ratio ≥ {SATURATED_SHARE:g}", ratio.p50 >= SATURATED_SHARE)
        yield Figure(
            section="saturated",
            name=_streams(streams),
            unit="tokens/s",
            measured=Spread.of(ours),
            floor=Spread.of(theirs),
            ratio=ratio,
            targets=[share] if streams == 1 else [],
        )
        yield Figure(
            section="saturated",
            name=f"{_streams(streams)}, daemon's CPU",
            unit="ms/10,000 tokens",
            measured=Spread.of(cpu),
        )
        yield Figure(
            section="saturated",
            name=f"{_streams(streams)}, what the client can take",
            unit="tokens/s",
            measured=Spread.of([_flood(folder, streams, sizes) for _ in range(sizes.repeats)]),
        )


def _flood(folder: Path, streams: int, sizes: Sizes) -> float:
    path = folder / "flood.sock"
    with accepting(path) as listener, ExitStack() as stack:
        source = floor("flood", path, streams, 10 * sizes.saturated_tokens)
        sockets = accept(listener, streams, stack)
        counters = [Counter() for _ in sockets]
        began = time.monotonic()
        drain(sockets, counters)
        seconds = time.monotonic() - began
        result(source)
    return sum(counter.braces for counter in counters) / seconds


def paced(folder: Path, sizes: Sizes) -> Iterator[Figure]:
    """CPU time for tokens that come one by one, while all streams run."""
    for streams, rate in ((1, 500), (64, 50)):
        each = round(rate * (sizes.paced_seconds + 2 * (_MARGIN_SECONDS + SPREAD_SECONDS)))
        prompt = f"go sim.tokens={each} sim.tps={rate}"
        request = generate(prompt)
        ours, theirs = [], []
        with daemon(folder / f"paced{streams}", workers=streams) as running:
            for _ in range(sizes.repeats):
                theirs.append(_relayed(folder, streams, prompt, sizes.paced_seconds))
                with ExitStack() as stack:
                    sockets = [stack.enter_context(connect(running.socket)) for _ in range(streams)]
                    began = time.monotonic()
                    for delay, stream in sorted(
                        zip(spread(streams), sockets, strict=True), key=operator.itemgetter(0)
                    ):
                        time.sleep(max(0.0, began + delay - time.monotonic()))
                        stream.sendall(request)
                    counters = [Counter() for _ in sockets]
                    ours.append(_cost(running.pid, sockets, counters, sizes.paced_seconds))
                    for counter in counters:
                        counter.tokens()
        ratio = paired(ours, theirs)
        yield Figure(
            section="paced",
            name=f"{_streams(streams)}, {rate} tokens/s each",
            unit="CPU ms/10,000 tokens",
            measured=Spread.of(ours),
            floor=Spread.of(theirs),
            ratio=ratio,
            targets=[held("ratio", ratio.p50, PACED_MOST, "")],
        )


def _cost(
    pid: int, sockets: Sequence[socket.socket], counters: Sequence[Counter], seconds: float
) -> float:
    """CPU milliseconds of a process for 10,000 tokens of its streams, in the midst of them.

    Beginnings and ends are left out: they are the price of a request, not of a token.
    """
    drain(sockets, counters, seconds=_MARGIN_SECONDS + SPREAD_SECONDS)
    before, tokens = cpu_seconds(pid), sum(counter.marks for counter in counters)
    drain(sockets, counters, seconds=seconds)
    used = cpu_seconds(pid) - before
    tokens = sum(counter.marks for counter in counters) - tokens
    drain(sockets, counters)
    return used * 1e7 / tokens


def _relayed(folder: Path, streams: int, prompt: str, seconds: float) -> float:
    path = folder / "relay.sock"
    with accepting(path) as listener, ExitStack() as stack:
        relay = floor("paced", path, streams, prompt)
        sockets = accept(listener, streams, stack)
        cost = _cost(relay.pid, sockets, [Counter() for _ in sockets], seconds)
        result(relay)
    return cost


def _streams(count: int) -> str:
    return "1 stream" if count == 1 else f"{count} streams"
