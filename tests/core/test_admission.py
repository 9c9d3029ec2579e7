"""Who may queue, who goes where, who has waited too long."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisord_llm.core import admission
from supervisord_llm.core.admission import Assignment, Limits, SlotLoad, Waiting
from supervisord_llm.core.words import RejectReason, SlotState

LIMITS = Limits(max_queued=2, queue_timeout=30.0)

waiting = st.lists(st.floats(0.0, 100.0), max_size=12).map(
    lambda times: [Waiting(f"req_{index}", at) for index, at in enumerate(sorted(times))]
)
loads = st.lists(st.tuples(st.booleans(), st.integers(0, 4), st.integers(0, 4)), max_size=5).map(
    lambda rows: [SlotLoad(f"p.{index}", *row) for index, row in enumerate(rows)]
)


def queue(*requests: str) -> list[Waiting]:
    """Requests that have waited since noon, in this order."""
    return [Waiting(request, 0.0) for request in requests]


@pytest.mark.parametrize(
    ("queued", "states", "stopping", "expected"),
    [
        (0, [SlotState.READY], False, None),
        (1, [SlotState.READY], False, None),
        (2, [SlotState.READY], False, RejectReason.QUEUE_FULL),
        (3, [SlotState.READY], False, RejectReason.QUEUE_FULL),
        (0, [SlotState.PARKED, SlotState.BACKOFF], False, None),
        (0, [SlotState.PARKED, SlotState.STOPPED], False, RejectReason.POOL_UNAVAILABLE),
        (2, [SlotState.PARKED], False, RejectReason.POOL_UNAVAILABLE),
        (0, [], False, RejectReason.POOL_UNAVAILABLE),
        (0, [SlotState.READY], True, RejectReason.SHUTTING_DOWN),
        (2, [SlotState.PARKED], True, RejectReason.SHUTTING_DOWN),
    ],
)
def test_a_request_is_refused_for_the_gravest_reason(
    queued: int, states: list[SlotState], expected: RejectReason | None, *, stopping: bool
) -> None:
    """Shutting down before no slot that could ever serve, and that before a full queue."""
    assert expected == admission.refusal(queued, LIMITS, states, stopping=stopping)


@pytest.mark.parametrize("state", list(SlotState))
def test_a_slot_that_comes_back_by_itself_can_serve(state: SlotState) -> None:
    """Only a parked or a stopped one needs an operator."""
    expected = state not in (SlotState.PARKED, SlotState.STOPPED)
    assert expected == admission.can_ever_serve([state])


def test_the_first_in_the_queue_goes_to_the_least_busy_slot() -> None:
    """Busy is a share of the capacity; the lowest index is first among equals."""
    slots = [
        SlotLoad("p.0", takes_work=True, in_flight=1, capacity=2),
        SlotLoad("p.1", takes_work=True, in_flight=1, capacity=4),
        SlotLoad("p.2", takes_work=False, in_flight=0, capacity=4),
        SlotLoad("p.3", takes_work=True, in_flight=1, capacity=4),
    ]
    expected = [
        Assignment("a", "p.1"),
        Assignment("b", "p.3"),
        Assignment("c", "p.0"),
        Assignment("d", "p.1"),
        Assignment("e", "p.3"),
        Assignment("f", "p.1"),
        Assignment("g", "p.3"),
    ]
    assert expected == admission.assign(queue(*"abcdefgh"), slots)


def test_nothing_is_assigned_where_there_is_no_room() -> None:
    """Not even for an empty queue."""
    full = SlotLoad("p.0", takes_work=True, in_flight=1, capacity=1)
    free = SlotLoad("p.1", takes_work=True, in_flight=0, capacity=1)
    assert [] == admission.assign(queue("a"), [full])
    assert [] == admission.assign(queue("a"), [])
    assert [] == admission.assign([], [free])


@given(waiting=waiting, slots=loads)
def test_assignments_are_in_order_fit_and_within_capacity(
    waiting: list[Waiting], slots: list[SlotLoad]
) -> None:
    """First in, first out; no slot over its capacity; none idle while somebody waits."""
    decided = admission.assign(waiting, slots)
    assert [entry.request for entry in waiting[: len(decided)]] == [
        each.request for each in decided
    ]
    room = {load.slot: max(0, load.capacity - load.in_flight) for load in slots if load.takes_work}
    in_flight = {load.slot: load.in_flight for load in slots}
    capacity = {load.slot: load.capacity for load in slots}
    for each in decided:
        free = [slot for slot in room if in_flight[slot] < capacity[slot]]
        shares = [in_flight[slot] / capacity[slot] for slot in free]
        assert free[shares.index(min(shares))] == each.slot
        in_flight[each.slot] += 1
    assert min(len(waiting), sum(room.values())) == len(decided)


@given(waiting=waiting, timeout=st.floats(0.1, 50.0), now=st.floats(0.0, 200.0))
def test_whoever_has_waited_for_the_whole_allowance_expires(
    waiting: list[Waiting], timeout: float, now: float
) -> None:
    """No sooner, and the next expiry is the longest-waiting one's."""
    limits = Limits(max_queued=10, queue_timeout=timeout)
    expected = [each.request for each in waiting if now - each.since >= timeout]
    assert expected == admission.expired(waiting, limits, now)
    first = admission.next_expiry(waiting, limits)
    assert first == (waiting[0].since + timeout if waiting else None)


def test_a_request_expires_at_its_time_and_not_before() -> None:
    """The time that is told is the time at which it does."""
    entries = [Waiting("a", 10.0), Waiting("b", 20.0)]
    assert 40.0 == admission.next_expiry(entries, LIMITS)
    assert [] == admission.expired(entries, LIMITS, 39.99)
    assert ["a"] == admission.expired(entries, LIMITS, 40.0)
    assert ["a", "b"] == admission.expired(entries, LIMITS, 50.0)


def test_a_drained_pool_takes_nothing() -> None:
    """However well it could serve; only the end of the daemon is graver."""
    ready = [SlotState.READY]
    refuse = admission.refusal
    assert RejectReason.POOL_UNAVAILABLE == refuse(0, LIMITS, ready, stopping=False, drained=True)
    assert RejectReason.SHUTTING_DOWN == refuse(0, LIMITS, ready, stopping=True, drained=True)
