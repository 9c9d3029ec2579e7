"""What the daemon needs: time to start, memory, and CPU time while nothing happens."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from bench.figures import Figure, Spread
from bench.processes import (
    cpu_seconds,
    daemon,
    floor,
    resident_mib,
    result,
    starting_daemon,
)
from bench.sizes import Sizes

_SETTLE_SECONDS = 3.0
"""Between the last start of a worker and what is called idle."""


def start(folder: Path, sizes: Sizes) -> Iterator[Figure]:
    """From the start of the daemon's process to the first ready worker."""
    ours, theirs = [], []
    for number in range(sizes.starts):
        began = time.perf_counter()
        result(floor("start"))
        theirs.append((time.perf_counter() - began) * 1000)
        began = time.perf_counter()
        with starting_daemon(folder / f"start{number}") as starting:
            starting.wait_event("worker.ready")
            ours.append((time.perf_counter() - began) * 1000)
    yield Figure(
        section="start",
        name="to the first ready sim worker",
        unit="ms",
        measured=Spread.of(ours),
        floor=Spread.of(theirs),
    )


def idle(folder: Path, sizes: Sizes) -> Iterator[Figure]:
    """Memory and idle CPU time with few and with many slots."""
    for workers in (2, 64):
        memory, used = result(floor("idle", workers, _SETTLE_SECONDS, sizes.idle_seconds))
        with daemon(folder / f"idle{workers}", workers=workers) as running:
            time.sleep(_SETTLE_SECONDS)
            before = cpu_seconds(running.pid)
            time.sleep(sizes.idle_seconds)
            spent = (cpu_seconds(running.pid) - before) * 1000 / sizes.idle_seconds
            held = resident_mib(running.pid)
        yield Figure(
            section="idle",
            name=f"memory with {workers} sim slots",
            unit="MiB",
            measured=Spread.of([held]),
            floor=Spread.of([memory]),
        )
        yield Figure(
            section="idle",
            name=f"CPU with {workers} sim slots",
            unit="ms per second",
            measured=Spread.of([spent]),
            floor=Spread.of([used]),
        )
