"""Who of those that wait is served next, and where.

One synchronous breath: the pool hands over its queue and its slots, gets a list of decisions, and
only then acts.

Order
    Each client has a line of its own, in which a step of priority is worth `age_step` seconds of
    waiting: the lowest ``enqueued_at - priority * age_step`` is first. Between clients it goes by
    turns. Of each line the first request that some free slot can take competes, with
    ``max(enqueued_at, the client's last turn) - priority * age_step``, lowest first. So it does not
    matter how much a client has queued, and nobody's request waits for ever.

    The head of a line, its very first request, may be unable to go where there is room, because
    its session is elsewhere; those behind it are then served before it. Such turns do not count
    against the head, only against those behind it: else a client that is busy on one slot would
    wait for ever on another.

The bound
    Let K be the key of a request at the head of its line. It does not change while the request is
    the head. Once the clock is past ``K + highest priority * age_step``, that is, at most
    ``(highest - own priority) * age_step`` after the request was queued or its client had its last
    turn, each other client is served at most twice more before it on a slot that it could have had:
    with its own head, and with one request from behind a head that cannot go there. Where no
    session ties a request to a slot it is once. No request that comes later can displace the head
    of its own line after ``(highest - own priority) * age_step`` seconds.

Sessions
    A request of a session goes where the context is, and waits while that slot is busy; if the slot
    is out of service the session begins anew, cold, elsewhere. The requests of a session are served
    one at a time and in the order in which they came, whatever their priorities.

The alternative, one list in the order of one key, was not taken: whoever fills the queue first
would own it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence

import msgspec

from supervisord_llm.core.words import RequestId, SlotName

Client = str
"""Whose request it is, e.g. ``uid:1000``; turns are taken between these."""

_NEVER = float("-inf")


class SlotLoad(msgspec.Struct, frozen=True, kw_only=True):
    """What the queue needs to know of a slot."""

    slot: SlotName
    takes_work: bool
    """Whether it may be given a request now, if it has room."""
    in_flight: int
    capacity: int
    sessions: int
    """How many named sessions its worker holds."""
    fit: bool
    """Whether it is in service, though perhaps busy; one that takes work is."""


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """A queued request."""

    request: RequestId
    client: Client
    priority: int
    """Higher is sooner."""
    enqueued_at: float
    """When it was accepted; a request that is tried again keeps its place."""
    queue_deadline: float | None = None
    """When it has waited for too long."""
    session: str | None = None
    session_slot: SlotName | None = None
    """The slot that holds its session's context."""
    session_busy: bool = False
    """Whether something of its session is on a worker: a request, or an operation like a reset."""
    prepared: bool = True
    """Whether its prompt is there; one without goes nowhere, and keeps its place."""
    avoid: SlotName | None = None
    """The slot whose worker died of its last attempt: another one is taken if one is free."""


class Assignment(msgspec.Struct, frozen=True):
    """This request goes to this slot."""

    request: RequestId
    slot: SlotName


class Turn(msgspec.Struct, frozen=True):
    """When a client was last served."""

    head: float
    """With the head of its line."""
    any: float
    """With any request."""


class Round(msgspec.Struct, frozen=True):
    """What one breath decided."""

    assignments: list[Assignment]
    turns: dict[Client, Turn]
    """The turns for the next one: of the clients that still wait, for others' do not matter."""


def assign(
    waiting: Sequence[Waiting],
    slots: Sequence[SlotLoad],
    turns: Mapping[Client, Turn],
    age_step: float,
    now: float,
) -> Round:
    """Give what waits to who is free, in order, as far as there is room.

    A request without a session goes to the slot with the smallest share of its capacity in use,
    among equals to that with the fewest sessions, then to the first. A new session goes to the slot
    with the fewest sessions. A request that cannot go anywhere blocks none behind it.

    Args:
        waiting: the queue, in any order.
        slots: the pool's slots, in the order of their indices.
        turns: what the last round returned; empty at first.
        age_step: how many seconds of waiting are worth a step of priority.
        now: the time.
    """
    room = _Room(slots)
    if not room.free:
        return Round([], dict(turns))
    followers = _followers(waiting)

    def can_go(entry: Waiting) -> bool:
        if entry.session_busy or not entry.prepared or entry.request in followers:
            return False
        return room.slot_for(entry) is not None

    book = _Turns(turns, age_step, now)
    lines = _lines(waiting, age_step)
    assignments: list[Assignment] = []
    while ready := [line for line in lines.values() if line.advance(can_go)]:
        line = min(ready, key=book.rank)
        slot = room.slot_for(line.first)
        assert slot is not None, "its line would have advanced beyond it"
        book.take(line)
        entry = line.pop()
        room.take(slot, entry)
        assignments.append(Assignment(entry.request, slot))
    return Round(assignments, {client: book.of(client) for client, line in lines.items() if line})


def order(
    waiting: Sequence[Waiting], turns: Mapping[Client, Turn], age_step: float, now: float
) -> list[RequestId]:
    """The order in which the queue would be served if there were room for all of it at ``now``.

    What is served later is served by other turns and other ages, so this is an outlook and not a
    promise.
    """
    book = _Turns(turns, age_step, now)
    lines = _lines(waiting, age_step)
    heap = [(book.rank(line), client) for client, line in lines.items()]
    heapq.heapify(heap)
    served: list[RequestId] = []
    while heap:
        _, client = heap[0]
        line = lines[client]
        book.take(line)
        served.append(line.pop().request)
        if line:
            heapq.heapreplace(heap, (book.rank(line), client))
        else:
            heapq.heappop(heap)
    return served


def expired(waiting: Sequence[Waiting], now: float) -> list[RequestId]:
    """The requests that have waited for their whole allowance."""
    return [
        entry.request
        for entry in waiting
        if entry.queue_deadline is not None and now >= entry.queue_deadline
    ]


def next_expiry(waiting: Sequence[Waiting]) -> float | None:
    """When the first request in the queue will have waited for too long."""
    deadlines = (entry.queue_deadline for entry in waiting)
    return min((each for each in deadlines if each is not None), default=None)


class _Line:
    """One client's requests in their order, and how many at the front are passed over."""

    def __init__(self) -> None:
        self.client: Client = ""
        self._entries: list[tuple[float, Waiting]] = []
        self._passed = 0

    def add(self, place: float, entry: Waiting) -> None:
        self.client = entry.client
        self._entries.append((place, entry))

    def sort(self) -> None:
        """Order by place; equals stay as they were added."""
        self._entries.sort(key=lambda each: each[0])

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def first(self) -> Waiting:
        """The first request that was not passed over."""
        return self._entries[self._passed][1]

    @property
    def at_head(self) -> bool:
        return self._passed == 0

    def advance(self, can_go: Callable[[Waiting], bool]) -> bool:
        """Pass over what cannot go; whether there is one that can.

        What cannot go now cannot go later in the same breath: room only becomes less.
        """
        while self._passed < len(self._entries):
            if can_go(self.first):
                return True
            self._passed += 1
        return False

    def pop(self) -> Waiting:
        """Take the first request that was not passed over out of the line."""
        return self._entries.pop(self._passed)[1]


def _lines(waiting: Sequence[Waiting], age_step: float) -> dict[Client, _Line]:
    """Each client's line; within a session, what came first stays first."""
    lines: dict[Client, _Line] = {}
    last_of_session: dict[str, float] = {}
    for entry in sorted(waiting, key=_came):
        place = entry.enqueued_at - entry.priority * age_step
        if entry.session is not None:
            place = max(place, last_of_session.get(entry.session, _NEVER))
            last_of_session[entry.session] = place
        lines.setdefault(entry.client, _Line()).add(place, entry)
    for line in lines.values():
        line.sort()
    return lines


def _followers(waiting: Sequence[Waiting]) -> set[RequestId]:
    """The requests behind another one of their session."""
    seen: set[str] = set()
    followers: set[RequestId] = set()
    for entry in sorted((each for each in waiting if each.session is not None), key=_came):
        assert entry.session is not None
        if entry.session in seen:
            followers.add(entry.request)
        seen.add(entry.session)
    return followers


def _came(entry: Waiting) -> tuple[float, RequestId]:
    return entry.enqueued_at, entry.request


class _Turns:
    """Whose turn it is in this breath."""

    def __init__(self, turns: Mapping[Client, Turn], age_step: float, now: float) -> None:
        self._turns = dict(turns)
        self._age_step = age_step
        self._now = now
        self._taken: dict[Client, int] = {}

    def of(self, client: Client) -> Turn:
        return self._turns.get(client, Turn(_NEVER, _NEVER))

    def rank(self, line: _Line) -> tuple[float, int, float, RequestId]:
        """How soon it is the turn of a line's first request; the lowest is next.

        Those that are served in one breath are served at one time, so that turns within it have to
        be counted.
        """
        entry = line.first
        turn = self.of(line.client)
        since = max(entry.enqueued_at, turn.head if line.at_head else turn.any)
        key = since - entry.priority * self._age_step
        return key, self._taken.get(line.client, 0), *_came(entry)

    def take(self, line: _Line) -> None:
        client = line.client
        head = self._now if line.at_head else self.of(client).head
        self._turns[client] = Turn(head=head, any=self._now)
        self._taken[client] = self._taken.get(client, 0) + 1


class _Room:
    """What the slots can still take in this breath."""

    def __init__(self, slots: Sequence[SlotLoad]) -> None:
        self._capacity = {load.slot: load.capacity for load in slots}
        self._in_flight = {load.slot: load.in_flight for load in slots}
        self._sessions = {load.slot: load.sessions for load in slots}
        self._fit = {load.slot for load in slots if load.fit or load.takes_work}
        self.free = [load.slot for load in slots if load.takes_work and self._has_room(load.slot)]

    def _has_room(self, slot: SlotName) -> bool:
        return self._in_flight[slot] < self._capacity[slot]

    def slot_for(self, entry: Waiting) -> SlotName | None:
        """Where a request would go now, if there is room."""
        if entry.session_slot in self._fit:
            return entry.session_slot if entry.session_slot in self.free else None
        # Not at any price: its next worker is a fresh one, and better than a long wait.
        others = [slot for slot in self.free if slot != entry.avoid] or self.free
        # min() keeps the first of equals, and the slots come in the order of their indices.
        return min(others, key=self._least_for(entry), default=None)

    def _least_for(self, entry: Waiting) -> Callable[[SlotName], tuple[float, float]]:
        def by_load(slot: SlotName) -> tuple[float, float]:
            return self._in_flight[slot] / self._capacity[slot], self._sessions[slot]

        def by_sessions(slot: SlotName) -> tuple[float, float]:
            share, sessions = by_load(slot)
            return sessions, share

        return by_load if entry.session is None else by_sessions

    def take(self, slot: SlotName, entry: Waiting) -> None:
        self._in_flight[slot] += 1
        if entry.session is not None and entry.session_slot != slot:
            self._sessions[slot] += 1
        if not self._has_room(slot):
            self.free.remove(slot)
