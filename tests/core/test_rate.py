"""How soon it is worth trying again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisord_llm.core import rate
from supervisord_llm.core.rate import State


def steadily(count: int, every: float) -> State:
    """A pool that has always had something to do, and ended one request after another."""
    state = rate.began(State(), 0.0)
    for number in range(1, count + 1):
        state = rate.ended(state, number * every, left=1)
    return state


@pytest.mark.parametrize(
    ("every", "expected"), [(0.01, 1.0), (1.0, 1.0), (1.5, 2.0), (7.0, 7.0), (200.0, 200.0)]
)
def test_a_place_is_free_when_one_request_ends(every: float, expected: float) -> None:
    """At the rate that was seen, in whole seconds, rounded up."""
    state = steadily(5, every)
    assert expected == rate.retry_after(state, None, 5 * every)


def test_a_slot_that_has_yet_to_start_is_waited_for() -> None:
    """Nothing ends before it serves; a start that is overdue adds nothing."""
    state = steadily(4, 2.0)
    assert 32.0 == rate.retry_after(state, 30.0, 8.0)
    assert 2.0 == rate.retry_after(state, -1.0, 8.0)
    assert 300.0 == rate.retry_after(state, 3600.0, 8.0)


@pytest.mark.parametrize(("now", "expected"), [(0.0, 1.0), (3.2, 4.0), (5.0, 5.0), (90.0, 5.0)])
def test_before_anything_is_seen_it_is_soon(now: float, expected: float) -> None:
    """One second to five, more the longer there has been something to do."""
    assert expected == rate.retry_after(rate.began(State(), 0.0), None, now)
    assert 1.0 == rate.retry_after(State(), None, now)


def test_time_without_work_is_not_held_against_a_pool() -> None:
    """Neither the pause before work nor that after it makes the pool look slow."""
    state = rate.ended(rate.began(State(), 0.0), 1.0, left=0)
    assert 1.0 == rate.retry_after(state, None, 200.0)
    state = rate.began(state, 200.0)
    state = rate.ended(state, 201.0, left=0)
    assert 1.0 == rate.retry_after(state, None, 201.0)


def test_work_that_was_withdrawn_is_no_work() -> None:
    """What waited is gone, so nothing is overdue."""
    state = rate.idle(rate.began(steadily(1, 1.0), 1.0))
    assert 1.0 == rate.retry_after(state, None, 200.0)
    assert 2.0 == rate.ended(rate.began(state, 200.0), 202.0, left=0).ends[-1].took


def test_only_the_first_of_what_waits_begins_it() -> None:
    """Those that come later do not make it look younger."""
    state = rate.began(rate.began(State(), 0.0), 9.0)
    assert 10.0 == rate.ended(state, 10.0, left=0).ends[-1].took


def test_an_end_without_a_beginning_took_no_time() -> None:
    """It says nothing of how fast the pool is."""
    assert 0.0 == rate.ended(State(), 10.0, left=0).ends[-1].took


def test_a_pool_that_has_stopped_ending_requests_looks_slow() -> None:
    """An end that is overdue counts as if it came now; one that is not does not."""
    state = steadily(2, 10.0)
    assert 10.0 == rate.retry_after(state, None, 30.0)
    assert 60.0 == rate.retry_after(state, None, 120.0)


def test_what_is_long_ago_is_forgotten() -> None:
    """After five minutes, and beyond the last 32."""
    state = steadily(1, 100.0)
    assert 100.0 == rate.retry_after(rate.idle(state), None, 399.9)
    assert 1.0 == rate.retry_after(rate.idle(state), None, 400.0)
    state = rate.ended(rate.began(rate.idle(state), 1000.0), 1001.0, left=1)
    assert 1 == len(state.ends)
    assert 32 == len(steadily(100, 1.0).ends)


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["began", "ended", "last", "idle"]), st.floats(0, 90))
    ),
    starting=st.none() | st.floats(-10, 1000),
)
def test_the_answer_is_a_believable_number(
    steps: list[tuple[str, float]], starting: float | None
) -> None:
    """Whole seconds, 1 to 300, and little is remembered, whatever happens."""
    state, now = State(), 0.0
    for step, after in steps:
        now += after
        if step == "began":
            state = rate.began(state, now)
        elif step == "idle":
            state = rate.idle(state)
        else:
            state = rate.ended(state, now, left=int(step == "ended"))
        seconds = rate.retry_after(state, starting, now)
        assert 1 <= seconds <= 300
        assert seconds == int(seconds)
        assert len(state.ends) <= 32
