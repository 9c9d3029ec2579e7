"""Which of a pool's slots take work, and what becomes of them when its model is unloaded."""

from __future__ import annotations

import pytest

from supervisord_llm.core import fleet
from supervisord_llm.core.fleet import (
    Activate,
    Leave,
    Replace,
    Rest,
    SlotView,
    Start,
    Stop,
    Update,
)
from supervisord_llm.core.words import PlannedReason, SlotState
from tests.core.fleet_simulation import back_off, park, pool

RELOAD, RECYCLE = PlannedReason.RELOAD, PlannedReason.RECYCLE
SCALE_DOWN, IDLE = PlannedReason.SCALE_DOWN, PlannedReason.IDLE


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
