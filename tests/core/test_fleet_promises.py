"""What holds for a pool's slots in any order of loads, failures, reloads, scalings and holds."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from supervisord_llm.core import fleet
from supervisord_llm.core.fleet import SERVING, Action, Want
from supervisord_llm.core.words import PlannedReason, SlotState
from tests.core.fleet_simulation import Pool, Slot

MODES = st.sampled_from(["surge", "surge", "restart"])
PATIENCE = 400
"""More events than any pool here needs to come to rest."""


class Watched(Pool):
    """A pool that refuses what the planner may not do."""

    def check(self, action: Action) -> None:
        """No action may cost what it is there to protect."""
        if isinstance(action, fleet.Add):
            free = set(range(len(self.slots) + 1)) - self.slots.keys()
            assert min(free) == action.index, "not the lowest free number"
            assert self.want.loaded
            return
        each = self.slots[action.index]
        match action:
            case fleet.Leave(_, PlannedReason.RELOAD | PlannedReason.RECYCLE) if each.serving:
                ready = [other for other in self.staying if other.replaces == each.index]
                assert each.replaces is not None or ready[0].serving, "drained too early"
            case fleet.Replace():
                assert not each.held
                surge = self.want.reload == "surge"
                assert not (surge and each.serving), "drained without a replacement"
            case fleet.Start() | fleet.Stop() | fleet.Activate() | fleet.Rest() | fleet.KeepOld():
                assert not each.held, "an operator's slot was touched"
            case fleet.Remove():
                assert each.leaving
            case _:
                pass  # taking new settings, and leaving otherwise, cost nothing that is protected


class Fleet(RuleBasedStateMachine):
    """A pool, and the world around it."""

    @initialize(
        workers=st.integers(1, 3), standby=st.integers(0, 2), mode=MODES, loaded=st.booleans()
    )
    def is_made(self, workers: int, standby: int, mode: str, *, loaded: bool) -> None:
        """A pool whose slots load, or that waits for its first request."""
        want = Want(
            workers=workers,
            standby=standby,
            revision=1,
            reload="surge" if mode == "surge" else "restart",
            loaded=loaded,
        )
        self.pool = Watched(want)

    pool: Watched

    def slots(self, *kinds: SlotState) -> Sequence[int]:
        """The slots in one of these states."""
        return [index for index, each in self.pool.slots.items() if each.machine.kind in kinds]

    def pick(self, data: st.DataObject, *kinds: SlotState) -> int | None:
        """One of the slots in one of these states, if there is one."""
        found = self.slots(*kinds)
        return data.draw(st.sampled_from(found)) if found else None

    # The world ----------------------------------------------------------------

    @rule(data=st.data())
    def a_model_is_loaded(self, data: st.DataObject) -> None:
        """A slot begins to serve."""
        if (index := self.pick(data, SlotState.STARTING)) is not None:
            self.pool.ready(index)

    @rule()
    def all_models_are_loaded(self) -> None:
        """Every slot that loads begins to serve, one after the other."""
        for index in self.slots(SlotState.STARTING):
            if index in self.slots(SlotState.STARTING):
                self.pool.ready(index)

    @rule(data=st.data())
    def a_request_comes(self, data: st.DataObject) -> None:
        """It goes to a slot that may take it."""
        free = [
            each.index
            for each in self.pool.slots.values()
            if each.active and each.machine.takes_work
        ]
        if free:
            self.pool.takes(data.draw(st.sampled_from(free)))

    @rule(data=st.data())
    def a_request_ends(self, data: st.DataObject) -> None:
        """A draining slot may have waited for it."""
        index = self.pick(data, SlotState.BUSY, SlotState.DRAINING)
        if index is not None and self.pool.slots[index].machine.in_flight:
            self.pool.ends(index)

    @rule(data=st.data())
    def a_worker_fails(self, data: st.DataObject) -> None:
        """Loading, serving or draining."""
        index = self.pick(data, SlotState.STARTING, *SERVING, SlotState.DRAINING)
        if index is not None:
            self.pool.fails(index)

    @rule(data=st.data())
    def a_worker_is_gone(self, data: st.DataObject) -> None:
        """It was on its way out."""
        index = self.pick(data, SlotState.QUARANTINED, SlotState.DRAINING)
        if index is not None and not self.waits_for_work(index):
            self.pool.gone(index)

    def waits_for_work(self, index: int) -> bool:
        """Whether a slot drains something still."""
        machine = self.pool.slots[index].machine
        return machine.kind is SlotState.DRAINING and machine.in_flight > 0

    @rule(data=st.data())
    def a_backoff_ends(self, data: st.DataObject) -> None:
        """A slot starts again."""
        if (index := self.pick(data, SlotState.BACKOFF)) is not None:
            self.pool.wakes(index)

    # Wishes -------------------------------------------------------------------

    @rule()
    def is_reloaded(self) -> None:
        """Each worker is to be replaced."""
        self.settles_without_loss(self.pool.reload)

    @rule(mode=MODES)
    def changes_how_it_is_reloaded(self, mode: str) -> None:
        """Perhaps in the middle of it."""
        self.pool.wish(reload=mode)

    @rule(workers=st.integers(1, 4), standby=st.integers(0, 2))
    def is_scaled(self, workers: int, standby: int) -> None:
        """More or fewer."""
        self.settles_without_loss(
            lambda: self.pool.wish(workers=workers, standby=standby), workers + standby
        )

    @rule(loaded=st.booleans())
    def is_loaded_or_unloaded(self, *, loaded: bool) -> None:
        """As its requests come and go."""
        self.pool.wish(loaded=loaded)

    @rule(data=st.data())
    def has_a_worker_that_reached_a_limit(self, data: st.DataObject) -> None:
        """It is to be recycled."""
        index = self.pick(data, *SERVING)
        if index is not None:
            self.settles_without_loss(lambda: self.pool.recycle(index))

    @rule(data=st.data())
    def has_a_slot_drained_by_an_operator(self, data: st.DataObject) -> None:
        """Whatever it is doing."""
        if self.pool.slots:
            self.pool.hold(data.draw(st.sampled_from(sorted(self.pool.slots))))

    @rule(data=st.data())
    def has_a_slot_resumed_by_an_operator(self, data: st.DataObject) -> None:
        """One that was held, or parked."""
        held = [index for index, each in self.pool.slots.items() if each.held and not each.leaving]
        parked = self.slots(SlotState.PARKED) if self.pool.want.loaded else []
        if resumable := sorted({*held, *parked}):
            self.pool.resume(data.draw(st.sampled_from(resumable)))

    def settles_without_loss(self, wish: object, wanted: int | None = None) -> None:
        """A planned change costs nothing that is wanted; in place it costs one slot at a time."""
        assert callable(wish)
        before = self.serving()
        wish()
        one = 1 if self.pool.want.reload == "restart" else 0
        wanted = self.pool.want.slots if wanted is None else wanted
        assert min(before, wanted) - one <= self.serving()

    def serving(self) -> int:
        """How many slots serve and are not about to go."""
        return sum(each.serving for each in self.pool.staying)

    # Promises -----------------------------------------------------------------

    @invariant()
    def has_at_most_one_slot_too_many_and_none_too_few(self) -> None:
        """The one that is to replace another; those on their way out come on top."""
        if not hasattr(self, "pool"):
            return
        staying, wanted = len(self.pool.staying), self.pool.want.slots
        surges = [each for each in self.pool.staying if each.replaces is not None]
        assert len(surges) <= 1
        assert staying - len(surges) <= wanted
        if self.pool.want.loaded:
            assert wanted == staying - len(surges)

    @invariant()
    def lets_exactly_the_wanted_number_take_work(self) -> None:
        """Or all that serve, while those are fewer."""
        if hasattr(self, "pool"):
            expected = min(self.pool.want.workers, self.serving())
            assert expected == len(self.pool.active())

    @invariant()
    def is_up_or_down_as_wanted(self) -> None:
        """What is not held is started if it is loaded, and else stops."""
        if not hasattr(self, "pool"):
            return
        for each in self.pool.staying:
            stops = each.machine.kind is SlotState.STOPPED or each.view.stopping
            if self.pool.want.loaded and not each.held:
                assert not stops
            if not self.pool.want.loaded:
                assert stops or each.machine.kind is SlotState.PARKED

    @precondition(lambda self: self.pool.want.loaded)
    @rule(reload=st.booleans())
    def comes_to_rest_as_wanted_if_nothing_fails(self, *, reload: bool) -> None:
        """All slots of the last settings serve, but for those that somebody has to see to."""
        if reload:
            self.pool.reload()
        self.let_it_settle()
        views = [each.view for each in self.pool.slots.values()]
        assert not fleet.in_progress(views, self.pool.want)
        assert self.pool.want.slots == len(views)
        for each in self.pool.slots.values():
            assert each.serving or each.held or each.machine.kind is SlotState.PARKED
            assert each.view.revision == self.pool.want.revision or self.was_kept(each)
            assert not (reload and each.machine.kind is SlotState.PARKED)

    def was_kept(self, each: Slot) -> bool:
        """Whether a slot's replacement has failed."""
        return each.kept == self.pool.want.revision

    def let_it_settle(self) -> None:
        """Nothing fails, and what is waited for happens, until nothing is waited for."""
        for _ in range(PATIENCE):
            index = min(
                self.slots(
                    SlotState.STARTING,
                    SlotState.DRAINING,
                    SlotState.QUARANTINED,
                    SlotState.BACKOFF,
                ),
                default=None,
            )
            if index is None:
                return
            match self.pool.slots[index].machine.kind:
                case SlotState.STARTING:
                    self.pool.ready(index)
                case SlotState.BACKOFF:
                    self.pool.wakes(index)
                case _ if self.waits_for_work(index):
                    self.pool.ends(index)
                case _:
                    self.pool.gone(index)
        raise AssertionError("it never comes to rest")

    def teardown(self) -> None:
        """In the end nothing is left of a pool that is to have no slots."""
        if not hasattr(self, "pool"):
            return
        self.pool.wish(workers=0, standby=0)
        self.let_it_settle()
        assert {} == self.pool.slots


def test_a_pool_keeps_its_promises_in_any_order_of_events() -> None:
    """Loads, failures, reloads, scalings, unloading and operators in any order."""
    run_state_machine_as_test(Fleet)
