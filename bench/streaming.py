"""Tokens per second as fast as they come, and CPU time at a pace."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from bench.client import Counter, accept, accepting, drain, generate, stream_all
from bench.figures import Figure, Spread, Target, held, paired
from bench.processes import cpu_seconds, daemon, floor, result
from bench.sizes import Sizes

SATURATED_SHARE = 0.5
"""Of the floor that one stream must reach at least."""
PACED_MOST = 1.6
"""Times the floor's CPU time that a stream at a pace may cost."""


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
    """CPU time for tokens that come one by one."""
    for streams, rate in ((1, 500), (64, 50)):
        each = round(rate * sizes.paced_seconds)
        prompt = f"go sim.tokens={each} sim.tps={rate}"
        ours, theirs = [], []
        with daemon(folder / f"paced{streams}", workers=streams) as running:
            for _ in range(sizes.repeats):
                theirs.append(_relayed(folder, streams, prompt) * 1e7 / (each * streams))
                before = cpu_seconds(running.pid)
                tokens, _ = stream_all(running.socket, [generate(prompt)] * streams)
                ours.append((cpu_seconds(running.pid) - before) * 1e7 / tokens)
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


def _relayed(folder: Path, streams: int, prompt: str) -> float:
    path = folder / "relay.sock"
    with accepting(path) as listener, ExitStack() as stack:
        relay = floor("paced", path, streams, prompt)
        sockets = accept(listener, streams, stack)
        drain(sockets, [Counter() for _ in sockets])
        return float(result(relay))


def _streams(count: int) -> str:
    return "1 stream" if count == 1 else f"{count} streams"
