"""Many who ask again as soon as they are answered, in one loop: for HTTP and for bare workers."""

from __future__ import annotations

import selectors
import time
from collections.abc import Sequence
from typing import Protocol

import msgspec

from bench.processes import PATIENCE, BenchError


class Party(Protocol):
    """One who asks, and is answered on a descriptor of its own."""

    def ask(self) -> int:
        """Ask, and return the descriptor on which the answer comes."""

    def read(self) -> tuple[bool, bool]:
        """Read what is there: whether that is the answer's first byte or after, and its end."""


class Rounds(msgspec.Struct):
    """What came of it, in milliseconds from each question."""

    seconds: float
    """Of all of it."""
    waits: list[float]
    """Until the first byte of each answer."""
    answers: list[float]
    """Until its end."""

    @property
    def rate(self) -> float:
        """Answers per second."""
        return len(self.answers) / self.seconds


def rounds(parties: Sequence[Party], wanted: int, *, delays: Sequence[float] = ()) -> Rounds:
    """Let the parties ask until so many questions are answered.

    Args:
        parties: who asks; each has one question open at a time.
        wanted: how many questions there are in all, at least one for each party.
        delays: seconds after which each party asks first; at once without.

    Raises:
        BenchError: if no answer comes for a long time.
    """
    left = wanted - len(parties)
    waits: list[float] = []
    answers: list[float] = []
    asked = [0.0] * len(parties)
    waiting = [False] * len(parties)
    began = time.perf_counter()
    starts = sorted((began + delay, number) for number, delay in enumerate(delays))
    with selectors.DefaultSelector() as selector:

        def ask(number: int) -> None:
            asked[number], waiting[number] = time.perf_counter(), True
            selector.register(parties[number].ask(), selectors.EVENT_READ, number)

        if not starts:
            for number in range(len(parties)):
                ask(number)
        while starts or selector.get_map():
            ready = selector.select(_pause(starts))
            if not ready and not starts:
                raise BenchError(f"no answer came for {PATIENCE:g} s")
            for key, _ in ready:
                number = key.data
                first, ended = parties[number].read()
                if first and waiting[number]:
                    waits.append((time.perf_counter() - asked[number]) * 1000)
                    waiting[number] = False
                if ended:
                    answers.append((time.perf_counter() - asked[number]) * 1000)
                    selector.unregister(key.fd)
                    if left > 0:
                        left -= 1
                        ask(number)
            while starts and starts[0][0] <= time.perf_counter():
                ask(starts.pop(0)[1])
    return Rounds(time.perf_counter() - began, waits, answers)


def _pause(starts: Sequence[tuple[float, int]]) -> float:
    return max(0.0, starts[0][0] - time.perf_counter()) if starts else PATIENCE
