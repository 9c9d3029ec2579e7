"""When a slot starts again, waits or is parked."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from supervisord_llm.core.restart import (
    Decision,
    History,
    Park,
    Policy,
    Start,
    Wait,
    backoff,
    blame,
    decide,
    decide_uncharged,
)

POLICY = Policy(
    backoff_initial=1.0,
    backoff_max=10.0,
    jitter=0.0,
    healthy_after=30.0,
    max_restarts=100,
    restart_window=600.0,
)
policies = st.builds(
    Policy,
    backoff_initial=st.floats(0.01, 10.0),
    backoff_max=st.floats(10.0, 300.0),
    jitter=st.floats(0.0, 1.0),
    healthy_after=st.floats(1.0, 100.0),
    max_restarts=st.integers(0, 5),
    restart_window=st.floats(1.0, 1000.0),
)
rolls = st.floats(0.0, 1.0)


def failures(policy: Policy, *served: float | None) -> list[Decision]:
    """What is decided for failures a second apart, each after so many seconds in service."""
    history, decisions = History(), []
    for index, seconds in enumerate(served):
        now = 1000.0 + index
        ready_since = None if seconds is None else now - seconds
        history, decision = decide(history, now, policy, ready_since=ready_since, roll=0.5)
        decisions.append(decision)
    return decisions


def test_the_first_failure_in_service_costs_one_load_and_no_more() -> None:
    """From the second on the slot waits, twice as long each time, up to the limit."""
    expected = [
        Start(1), Wait(2, 1.0), Wait(3, 2.0), Wait(4, 4.0), Wait(5, 8.0), Wait(6, 10.0),
    ]  # fmt: skip
    assert expected == failures(POLICY, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0)


def test_a_worker_that_never_got_ready_is_waited_for_from_the_first_failure_on() -> None:
    """It would probably not get ready a moment later either."""
    expected = [Wait(1, 1.0), Wait(2, 2.0), Wait(3, 4.0)]
    assert expected == failures(POLICY, None, None, None)


def test_a_healthy_time_in_service_forgets_the_streak() -> None:
    """Exactly `healthy_after` seconds are enough."""
    expected = [Start(1), Wait(2, 1.0), Start(1), Wait(2, 1.0), Wait(3, 2.0)]
    assert expected == failures(POLICY, 5.0, 29.9, 30.0, 5.0, 5.0)


def test_more_than_the_allowed_failures_within_the_window_park_the_slot() -> None:
    """The limit itself is allowed; a healthy time in service does not lift it."""
    policy = msgspec.structs.replace(POLICY, max_restarts=2)
    assert [Start(1), Wait(2, 1.0), Park(3)] == failures(policy, 5.0, 5.0, 5.0)
    assert [Start(1), Start(1), Park(3)] == failures(policy, 40.0, 40.0, 40.0)


@pytest.mark.parametrize(
    ("age", "expected"), [(599.9, Park(1 + 1)), (600.0, Wait(2, 1.0)), (601.0, Wait(2, 1.0))]
)
def test_a_failure_counts_for_as_long_as_the_window(age: float, expected: Decision) -> None:
    """After that it is forgotten, but not its place in the streak."""
    policy = msgspec.structs.replace(POLICY, max_restarts=1)
    history = History(failures=(1000.0 - age,), streak=1)
    _, decision = decide(history, 1000.0, policy, ready_since=995.0, roll=0.5)
    assert expected == decision


@given(
    policy=policies,
    gaps=st.lists(st.floats(0.0, 400.0), min_size=1, max_size=12),
    ready=st.booleans(),
    roll=rolls,
)
def test_a_slot_is_parked_exactly_when_it_failed_too_often(
    policy: Policy, gaps: list[float], roll: float, *, ready: bool
) -> None:
    """As counted by hand over the times of its failures."""
    history, now, times = History(), 0.0, []
    for gap in gaps:
        now += gap
        times.append(now)
        recent = [at for at in times if now - at < policy.restart_window]
        history, decision = decide(
            history, now, policy, ready_since=now if ready else None, roll=roll
        )
        parked = len(recent) > policy.max_restarts
        assert parked == isinstance(decision, Park)
        assert tuple(recent) == history.failures
        if isinstance(decision, Park):
            assert len(recent) == decision.restarts


def test_an_end_that_counts_after_all_counts_toward_parking_from_its_own_time_on() -> None:
    """It is one failure more within the window, and none in the streak: the slot has served."""
    policy = msgspec.structs.replace(POLICY, max_restarts=2)
    history = blame(blame(History(failures=(1000.0,), streak=1), 900.0), 1010.0)
    assert History(failures=(900.0, 1000.0, 1010.0), streak=1) == history
    _, decision = decide(history, 1020.0, policy, ready_since=1015.0, roll=0.5)
    assert Park(4) == decision
    late = 900.0 + policy.restart_window
    _, decision = decide(history, late, policy, ready_since=1015.0, roll=0.5)
    assert Park(3) == decision


def test_an_end_that_does_not_count_starts_the_next_worker_at_once() -> None:
    """The streak is what it was; what the window has left behind is forgotten as ever."""
    policy = msgspec.structs.replace(POLICY, max_restarts=2)
    history = History(failures=(100.0, 600.0, 610.0), streak=5)
    expected = (History(failures=(600.0, 610.0), streak=5), Start(1))
    assert expected == decide_uncharged(history, 100.0 + policy.restart_window, policy)


def test_an_end_that_does_not_count_does_not_hide_those_that_came_to_count() -> None:
    """Each was held against a request first: none was looked at when it happened."""
    policy = msgspec.structs.replace(POLICY, max_restarts=2)
    history = blame(blame(blame(History(), 1000.0), 1010.0), 1020.0)
    expected = (history, Park(3))
    assert expected == decide_uncharged(history, 1030.0, policy)


@given(policy=policies, doublings=st.integers(0, 5000), roll=rolls)
def test_a_delay_is_within_its_bounds(policy: Policy, doublings: int, roll: float) -> None:
    """Never negative, never over the maximum, however many failures and whatever the roll."""
    delay = backoff(policy, doublings, roll)
    assert 0.0 <= delay <= policy.backoff_max


@given(policy=policies, doublings=st.integers(0, 200))
def test_delays_grow_where_nothing_jitters(policy: Policy, doublings: int) -> None:
    """The middle of the jitter is the plain delay, which doubles until it meets the maximum."""
    plain = [backoff(policy, doublings + each, 0.5) for each in range(2)]
    assert min(2 * plain[0], policy.backoff_max) == pytest.approx(plain[1])
    assert plain[0] <= plain[1]


@given(policy=policies, doublings=st.integers(0, 20), low=rolls, high=rolls)
def test_a_higher_roll_is_a_longer_delay(
    policy: Policy, doublings: int, low: float, high: float
) -> None:
    """And the jitter is a share of the plain delay, either way."""
    assume(low <= high)
    plain = min(policy.backoff_max, policy.backoff_initial * 2.0**doublings)
    delays = [backoff(policy, doublings, roll) for roll in (0.0, low, high, 1.0)]
    assert sorted(delays) == delays
    assert plain * (1.0 - policy.jitter) == pytest.approx(delays[0])
    assert min(policy.backoff_max, plain * (1.0 + policy.jitter)) == pytest.approx(delays[-1])
