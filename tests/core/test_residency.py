"""Which pools are loaded: on demand, by turns on a shared device, and never for being looked at."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisord_llm.core.residency import (
    BREATH_SECONDS,
    LINGER_SECONDS,
    PATIENCE_STEPS,
    Residence,
    Resident,
    plan,
)
from supervisord_llm.core.words import PlannedReason

AGE_STEP = 5.0
PATIENCE = PATIENCE_STEPS * AGE_STEP
LOADED = Residence(loaded=True)
IDLE = Residence(loaded=False, reason=PlannedReason.IDLE)
EXCLUSIVE = Residence(loaded=False, reason=PlannedReason.EXCLUSIVE)


def resident(name: str = "a", **facts: object) -> Resident:
    """An on-demand pool that nobody has asked for."""
    unasked = Resident(
        pool=name,
        group="",
        eager=False,
        idle_ttl=600.0,
        age_step=AGE_STEP,
        wanted=False,
        present=False,
        can_serve=True,
        serving_since=None,
        in_flight=0,
        waiting_since=None,
        idle_since=0.0,
    )
    return msgspec.structs.replace(unasked, **facts)


def loaded(name: str = "a", since: float = 0.0, **facts: object) -> Resident:
    """A pool that serves."""
    return resident(name, **{"wanted": True, "present": True, "serving_since": since, **facts})


def test_a_pool_on_demand_stays_unloaded_until_a_request_waits_and_then_loads() -> None:
    """Nothing but a waiting request loads it."""
    assert plan([resident()], 1e6) == plan([resident()], 0.0)
    assert plan([resident()], 1.0).pools["a"] == IDLE
    assert plan([resident(waiting_since=1.0)], 1.0).pools["a"] == LOADED


def test_an_eager_pool_with_a_device_of_its_own_is_always_loaded() -> None:
    """It waits for nobody."""
    assert plan([resident(eager=True)], 0.0).pools["a"] == LOADED


def test_a_pool_is_unloaded_when_nobody_came_for_its_idle_time_and_not_before() -> None:
    """Counted from the last request, or from its load where none came."""
    pool = loaded(since=100.0, idle_since=50.0, idle_ttl=10.0)
    early = plan([pool], 109.9)
    assert (early.pools["a"], early.look_at) == (LOADED, 110.0)
    assert plan([pool], 110.0).pools["a"] == IDLE
    assert plan([msgspec.structs.replace(pool, in_flight=1)], 1e6).pools["a"] == LOADED


def test_a_load_that_nobody_waits_for_any_more_is_dropped_after_a_moment() -> None:
    """The moment is for a client that tries again."""
    loading = resident(wanted=True, present=True, idle_since=7.0)
    assert plan([loading], 7.0 + LINGER_SECONDS / 2).pools["a"] == LOADED
    assert plan([loading], 7.0 + LINGER_SECONDS).pools["a"] == IDLE


def test_the_next_model_is_loaded_only_when_nothing_is_left_of_the_one_before() -> None:
    """Two models on one device are what the group forbids."""
    leaving = resident("a", group="gpu", present=True)
    waiting = resident("b", group="gpu", waiting_since=1.0)
    assert plan([leaving, waiting], 5.0).pools == {"a": EXCLUSIVE, "b": EXCLUSIVE}
    gone = msgspec.structs.replace(leaving, present=False)
    assert plan([gone, waiting], 5.0).pools == {"a": EXCLUSIVE, "b": LOADED}


def test_a_free_device_goes_to_the_longest_waiting_and_else_to_the_eager_pool() -> None:
    """A pool beyond help is passed over."""
    eager = resident("a", group="gpu", eager=True)
    second = resident("b", group="gpu", waiting_since=2.0)
    first = resident("c", group="gpu", waiting_since=1.0)
    assert plan([eager, second, first], 3.0).pools["c"] == LOADED
    parked = msgspec.structs.replace(first, can_serve=False)
    assert plan([eager, second, parked], 3.0).pools["b"] == LOADED
    assert plan([eager, resident("b", group="gpu")], 3.0).pools["a"] == LOADED
    assert plan([resident("b", group="gpu")], 3.0).pools["b"] == EXCLUSIVE


def test_the_loaded_model_goes_first_until_the_other_has_waited_long_enough() -> None:
    """And what runs is finished: giving way is a drain, decided here and done by the slots."""
    holder = loaded("a", group="gpu", in_flight=1, waiting_since=90.0)
    rival = resident("b", group="gpu", waiting_since=80.0)
    before = plan([holder, rival], 80.0 + PATIENCE - 0.1)
    assert (before.pools["a"], before.look_at) == (LOADED, 80.0 + PATIENCE)
    assert plan([holder, rival], 80.0 + PATIENCE).pools == {"a": EXCLUSIVE, "b": EXCLUSIVE}


def test_a_pool_that_took_over_serves_for_a_while_whatever_waits_elsewhere() -> None:
    """Otherwise two models in demand would be swapped for every request."""
    holder = loaded("a", since=1000.0, group="gpu", in_flight=1)
    rival = resident("b", group="gpu", waiting_since=10.0)
    assert plan([holder, rival], 1000.0 + PATIENCE - 0.1).pools["a"] == LOADED
    assert plan([holder, rival], 1000.0 + PATIENCE).pools["a"] == EXCLUSIVE


def test_a_holder_without_work_or_beyond_help_gives_way_at_once() -> None:
    """There is nothing to protect."""
    rival = resident("b", group="gpu", waiting_since=10.0)
    assert plan([loaded("a", group="gpu"), rival], 10.0).pools["a"] == EXCLUSIVE
    unwanted = resident("a", group="gpu", wanted=True, present=True, idle_since=10.0)
    assert plan([unwanted, rival], 10.0).pools["a"] == EXCLUSIVE
    parked = loaded("a", group="gpu", can_serve=False, waiting_since=1.0)
    assert plan([parked, rival], 10.0).pools["a"] == EXCLUSIVE


def test_a_holder_that_has_just_answered_is_given_a_moment() -> None:
    """Its client may ask again; without that, two clients would have a load for each request."""
    rival = resident("b", group="gpu", waiting_since=10.0)
    answered = loaded("a", group="gpu", idle_since=20.0)
    early = plan([answered, rival], 20.0)
    assert (early.pools["a"], early.look_at) == (LOADED, 20.0 + BREATH_SECONDS)
    assert plan([answered, rival], 20.0 + BREATH_SECONDS).pools["a"] == EXCLUSIVE


def test_the_moment_is_within_what_the_other_may_wait() -> None:
    """A client that asks again and again cannot keep the device by it."""
    until = 10.0 + PATIENCE
    rival = resident("b", group="gpu", waiting_since=10.0)
    answered = loaded("a", group="gpu", idle_since=until - BREATH_SECONDS / 2)
    assert plan([answered, rival], until - BREATH_SECONDS / 4).look_at == until
    assert plan([answered, rival], until).pools["a"] == EXCLUSIVE


def test_a_load_that_somebody_waits_for_is_finished_before_the_next_switch() -> None:
    """Dropped half-way it would have served nobody."""
    loading = resident("a", group="gpu", wanted=True, present=True, waiting_since=1.0)
    rival = resident("b", group="gpu", waiting_since=0.0)
    assert plan([loading, rival], 1e6).pools["a"] == LOADED


def test_the_eager_model_of_a_device_comes_back_when_its_guest_is_idle() -> None:
    """The guest keeps its idle time."""
    guest = loaded("a", group="gpu", idle_ttl=10.0)
    usual = resident("b", group="gpu", eager=True)
    assert plan([guest, usual], 9.0).pools["a"] == LOADED
    assert plan([guest, usual], 10.0).pools["a"] == EXCLUSIVE
    alone = [guest, resident("b", group="gpu")]
    assert plan(alone, 10.0).pools["a"] == IDLE
    assert (
        plan([loaded("a", group="gpu", eager=True), resident("b", group="gpu")], 1e6).pools["a"]
        == LOADED
    )


residents = st.builds(
    resident,
    name=st.sampled_from("abcdef"),
    group=st.sampled_from(["", "gpu0", "gpu1"]),
    eager=st.booleans(),
    idle_ttl=st.floats(0.0, 100.0),
    wanted=st.booleans(),
    present=st.booleans(),
    can_serve=st.booleans(),
    serving_since=st.none() | st.floats(0.0, 100.0),
    in_flight=st.integers(0, 2),
    waiting_since=st.none() | st.floats(0.0, 100.0),
    idle_since=st.floats(0.0, 100.0),
)


@given(
    st.lists(residents, unique_by=lambda each: each.pool, max_size=6),
    st.floats(0.0, 300.0),
)
def test_a_group_never_has_two_models_whatever_the_facts(
    members: list[Resident], now: float
) -> None:
    """And none is loaded beside one that is still leaving."""
    held: set[str] = set()
    for index, each in enumerate(members):
        if each.group and each.wanted:
            if each.group in held:
                members[index] = msgspec.structs.replace(each, wanted=False)
            held.add(each.group)
    decided = plan(members, now)
    for group in ("gpu0", "gpu1"):
        chosen = [
            each for each in members if each.group == group and decided.pools[each.pool].loaded
        ]
        assert len(chosen) <= 1
        if chosen and not chosen[0].wanted:
            assert not any(each.present for each in members if each.group == group)
    assert decided.look_at is None or decided.look_at > now


@pytest.mark.parametrize("steps", [50])
def test_two_models_in_constant_demand_are_swapped_once_per_patience(steps: int) -> None:
    """The bound on waiting and the bound on switching are the same figure."""
    holder, switches, now = "a", 0, 0.0
    since = 0.0
    while now < steps * PATIENCE:
        now += 1.0
        other = "b" if holder == "a" else "a"
        pools = [
            loaded(holder, since=since, group="gpu", in_flight=1, waiting_since=now - 1.0),
            resident(other, group="gpu", waiting_since=since),
        ]
        if not plan(pools, now).pools[holder].loaded:
            holder, since, switches = other, now, switches + 1
    assert switches == pytest.approx(steps, abs=2)
