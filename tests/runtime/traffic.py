"""Constant load on a pool, and what the events tell of the pool meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import trio

from supervisord_llm.core.record import Record
from supervisord_llm.core.words import Outcome, RejectReason, SlotState
from supervisord_llm.errors import Refused
from supervisord_llm.events import Event, RequestStarted, WorkerReaped, WorkerSpawned, WorkerState
from supervisord_llm.runtime.pool import Pool
from supervisord_llm.runtime.request import RequestSpec
from supervisord_llm.runtime.slot_facts import SERVING
from tests.harness import SECONDS, Bench, read_all

TOKENS = 12
PROMPT = f"x sim.tokens={TOKENS} sim.tps=400"
WHOLE = "".join(f"t{number} " for number in range(TOKENS))


class Traffic:
    """Clients that ask for one answer after the other."""

    def __init__(self, pool: Pool) -> None:
        """Nobody asks yet."""
        self.ended: list[tuple[str, Record]] = []
        self.refused = 0
        """How often the pool took nothing; the client came again once it did."""
        self._pool = pool
        self._more = trio.lowlevel.ParkingLot()
        self._enough = trio.Event()

    async def client(self) -> None:
        """Ask until told to stop."""
        while not self._enough.is_set():
            try:
                async with self._pool.request(RequestSpec(prompt=PROMPT)) as stream:
                    self.ended.append(await read_all(stream))
            except Refused as refused:
                assert refused.reason is RejectReason.POOL_UNAVAILABLE  # noqa: PT017
                self.refused += 1
                await self._wait_open()
            self._more.unpark_all()

    async def _wait_open(self) -> None:
        while self._pool.drained and not self._enough.is_set():  # noqa: ASYNC110
            await trio.sleep(0.01)

    async def some_more(self, count: int) -> None:
        """Wait until so many more answers have ended."""
        before = len(self.ended)
        with trio.fail_after(SECONDS):
            while len(self.ended) < before + count:
                await self._more.park()

    def stop(self) -> None:
        """Let each client end after its present answer."""
        self._enough.set()

    def check(self) -> None:
        """Every answer came, and came whole."""
        assert {Outcome.COMPLETED} == {record.outcome for _, record in self.ended}, [
            record for _, record in self.ended if record.outcome is not Outcome.COMPLETED
        ]
        assert {WHOLE} == {text for text, _ in self.ended}


@asynccontextmanager
async def traffic(made: Bench, clients: int = 3) -> AsyncIterator[Traffic]:
    """Let clients stream all the time; in the end, and after it, everything was answered whole."""
    load = Traffic(made.pool)
    async with trio.open_nursery() as nursery:
        for _ in range(clients):
            nursery.start_soon(load.client)
        await made.events.wait(RequestStarted)
        yield load
        await load.some_more(clients)
        load.stop()
    load.check()


def fewest_serving(events: Sequence[Event], at_first: int) -> int:
    """How many slots served at the worst moment; at the first one so many did."""
    serving = least = at_first
    for event in events:
        if isinstance(event, WorkerState):
            serving += (event.to in SERVING) - (event.from_ in SERVING)
            least = min(least, serving)
    return least


def most_workers(events: Sequence[Event], at_first: int = 0) -> int:
    """How many workers there were at most at a time."""
    living = most = at_first
    for event in events:
        living += isinstance(event, WorkerSpawned) - isinstance(event, WorkerReaped)
        most = max(most, living)
    return most


async def settled(pool: Pool) -> None:
    """Wait until what was wanted of a pool has come about."""
    with trio.fail_after(SECONDS):
        await pool.wait_settled()


async def wait_slots(made: Bench, *states: SlotState) -> None:
    """Wait until the pool's slots are in these states, in the order of their indices."""
    with trio.fail_after(SECONDS):
        while list(states) != [slot.state for slot in made.pool.slots]:
            await made.supervisor.wait_move()
