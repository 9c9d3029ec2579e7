"""What a pool does with its slots when it is scaled or reloaded."""

from __future__ import annotations

from supervisord_llm.core import fleet
from supervisord_llm.core.fleet import (
    Activate,
    Add,
    KeepOld,
    Leave,
    Remove,
    Replace,
    Rest,
    Start,
    Update,
)
from supervisord_llm.core.words import PlannedReason
from tests.core.fleet_simulation import back_off, park, pool

RELOAD, RECYCLE = PlannedReason.RELOAD, PlannedReason.RECYCLE
SCALE_DOWN, IDLE = PlannedReason.SCALE_DOWN, PlannedReason.IDLE


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


def test_in_place_what_parks_one_slot_is_not_done_to_the_others() -> None:
    """They keep serving as they are until the next reload, which begins with the one that parks."""
    made = pool(3, reload="restart")
    made.reload()
    made.gone(0)
    park(made, 0)
    assert [KeepOld(1, 0), KeepOld(2, 0)] == made.done
    assert not fleet.in_progress([each.view for each in made.slots.values()], made.want)
    made.reload()
    assert [Replace(0, RELOAD)] == made.done
    made.ready(0)
    assert [Replace(1, RELOAD)] == made.done


def test_in_place_a_slot_that_was_parked_or_is_held_does_not_hold_up_the_others() -> None:
    """It was not the new settings that took it down."""
    made = pool(3, reload="restart")
    park(made, 0)
    made.hold(2)
    made.gone(2)
    made.recycle(1)
    assert [Replace(1, RECYCLE)] == made.done
