"""When a worker has served for long enough."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisord_llm.core.recycling import Limits, due, next_look, own_requests

MIB = 2**20
shares = st.floats(0.0, 1.0)


def reached(
    limits: Limits,
    *,
    age: float = 0.0,
    served: int = 0,
    held: int | None = None,
    roll: float = 0.0,
) -> str | None:
    """What is due for a worker that was started at 100, with a jitter of a fifth."""
    return due(
        limits,
        started_at=100.0,
        served=served,
        held_bytes=held,
        now=100.0 + age,
        jitter=0.2,
        roll=roll,
    )


@pytest.mark.parametrize("limits", [Limits(), Limits(max_age=0.0, max_requests=0, memory_soft=0)])
def test_without_limits_a_worker_serves_for_ever(limits: Limits) -> None:
    """Zero and none are the same."""
    assert reached(limits, age=1e9, served=10**9, held=2**50) is None
    assert next_look(limits, started_at=100.0, jitter=0.2, roll=0.5) is None


def test_a_worker_is_due_at_its_age_and_not_before() -> None:
    """And it is known when to look."""
    limits = Limits(max_age=3600.0)
    assert reached(limits, age=3599.9) is None
    assert "it is 3600 s old (max_age 3600 s)" == reached(limits, age=3600.0)
    assert 3700.0 == next_look(limits, started_at=100.0, jitter=0.2, roll=0.0)


def test_a_worker_is_due_after_its_last_request_and_not_before() -> None:
    """Counted as they end."""
    limits = Limits(max_requests=500)
    assert reached(limits, served=499) is None
    assert "it has served 500 requests (max_requests 500)" == reached(limits, served=500)
    assert next_look(limits, started_at=100.0, jitter=0.2, roll=0.0) is None


def test_a_worker_is_due_by_its_memory_as_it_is_known() -> None:
    """Memory that is not known is none; nothing of this limit is left to chance."""
    limits = Limits(memory_soft=2048 * MIB)
    assert reached(limits) is None
    assert reached(limits, held=2048 * MIB - 1, roll=1.0) is None
    expected = "it holds 2050 MiB (memory_soft 2048 MiB)"
    assert expected == reached(limits, held=2050 * MIB, roll=1.0)
    assert reached(limits, held=2048 * MIB) is not None


def test_workers_that_were_started_together_reach_their_limits_apart() -> None:
    """Each a share of its own earlier, never later."""
    limits = Limits(max_age=1000.0, max_requests=100)
    looks = [next_look(limits, started_at=0.0, jitter=0.2, roll=roll) for roll in (0.0, 0.5, 1.0)]
    assert [1000.0, 900.0, 800.0] == looks
    assert [100, 90, 80] == [own_requests(100, 0.2, roll) for roll in (0.0, 0.5, 1.0)]
    assert reached(limits, served=90, roll=0.4) is None
    assert reached(limits, served=90, roll=0.5) is not None


def test_a_worker_serves_one_request_at_least() -> None:
    """However much is left to chance."""
    assert 1 == own_requests(1, 1.0, 1.0)
    assert reached(Limits(max_requests=1)) is None


@given(age=st.floats(1.0, 1e6), requests=st.integers(1, 10**6), jitter=shares, roll=shares)
def test_a_worker_s_own_limit_is_within_its_share_of_the_configured_one(
    age: float, requests: int, jitter: float, roll: float
) -> None:
    """And what is due at the look is due."""
    limits = Limits(max_age=age, max_requests=requests)
    at = next_look(limits, started_at=0.0, jitter=jitter, roll=roll)
    assert at is not None
    assert age * (1.0 - jitter) <= at * (1.0 + 1e-9)
    assert at <= age
    assert requests * (1.0 - jitter) - 1.0 <= own_requests(requests, jitter, roll) <= requests
    said = due(limits, started_at=0.0, served=0, held_bytes=None, now=at, jitter=jitter, roll=roll)
    assert said is not None
