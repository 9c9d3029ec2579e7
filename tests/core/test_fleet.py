"""What a pool does with its slots when it is scaled, reloaded, unloaded, or loses one."""

from __future__ import annotations

import pytest

from supervisord_llm.core import fleet
from supervisord_llm.core.fleet import (
    Activate,
    Add,
    KeepOld,
    Leave,
    Remove,
    Replace,
    Rest,
    SlotView,
    Start,
    Stop,
    Update,
    Want,
)
from supervisord_llm.core.words import PlannedReason, SlotState
from tests.core.fleet_simulation import Pool

RELOAD, RECYCLE = PlannedReason.RELOAD, PlannedReason.RECYCLE
SCALE_DOWN, IDLE = PlannedReason.SCALE_DOWN, PlannedReason.IDLE


def pool(workers: int, *, ready: bool = True, **wants: object) -> Pool:
    """A pool of so many workers, all of which serve."""
    made = Pool(Want(**{"workers": workers, "revision": 1, **wants}))  # type: ignore[arg-type]
    if ready:
        made.ready(*made.slots)
    return made


def park(of: Pool, index: int) -> None:
    """Let a slot fail until it is parked."""
    while of.states()[index] != "parked":
        if of.states()[index] == "backoff":
            of.wakes(index)
        of.fails(index)
        of.gone(index)


def back_off(of: Pool, index: int) -> None:
    """Let a slot fail until it waits for its next start."""
    while of.states()[index] != "backoff":
        of.fails(index)
        of.gone(index)


# Scale ------------------------------------------------------------------------


def test_a_pool_begins_with_the_slots_that_are_wanted_numbered_from_zero() -> None:
    """Those on standby included; each is made and started."""
    made = pool(2, ready=False, standby=1)
    assert {0: "starting", 1: "starting", 2: "starting"} == made.states()
    assert [Add(0), Start(0), Add(1), Start(1), Add(2), Start(2)] == made.done


def test_a_pool_that_grows_takes_the_lowest_free_numbers() -> None:
    """A number is free once its slot is gone."""
    made = pool(3)
    made.fails(1)
    made.wish(workers=2)
    assert [Leave(1, SCALE_DOWN)] == made.done
    made.wish(workers=4)
    assert [Add(3), Start(3), Add(4), Start(4)] == made.done
    made.gone(1)
    assert [Remove(1)] == made.done
    made.wish(workers=5)
    assert [Add(1), Start(1)] == made.done


def test_a_pool_that_shrinks_gives_up_first_what_serves_least() -> None:
    """Parked and in backoff, then loading, then on standby, then by number from above."""
    made = pool(6, standby=1)
    park(made, 0)
    back_off(made, 1)
    made.fails(2)
    made.gone(2)
    assert ["parked", "backoff", "starting", *["ready"] * 4] == list(made.states().values())
    made.wish(workers=4)
    left = [Leave(1, SCALE_DOWN), Leave(0, SCALE_DOWN)]
    assert [Rest(2), *left, Remove(0), Remove(1)] == made.done
    made.wish(workers=3)
    assert [Leave(2, SCALE_DOWN)] == [each for each in made.done if isinstance(each, Leave)]
    made.gone(2)
    assert [3, 4, 5] == made.active()
    made.wish(workers=2)
    assert [Rest(5), Leave(6, SCALE_DOWN)] == made.done


def test_of_the_slots_that_serve_one_on_standby_is_given_up_first_and_then_an_outdated_one() -> (
    None
):
    """Whatever their numbers: it saves a change of hands, or a replacement."""
    made = pool(2, ready=False, standby=1)
    made.ready(1, 2, 0)
    made.wish(standby=0)
    assert [Leave(0, SCALE_DOWN)] == made.done
    made = pool(2)
    made.reload()
    made.ready(2)
    made.gone(0)
    assert {0: 2, 1: 1, 2: 2} == {index: each.settings for index, each in made.slots.items()}
    made.wish(workers=1)
    left = [each for each in made.done if isinstance(each, Leave)]
    assert [Leave(0, SCALE_DOWN), Leave(1, SCALE_DOWN)] == left
    assert [2] == made.active()


def test_a_slot_that_an_operator_holds_counts_and_is_given_up_first() -> None:
    """No other is made in its place while it is held, and none that serves goes before it."""
    made = pool(3)
    made.hold(0)
    made.gone(0)
    assert [] == made.done
    made.wish(workers=2)
    assert [Leave(0, SCALE_DOWN), Remove(0)] == made.done
    assert [1, 2] == made.active()


def test_a_pool_that_shrinks_during_a_replacement_drops_what_is_not_needed() -> None:
    """The surge slot goes with the one that it was to replace, and alone it is not one too many."""
    made = pool(2)
    made.reload()
    assert [Add(2, like=0), Start(2)] == [each for each in made.done if not isinstance(each, Rest)]
    made.wish(workers=1)
    assert [Leave(1, SCALE_DOWN)] == [each for each in made.done if isinstance(each, Leave)]
    made.wish(workers=0)
    left = [each for each in made.done if isinstance(each, Leave)]
    assert [Leave(2, SCALE_DOWN), Leave(0, SCALE_DOWN)] == left


# Reload with surge --------------------------------------------------------------


def test_a_replacement_serves_before_the_old_one_drains_and_one_follows_the_other() -> None:
    """The next begins when nothing is left of the one before."""
    made = pool(2)
    made.takes(0)
    made.reload()
    assert [Add(2, like=0), Start(2), Rest(2)] == made.done
    made.ready(2)
    assert [Activate(2), Leave(0, RELOAD)] == made.done
    assert {0: "draining", 1: "ready", 2: "ready"} == made.states()
    made.ends(0)
    assert [] == made.done
    made.gone(0)
    assert [Remove(0), Add(0, like=1), Start(0), Rest(0)] == made.done
    made.ready(0)
    made.gone(1)
    assert [Remove(1)] == made.done
    assert {0: "ready", 2: "ready"} == made.states()


def test_where_the_replacement_fails_the_old_one_keeps_serving_until_the_next_reload() -> None:
    """Each of them tries once; nothing of it is felt."""
    made = pool(1)
    made.reload()
    made.fails(1)
    assert [KeepOld(0, 1), Leave(1, RELOAD)] == made.done
    made.gone(1)
    assert [Remove(1)] == made.done
    assert {0: "ready"} == made.states()
    made.recycle(0)
    assert [] == made.done
    made.reload()
    assert [Add(1, like=0), Start(1), Rest(1)] == made.done


def test_a_replacement_that_fails_once_the_old_one_leaves_is_a_slot_like_any_other() -> None:
    """It restarts by the pool's policy."""
    made = pool(1)
    made.takes(0)
    made.reload()
    made.ready(1)
    made.fails(1)
    assert [] == made.done
    made.gone(1)
    assert {0: "draining", 1: "starting"} == made.states()


def test_an_old_slot_that_fails_while_its_replacement_loads_is_left_to_its_policy() -> None:
    """Should the replacement fail, the old settings are what is left."""
    made = pool(1)
    made.reload()
    made.fails(0)
    made.gone(0)
    assert {0: "starting", 1: "starting"} == made.states()
    made.fails(1)
    assert [KeepOld(0, 1), Leave(1, RELOAD)] == made.done
    made.ready(0)
    made.gone(1)
    assert {0: "ready"} == made.states()
    assert 1 == made.slots[0].view.revision


def test_a_reload_during_a_replacement_begins_it_anew() -> None:
    """What loads with settings that are no more is dropped, and the last settings count."""
    made = pool(1)
    made.reload()
    made.reload()
    assert [Leave(1, RELOAD)] == made.done
    made.reload()
    assert [] == made.done
    made.gone(1)
    assert [Remove(1), Add(1, like=0), Start(1), Rest(1)] == made.done
    made.ready(1)
    made.gone(0)
    assert {1: "ready"} == made.states()
    assert made.want.revision == made.slots[1].view.revision


def test_a_replacement_that_an_operator_drains_is_given_up() -> None:
    """The old one keeps serving."""
    made = pool(1)
    made.reload()
    made.hold(1)
    assert [KeepOld(0, 1), Leave(1, RELOAD)] == made.done


def test_a_slot_that_an_operator_drains_needs_no_replacement() -> None:
    """It has the new settings when it is resumed."""
    made = pool(2)
    made.reload()
    made.hold(0)
    assert Leave(2, RELOAD) in made.done
    made.gone(0)
    assert [Update(0)] == made.done
    made.gone(2)
    made.resume(0)
    assert 2 == made.slots[0].view.revision


def test_what_does_not_serve_is_started_anew_in_its_place_at_once() -> None:
    """Parked, in backoff, loading, or being torn down: there is nothing to lose."""
    made = pool(5)
    park(made, 0)
    back_off(made, 1)
    made.fails(2)
    made.gone(2)
    made.fails(3)
    made.reload()
    replaced = [each for each in made.done if isinstance(each, Replace)]
    assert [Replace(index, RELOAD) for index in range(4)] == replaced
    assert ["starting", "starting", "draining", "quarantined"] == list(made.states().values())[:4]
    assert [2, 2, 2, 2, 1] == [made.slots[index].view.revision for index in range(5)]


def test_what_does_not_serve_is_started_anew_though_another_one_is_being_replaced() -> None:
    """Only what serves has to wait for its turn."""
    made = pool(2)
    made.reload()
    assert {0: "ready", 1: "ready", 2: "starting"} == made.states()
    made.fails(1)
    assert [Replace(1, RELOAD)] == [each for each in made.done if isinstance(each, Replace)]
    made.fails(0)
    assert [] == [each for each in made.done if isinstance(each, Replace)]


def test_a_slot_that_is_replaced_already_just_takes_newer_settings() -> None:
    """It need not be asked twice to finish."""
    made = pool(1, reload="restart")
    made.takes(0)
    made.reload()
    assert [Replace(0, RELOAD)] == made.done
    made.reload()
    assert [Update(0)] == made.done
    made.ends(0)
    made.gone(0)
    assert 3 == made.slots[0].worker


def test_a_worker_that_reached_a_limit_is_replaced_like_an_outdated_one() -> None:
    """Without a reload, and by the same settings."""
    made = pool(1)
    made.recycle(0)
    assert [Add(1, like=0), Start(1), Rest(1)] == made.done
    made.ready(1)
    assert [Activate(1), Leave(0, RECYCLE)] == made.done
    made.gone(0)
    assert {1: "ready"} == made.states()


def test_a_worker_that_ends_before_it_is_recycled_needs_no_replacement_any_more() -> None:
    """Its slot has a fresh one by itself."""
    made = pool(1)
    made.recycle(0)
    made.fails(0)
    assert [Leave(1, RECYCLE)] == made.done
    made.gone(1)
    made.gone(0)
    assert {0: "starting"} == made.states()


# Reload by restart --------------------------------------------------------------


def test_in_place_one_slot_after_the_other_is_drained_and_started_anew() -> None:
    """The next begins when the one before serves again."""
    made = pool(2, reload="restart")
    made.reload()
    assert [Replace(0, RELOAD)] == made.done
    made.gone(0)
    assert [] == made.done
    made.ready(0)
    assert [Replace(1, RELOAD)] == made.done
    made.gone(1)
    made.ready(1)
    assert [2, 2] == [each.view.revision for each in made.slots.values()]
    assert not fleet.in_progress([each.view for each in made.slots.values()], made.want)


def test_in_place_a_slot_that_parks_does_not_hold_up_the_others() -> None:
    """Nor does one that an operator holds."""
    made = pool(3, reload="restart")
    made.hold(2)
    made.gone(2)
    made.reload()
    made.gone(0)
    park(made, 0)
    assert [Replace(1, RELOAD)] == made.done


# Standby ------------------------------------------------------------------------


def test_as_many_slots_as_wanted_take_work_and_the_others_stand_by() -> None:
    """The first to serve take work; until enough serve, all may."""
    made = pool(2, ready=False, standby=2)
    made.ready(3, 2)
    assert [2, 3] == made.active()
    assert {Rest(0), Rest(1)} == set(made.done)
    made.ready(0, 1)
    assert [2, 3] == made.active()


def test_a_standby_slot_takes_over_in_the_turn_in_which_an_active_one_fails() -> None:
    """The one that failed stands by when it is back."""
    made = pool(1, standby=1)
    assert [0] == made.active()
    made.fails(0)
    assert [Activate(1), Rest(0)] == made.done
    made.gone(0)
    made.ready(0)
    assert [1] == made.active()


def test_a_standby_slot_takes_over_before_an_active_one_is_restarted() -> None:
    """The one on standby is replaced first, and is ready for the change of the other."""
    made = pool(1, standby=1, reload="restart")
    made.reload()
    assert [Replace(1, RELOAD)] == made.done
    made.gone(1)
    made.ready(1)
    assert [Activate(1), Replace(0, RELOAD), Rest(0)] == made.done


def test_of_too_many_active_slots_those_without_work_stand_by() -> None:
    """And of those the ones with the highest numbers."""
    made = pool(3)
    made.takes(2)
    made.wish(workers=1, standby=2)
    assert [Rest(0), Rest(1)] == made.done
    made.wish(workers=2, standby=1)
    assert [Activate(0)] == made.done
    made.slots[0].recycle = True
    made.wish(workers=1, standby=2)
    made.wish(workers=2, standby=1)
    assert Activate(1) in made.done


def test_one_that_is_to_be_replaced_stands_by_before_one_that_stays() -> None:
    """The other would have to take over from it soon."""
    made = pool(2)
    made.slots[0].recycle = True
    made.wish(workers=1, standby=1)
    assert [1] == made.active()


# Load ---------------------------------------------------------------------------


def test_a_pool_that_is_unloaded_stops_all_that_is_up_and_comes_back_when_loaded() -> None:
    """Parked slots stay parked, and a slot that waits for its next start waits no more."""
    made = pool(4)
    park(made, 0)
    back_off(made, 1)
    made.takes(2)
    made.wish(loaded=False)
    assert [Stop(1, IDLE), Stop(2, IDLE), Stop(3, IDLE)] == made.done
    made.gone(3)
    assert {0: "parked", 1: "stopped", 2: "draining", 3: "stopped"} == made.states()
    made.wish(loaded=True)
    assert [Start(1), Start(2), Start(3)] == made.done
    assert "busy" == made.states()[2]


def test_a_load_that_is_dropped_ends_at_once_and_one_that_is_wanted_again_follows() -> None:
    """There is nothing to finish, and never two workers in one slot."""
    made = pool(1, ready=False)
    made.wish(loaded=False)
    assert {0: "draining"} == made.states()
    made.wish(loaded=True)
    assert [Start(0)] == made.done
    made.gone(0)
    assert {0: "starting"} == made.states()


def test_a_pool_that_is_not_loaded_does_not_grow_and_takes_new_settings_as_it_is() -> None:
    """A slot that was parked for settings that are no more gets another chance at the next load."""
    made = pool(2)
    park(made, 0)
    made.wish(loaded=False)
    made.gone(1)
    made.wish(workers=3)
    assert [] == made.done
    made.reload()
    assert [Stop(0, RELOAD), Update(1), Update(0)] == made.done
    made.wish(loaded=True)
    assert {0: "starting", 1: "starting", 2: "starting"} == made.states()
    assert [2, 2, 2] == [each.worker for each in made.slots.values()]


def test_a_pool_that_is_loaded_with_new_settings_starts_nothing_with_the_old_ones() -> None:
    """Both wishes may come at once."""
    made = pool(1, ready=False, loaded=False)
    made.wish(loaded=True)
    made.wish(loaded=False)
    made.gone(0)
    made.wish(loaded=True, revision=2)
    assert [Update(0), Start(0)] == made.done
    assert 2 == made.slots[0].worker


def test_a_pool_that_is_unloaded_during_a_replacement_gives_it_up() -> None:
    """The old slot takes the new settings once it is down."""
    made = pool(1)
    made.reload()
    made.wish(loaded=False)
    assert [Leave(1, IDLE), Stop(0, IDLE)] == made.done
    made.gone(1)
    made.gone(0)
    assert {0: "stopped"} == made.states()
    assert 2 == made.slots[0].view.revision


def test_a_slot_that_an_operator_holds_is_not_started_by_a_load() -> None:
    """Only an operator brings it back."""
    made = pool(2)
    made.hold(0)
    made.gone(0)
    made.wish(loaded=False)
    made.gone(1)
    made.wish(loaded=True)
    assert [Start(1)] == made.done


def test_a_slot_on_its_way_out_that_was_resumed_is_asked_to_leave_again() -> None:
    """It has no place any more."""
    made = pool(2)
    made.takes(1)
    made.wish(workers=1)
    made.resume(1)
    assert [Leave(1, SCALE_DOWN)] == made.done


def test_a_change_is_in_progress_until_nothing_is_left_of_what_was_before() -> None:
    """A slot that is outdated, one that leaves, or one that is to replace another."""
    made = pool(1)

    def changing() -> bool:
        return fleet.in_progress([each.view for each in made.slots.values()], made.want)

    assert not changing()
    made.recycle(0)
    assert changing()
    made.ready(1)
    assert not made.slots[1].recycle
    assert changing(), "the old one drains"
    made.gone(0)
    assert not changing()
    surge = SlotView(index=1, state=SlotState.STARTING, revision=1, replaces=0)
    recovering = SlotView(index=0, state=SlotState.STARTING, revision=1)
    assert fleet.in_progress([recovering, surge], made.want)
    stale = SlotView(index=0, state=SlotState.PARKED, revision=0)
    assert fleet.in_progress([stale], made.want)


@pytest.mark.parametrize("standby", [0, 1, 2])
def test_a_reload_never_makes_a_pool_with_standby_slots_serve_with_fewer(standby: int) -> None:
    """Every one of them is replaced, those on standby too."""
    made = pool(2, standby=standby)
    made.reload()
    while fleet.in_progress([each.view for each in made.slots.values()], made.want):
        starting = [index for index, state in made.states().items() if state == "starting"]
        made.ready(*starting)
        assert 2 == len(made.active())
        for index in [index for index, state in made.states().items() if state == "draining"]:
            made.gone(index)
        assert 2 + standby <= made.serving
    assert {2} == {each.worker for each in made.slots.values()}
