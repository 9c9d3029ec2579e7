"""Nobody waits for ever: the bound that is stated in `core/queueing.py`, held over whole days."""

from __future__ import annotations

import heapq
import random

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from supervisord_llm.core import queueing
from supervisord_llm.core.queueing import SlotLoad, Turn, Waiting

AGE_STEP = 5.0
LOWEST, HIGHEST = -10, 10
NEVER = float("-inf")


class Served(msgspec.Struct, frozen=True):
    """A request was given to a slot."""

    entry: Waiting
    slot: str
    at: float


class Head(msgspec.Struct):
    """The request at the head of a client's line."""

    entry: Waiting
    since: float
    """When it became the head, or the last thing that was its head was served."""
    key: float


class Day:
    """Slots that are never idle and clients that never run out of requests, on a virtual clock."""

    def __init__(self, seed: int, slots: int, clients: int, *, bound: bool) -> None:
        """Draw everything from one seed.

        Args:
            seed: of all that is random.
            slots: how many slots there are, of capacity 1.
            clients: how many clients ask, each with several requests at a time.
            bound: whether some requests can go to one slot only, because of their sessions.
        """
        self.random = random.Random(seed)
        self.slots = [f"p.{index}" for index in range(slots)]
        self.clients = [f"uid:{index}" for index in range(clients)]
        self.bound = bound
        self.now = 0.0
        self.waiting: list[Waiting] = []
        self.turns: dict[str, Turn] = {}
        self.log: list[Served] = []
        # Regular slots make regular days, and those are the ones on which somebody starves.
        self.takes = {name: self.random.choice([0.5, 1.0, 1.0, 4.0]) for name in self.slots}
        self.busy_until = [(index * 0.3, name) for index, name in enumerate(self.slots)]
        self._number = 0

    def ask(self, client: str, priority: int) -> Waiting:
        """Queue a request."""
        self._number += 1
        session_slot = None
        if self.bound and self.random.random() < 0.5:
            session_slot = self.random.choice(self.slots)
        made = Waiting(
            request=f"req_{self._number:06}",
            client=client,
            priority=priority,
            enqueued_at=self.now,
            session=session_slot and f"s{self._number}",
            session_slot=session_slot,
        )
        self.waiting.append(made)
        return made

    def serve(self) -> Served | None:
        """Let time pass until the next slot is free, and give it work."""
        end, free = heapq.heappop(self.busy_until)
        # Nothing is asked at the very moment of an end, as it is with a real clock.
        self.now = max(self.now, end) + 0.001
        loads = [
            SlotLoad(
                slot=name,
                takes_work=True,
                in_flight=int(name != free),
                capacity=1,
                sessions=0,
                fit=True,
            )
            for name in self.slots
        ]
        decided = queueing.assign(self.waiting, loads, self.turns, AGE_STEP, self.now)
        self.turns = decided.turns
        heapq.heappush(self.busy_until, (self.now + self.takes[free], free))
        if not decided.assignments:
            return None
        ((request, slot),) = ((each.request, each.slot) for each in decided.assignments)
        (entry,) = (each for each in self.waiting if each.request == request)
        self.waiting.remove(entry)
        self.log.append(Served(entry, slot, self.now))
        return self.log[-1]


def line(waiting: list[Waiting], client: str) -> list[Waiting]:
    """A client's requests as they come to their turns."""
    return sorted(
        (each for each in waiting if each.client == client),
        key=lambda each: (each.enqueued_at - each.priority * AGE_STEP, each.enqueued_at),
    )


def overtakers(day: Day, head: Head, until: float) -> list[str]:
    """The clients that were served before the head, on slots that it could have had, too late."""
    after = head.key + HIGHEST * AGE_STEP
    return [
        each.entry.client
        for each in day.log
        if head.since < each.at < until
        and each.at > after
        and head.entry.session_slot in {None, each.slot}
    ]


days = {
    "seed": st.integers(0, 2**32),
    "slots": st.integers(1, 3),
    "clients": st.integers(1, 5),
    "bound": st.booleans(),
}


@given(**days)
def test_a_head_is_overtaken_once_by_each_other_client(
    seed: int, slots: int, clients: int, bound: bool
) -> None:
    """Twice where sessions tie requests to slots; never by its own client's requests."""
    day = Day(seed, slots, clients, bound=bound)
    last_head = dict.fromkeys(day.clients, NEVER)
    heads: dict[str, Head] = {}
    for _ in range(150):
        for client in day.clients:
            while len(line(day.waiting, client)) < 3:
                day.ask(client, day.random.choice([LOWEST, 0, HIGHEST, HIGHEST]))
            entry = line(day.waiting, client)[0]
            if client not in heads or heads[client].entry != entry:
                since = max(entry.enqueued_at, last_head[client])
                heads[client] = Head(entry, day.now, since - entry.priority * AGE_STEP)
        served = day.serve()
        if served is None or heads[served.entry.client].entry != served.entry:
            continue
        last_head[served.entry.client] = served.at
        by = overtakers(day, heads.pop(served.entry.client), served.at)
        assert served.entry.client not in by
        assert all(by.count(each) <= 1 + bound for each in by)


@given(seed=st.integers(0, 2**32), clients=st.integers(1, 5))
def test_the_lowest_is_served_under_a_constant_load_of_the_highest(seed: int, clients: int) -> None:
    """After its ageing, and at most one request of each other client."""
    day = Day(seed, 2, clients, bound=False)
    low = day.ask("low", LOWEST)
    patience = (HIGHEST - LOWEST) * AGE_STEP
    late: list[str] = []
    while low in day.waiting:
        for client in day.clients:
            while len(line(day.waiting, client)) < 4:
                day.ask(client, HIGHEST)
        served = day.serve()
        assert served is not None
        if served.entry != low and served.at > patience:
            late.append(served.entry.client)
    assert len(late) == len(set(late))
    assert day.log[-1].at > patience, "the load was too low to say anything"


def test_a_session_is_served_although_its_client_is_busy_elsewhere() -> None:
    """Turns on other slots do not put off the head of a line.

    The two slots are out of step: whenever the session's is free, its client has just been served
    on the other one, and the other client has not.
    """
    day = Day(0, 2, 2, bound=False)
    quick, other = day.clients
    day.takes = dict.fromkeys(day.slots, 1.0)
    day.busy_until = [(0.5, "p.1"), (5.0, "p.0")]
    tied = msgspec.structs.replace(day.ask(quick, 0), session="s", session_slot="p.0")
    day.waiting = [tied]
    while tied in day.waiting:
        for client in day.clients:
            while len(line(day.waiting, client)) < 4:
                day.ask(client, 0)
        served = day.serve()
        assert served is not None
        assert served.slot == "p.1" or served.entry == tied
    assert [quick, other, quick, other, quick, quick] == [each.entry.client for each in day.log]
