"""Who of those that wait is served next, and where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisord_llm.core import queueing
from supervisord_llm.core.queueing import Assignment, Round, SlotLoad, Turn, Waiting

AGE_STEP = 5.0
NOW = 100.0


def entry(request: str, at: float = 0.0, client: str = "ann", **fields: object) -> Waiting:
    """A queued request."""
    given_ = {"request": request, "client": client, "priority": 0, "enqueued_at": at}
    return msgspec.convert(given_ | fields, Waiting)


def slot(name: str, *, in_flight: int = 0, capacity: int = 1, **fields: object) -> SlotLoad:
    """A slot in service."""
    known = {"slot": name, "takes_work": True, "fit": True, "sessions": 0}
    return msgspec.convert(
        known | {"in_flight": in_flight, "capacity": capacity} | fields, SlotLoad
    )


def assign(
    waiting: Sequence[Waiting],
    slots: Sequence[SlotLoad],
    turns: Mapping[str, Turn] | None = None,
    now: float = NOW,
) -> list[tuple[str, str]]:
    """Who goes where."""
    decided = queueing.assign(waiting, slots, turns or {}, AGE_STEP, now)
    return [(each.request, each.slot) for each in decided.assignments]


def served(waiting: Sequence[Waiting], turns: Mapping[str, Turn] | None = None) -> str:
    """Who is served in which order, with room for all; it is the outlook as well."""
    decided = assign(waiting, [slot("p.0", capacity=100)], turns)
    order = [request for request, _ in decided]
    assert order == queueing.order(waiting, turns or {}, AGE_STEP, NOW)
    return "".join(order)


# Order ---------------------------------------------------------------------------


def test_a_clients_requests_are_served_as_they_came() -> None:
    """And those that came at once by their ids."""
    waiting = [entry("d", 3.0), entry("c", 1.0), entry("a", 2.0), entry("b", 2.0)]
    assert "cabd" == served(waiting)


def test_a_step_of_priority_is_worth_a_step_of_age() -> None:
    """A higher priority comes first unless the other has waited so much longer."""
    waiting = [
        entry("a", 10.0),
        entry("b", 14.9, priority=1),
        entry("c", 15.1, priority=1),
        entry("d", 0.0, priority=-2),
        entry("e", 0.1, priority=-2),
    ]
    assert "bdaec" == served(waiting)


def test_clients_take_turns_however_much_they_have_queued() -> None:
    """Also those that are served in one breath."""
    ann = [entry(request, 0.0) for request in "abcd"]
    bob = [entry(request, 50.0, "bob") for request in "xy"]
    assert "axbycd" == served([*ann, *bob])


def test_who_was_served_longer_ago_is_next() -> None:
    """A client's last turn counts as if its request had come then."""
    waiting = [entry("a", 0.0), entry("x", 50.0, "bob"), entry("u", 55.0, "eve")]
    assert "axu" == served(waiting, {"ann": Turn(40.0, 40.0)})
    assert "xau" == served(waiting, {"ann": Turn(51.0, 51.0)})
    assert "uax" == served(waiting, {"ann": Turn(60.0, 60.0), "bob": Turn(70.0, 70.0)})


def test_priority_counts_between_clients_too() -> None:
    """A client's turn is later by so many seconds."""
    waiting = [entry("a", 0.0, priority=1), entry("x", 0.0, "bob")]
    assert "ax" == served(waiting, {"ann": Turn(94.0, 94.0), "bob": Turn(90.0, 90.0)})
    assert "xa" == served(waiting, {"ann": Turn(96.0, 96.0), "bob": Turn(90.0, 90.0)})


def test_turns_are_remembered_of_clients_that_still_wait() -> None:
    """Of others they do not matter: a request that comes later than the turn is not held by it."""
    waiting = [entry("a"), entry("b"), entry("x", 1.0, "bob"), entry("u", 2.0, "eve")]
    old = {"ann": Turn(-5.0, -4.0), "eve": Turn(-3.0, -2.0)}
    decided = queueing.assign(waiting, [slot("p.0", capacity=2)], old, AGE_STEP, NOW)
    assert [Assignment("a", "p.0"), Assignment("x", "p.0")] == decided.assignments
    assert {"ann": Turn(NOW, NOW), "eve": Turn(-3.0, -2.0)} == decided.turns
    assert Round([], old) == queueing.assign(waiting, [], old, AGE_STEP, NOW)
    never = queueing.assign([entry("a", session_busy=True)], [slot("p.0")], {}, AGE_STEP, NOW)
    assert {"ann": Turn(float("-inf"), float("-inf"))} == never.turns


# Slots ---------------------------------------------------------------------------


def test_a_request_goes_to_the_least_busy_slot() -> None:
    """Busy is a share of the capacity; then fewest sessions, then the first."""
    slots = [
        slot("p.0", in_flight=1, capacity=2),
        slot("p.1", in_flight=1, capacity=4, sessions=2),
        slot("p.2", capacity=4, takes_work=False),
        slot("p.3", in_flight=1, capacity=4, sessions=1),
        slot("p.4", in_flight=1, capacity=4, sessions=1),
    ]
    went = assign([entry(request, index) for index, request in enumerate("abcdef")], slots)
    assert ["p.3", "p.4", "p.1", "p.0", "p.3", "p.4"] == [name for _, name in went]


def test_a_new_session_goes_where_the_fewest_are() -> None:
    """Though another slot is less busy; sessions that are assigned in the same breath count."""
    slots = [slot("p.0", sessions=1, capacity=4), slot("p.1", in_flight=2, capacity=4)]
    waiting = [entry(request, index, session=request) for index, request in enumerate("abc")]
    assert [("a", "p.1"), ("b", "p.0"), ("c", "p.1")] == assign(waiting, slots)


def test_a_session_goes_where_its_context_is() -> None:
    """It brings no further session there, and waits while that slot is busy, for however long."""
    waiting = [entry("a", session="s", session_slot="p.0"), entry("b", 1.0, session="t")]
    slots = [slot("p.0", in_flight=1, capacity=3), slot("p.1", sessions=1)]
    assert [("a", "p.0"), ("b", "p.0")] == assign(waiting, slots)
    full = [slot("p.0", in_flight=1), slot("p.1")]
    assert [("b", "p.1")] == assign(waiting, full)
    probed = [slot("p.0", takes_work=False), slot("p.1")]
    assert [("b", "p.1")] == assign(waiting, probed)


@pytest.mark.parametrize("gone", [[], [slot("p.0", takes_work=False, fit=False)]])
def test_a_session_whose_slot_is_out_of_service_begins_anew(gone: list[SlotLoad]) -> None:
    """Elsewhere, and at once."""
    waiting = [entry("a", session="s", session_slot="p.0")]
    assert [("a", "p.1")] == assign(waiting, [*gone, slot("p.1")])


def test_a_slot_that_takes_work_is_in_service() -> None:
    """Whatever else is said of it."""
    waiting = [entry("a", session="s", session_slot="p.1")]
    assert [("a", "p.1")] == assign(waiting, [slot("p.0"), slot("p.1", fit=False)])


def test_a_session_is_served_one_request_at_a_time_and_in_order() -> None:
    """Not even a higher priority overtakes within it, nor another client's request."""
    waiting = [
        entry("a", 1.0, session="s"),
        entry("b", 2.0, session="s", priority=10),
        entry("x", 0.0, "bob", session="t"),
        entry("c", 3.0, session="t"),
        entry("d", 4.0),
    ]
    slots = [slot(f"p.{index}") for index in range(9)]
    assert ["x", "a", "d"] == [request for request, _ in assign(waiting, slots)]
    order = queueing.order(waiting, {}, AGE_STEP, NOW)
    assert order.index("a") < order.index("b")
    assert 5 == len(set(order))


def test_a_session_that_is_busy_is_not_served() -> None:
    """Until its reset, or its last request, is off the worker; others do not wait for it."""
    waiting = [entry("a", session="s", session_slot="p.0", session_busy=True), entry("b", 1.0)]
    assert [("b", "p.0")] == assign(waiting, [slot("p.0")])


def test_a_request_without_its_prompt_keeps_its_place() -> None:
    """Others do not wait for it, but those of its session do; once it can, it goes first."""
    waiting = [
        entry("a", session="s", prepared=False),
        entry("b", 1.0, session="s"),
        entry("c", 2.0),
    ]
    assert [("c", "p.0")] == assign(waiting, [slot("p.0", capacity=3)])
    waiting[0] = entry("a", session="s")
    assert [("a", "p.0")] == assign(waiting, [slot("p.0")])


def test_another_slot_is_tried_after_a_death() -> None:
    """If one is free; if not, the same slot has to do, which has a fresh worker by then."""
    waiting = [entry("a", avoid="p.0"), entry("b", 1.0)]
    assert [("a", "p.1"), ("b", "p.0")] == assign(waiting, [slot("p.0"), slot("p.1", in_flight=0)])
    assert [("a", "p.0")] == assign(waiting, [slot("p.0"), slot("p.1", in_flight=1)])
    down = slot("p.1", takes_work=False, fit=False)
    assert [("a", "p.0")] == assign(waiting, [slot("p.0"), down])
    assert [] == assign(waiting, [slot("p.0", in_flight=1), down])


def test_a_head_that_cannot_go_keeps_its_turn() -> None:
    """What its client is served meanwhile counts against those behind it, not against it."""
    bound = entry("a", 0.0, session="s", session_slot="p.0")
    waiting = [bound, entry("b", 1.0), entry("x", 10.0, "bob"), entry("y", 11.0, "bob")]
    full = slot("p.0", in_flight=1)
    first = queueing.assign(waiting, [full, slot("p.1")], {}, AGE_STEP, 20.0)
    assert [Assignment("b", "p.1")] == first.assignments
    assert Turn(head=float("-inf"), any=20.0) == first.turns["ann"]
    left = [bound, entry("c", 2.0), *waiting[2:]]
    assert [("x", "p.1")] == assign(left, [full, slot("p.1")], first.turns, 21.0)
    assert [("a", "p.0")] == assign(left, [slot("p.0")], first.turns, 21.0)


def test_nothing_is_assigned_where_there_is_no_room() -> None:
    """Not even for an empty queue."""
    assert [] == assign([entry("a")], [slot("p.0", in_flight=1)])
    assert [] == assign([entry("a")], [slot("p.0", takes_work=False)])
    assert [] == assign([entry("a")], [slot("p.0", capacity=0)])
    assert [] == assign([], [slot("p.0")])
    assert [] == queueing.order([], {}, AGE_STEP, NOW)


# Expiry --------------------------------------------------------------------------


def test_a_request_expires_at_its_deadline_and_not_before() -> None:
    """The time that is told is the time at which it does; without one it never does."""
    waiting = [entry("a"), entry("b", queue_deadline=50.0), entry("c", queue_deadline=40.0)]
    assert 40.0 == queueing.next_expiry(waiting)
    assert [] == queueing.expired(waiting, 39.9)
    assert ["c"] == queueing.expired(waiting, 40.0)
    assert ["b", "c"] == queueing.expired(waiting, 50.0)
    assert queueing.next_expiry(waiting[:1]) is None


# Any queue -----------------------------------------------------------------------

slot_names = st.sampled_from(["p.0", "p.1", "p.2"])
times = st.integers(0, 20).map(float)
queues = st.lists(
    st.builds(
        dict[str, object],
        client=st.sampled_from(["ann", "bob", "eve"]),
        priority=st.integers(-10, 10),
        enqueued_at=times,
        session=st.none() | st.sampled_from("st"),
        session_slot=st.none() | slot_names,
        session_busy=st.booleans(),
        prepared=st.booleans(),
        avoid=st.none() | slot_names,
    ),
    max_size=10,
).map(lambda rows: [entry(f"r{index}", **row) for index, row in enumerate(rows)])  # type: ignore[arg-type]
fleets = st.lists(
    st.tuples(
        st.booleans(), st.booleans(), st.integers(0, 3), st.integers(0, 3), st.integers(0, 2)
    ),
    max_size=3,
).map(
    lambda rows: [
        slot(f"p.{index}", takes_work=a, fit=b, in_flight=c, capacity=d, sessions=e)
        for index, (a, b, c, d, e) in enumerate(rows)
    ]
)
books = st.dictionaries(
    st.sampled_from(["ann", "bob"]),
    st.tuples(times, times).map(lambda pair: Turn(min(pair), max(pair))),
)


@given(waiting=queues, slots=fleets, turns=books)
def test_no_room_is_wasted_and_none_is_invented(
    waiting: list[Waiting], slots: list[SlotLoad], turns: dict[str, Turn]
) -> None:
    """Each is assigned once, where it may go; what is left cannot go anywhere."""
    decided = assign(waiting, slots, turns)
    by_id = {each.request: each for each in waiting}
    room = {each.slot: each.capacity - each.in_flight for each in slots if each.takes_work}
    fit = {each.slot for each in slots if each.fit or each.takes_work}
    sessions: set[str] = set()
    for request, name in decided:
        each = by_id.pop(request)
        room[name] -= 1
        assert room[name] >= 0
        assert each.prepared
        assert not each.session_busy
        assert each.session_slot not in fit or each.session_slot == name
        assert each.session is None or each.session not in sessions
        sessions |= {each.session} - {None}  # type: ignore[arg-type]
    free = {name for name, left in room.items() if left > 0}
    for each in by_id.values():
        ahead = (other for other in waiting if each.session and other.session == each.session)
        first = min(ahead, key=lambda one: (one.enqueued_at, one.request), default=each)
        if each.session_busy or not each.prepared or first is not each:
            continue
        may = {each.session_slot} if each.session_slot in fit else free
        assert not may & free


@given(waiting=queues, turns=books)
def test_the_outlook_is_what_would_be_done(waiting: list[Waiting], turns: dict[str, Turn]) -> None:
    """With room for all and no session in between."""
    plain = [
        msgspec.structs.replace(
            each,
            session=None,
            session_slot=None,
            session_busy=False,
            prepared=True,
            avoid=None,
        )
        for each in waiting
    ]
    served(plain, turns)


@given(waiting=queues, turns=books)
def test_everybody_has_one_place_in_the_outlook(
    waiting: list[Waiting], turns: dict[str, Turn]
) -> None:
    """And within a session and a client, what came first is first."""
    order = queueing.order(waiting, turns, AGE_STEP, NOW)
    assert sorted(order) == sorted(each.request for each in waiting)
    place = {request: index for index, request in enumerate(order)}
    for one in waiting:
        for other in waiting:
            same = one.session is not None and one.session == other.session
            came = (one.enqueued_at, one.request) < (other.enqueued_at, other.request)
            if same and one.client == other.client and came:
                assert place[one.request] < place[other.request]
