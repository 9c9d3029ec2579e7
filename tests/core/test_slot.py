"""What holds for a slot whatever its workers do."""

from __future__ import annotations

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from supervisord_llm.core import slot
from supervisord_llm.core.effects import Arm, Elapsed
from supervisord_llm.core.restart import Policy
from supervisord_llm.core.slot import Next
from supervisord_llm.core.words import QuarantineReason, SlotState
from supervisord_llm.errors import InternalError

SERVING = (SlotState.READY, SlotState.BUSY, SlotState.CANCELLING)
DOWN = (SlotState.BACKOFF, SlotState.PARKED, SlotState.STOPPED)
policies = st.builds(
    Policy,
    backoff_initial=st.floats(0.1, 2.0),
    backoff_max=st.floats(2.0, 60.0),
    jitter=st.floats(0.0, 1.0),
    healthy_after=st.floats(1.0, 60.0),
    max_restarts=st.integers(0, 4),
    restart_window=st.floats(1.0, 600.0),
)
rolls = st.floats(0.0, 1.0)


class Slot(RuleBasedStateMachine):
    """A slot, and a model of the one process that may live in it."""

    @initialize(policy=policies)
    def is_made(self, policy: Policy) -> None:
        """A slot that has never been started."""
        self.now = 1000.0
        self.state = slot.State(policy=policy)
        self.generations: list[int] = []
        self.unfit: set[int] = set()
        self.process = False
        self.exited = False
        self.stop_asked = False
        self.armed: Arm | None = None

    state: slot.State

    def happens(self, event: object) -> tuple[slot.Effect, ...]:
        """Show the slot an event, and do with the process what it says."""
        before = self.state
        if isinstance(event, (slot.Gone, slot.SpawnFailed)):
            self.process = False
        self.state, effects = slot.step(before, event)
        for effect in effects:
            self.perform(effect)
        entered_down = self.state.kind in DOWN[1:] and before.kind is not self.state.kind
        assert entered_down == any(isinstance(effect, slot.TellDown) for effect in effects)
        assert before.generation <= self.state.generation
        return effects

    def perform(self, effect: slot.Effect) -> None:
        """Do with the process what the effect says, if it is allowed."""
        match effect:
            case slot.Spawn(generation):
                assert not self.process, "two workers in one slot"
                assert not self.generations or self.generations[-1] < generation
                assert self.state.generation == generation
                self.generations.append(generation)
                self.process, self.exited, self.stop_asked = True, False, False
            case slot.StopWorker():
                assert self.process
                self.stop_asked = True
            case slot.ExitedWorker():
                assert self.exited
            case slot.TellQuarantined():
                assert self.state.generation not in self.unfit
                self.unfit.add(self.state.generation)
            case Arm():
                assert self.now <= effect.at
                self.armed = effect
            case slot.TellRestart(delay=delay):
                assert 0.0 <= delay <= self.state.policy.backoff_max
            case slot.Offer():
                assert self.state.takes_work
            case _:
                pass  # an announcement

    @rule(seconds=st.floats(0.0, 100.0))
    def time_passes(self, seconds: float) -> None:
        """Events come later from here on."""
        self.now += seconds

    @rule()
    def is_started(self) -> None:
        """Somebody wants it up, perhaps again; whatever it was to do, it is not to stay down."""
        self.happens(slot.StartAsked(self.now))
        assert self.state.kind not in DOWN
        assert self.state.next is not Next.STOP

    @precondition(lambda self: self.state.kind is SlotState.STARTING and not self.exited)
    @rule(roll=rolls)
    def cannot_be_spawned(self, roll: float) -> None:
        """There is no process after all."""
        self.happens(slot.SpawnFailed(self.now, roll))

    @precondition(lambda self: self.process and not self.exited and self.state.kind not in SERVING)
    @rule(capacity=st.integers(1, 3))
    def says_that_it_is_ready(self, capacity: int) -> None:
        """The word of a worker counts only while it is starting."""
        unfit = self.state.kind is not SlotState.STARTING
        self.happens(slot.ReadyHeard(self.now, capacity))
        assert unfit == (self.state.kind is not SlotState.READY)

    @rule()
    def is_given_work(self) -> None:
        """Taken exactly where the slot says that it takes work."""
        took = self.state.takes_work
        in_flight = self.state.in_flight
        try:
            self.happens(slot.Assigned(self.now))
        except InternalError:
            assert not took
        else:
            assert took
            assert in_flight + 1 == self.state.in_flight

    @precondition(lambda self: self.state.in_flight and self.process)
    @rule(cancelled=st.booleans())
    def ends_a_request(self, *, cancelled: bool) -> None:
        """The terminal of one of its requests, as the counts allow."""
        if self.state.cancelling in (0, self.state.in_flight):
            cancelled = self.state.cancelling > 0
        self.happens(slot.Released(self.now, cancelled))

    @precondition(lambda self: self.process and self.state.in_flight > self.state.cancelling)
    @rule()
    def is_asked_to_cancel(self) -> None:
        """One more of its requests is to stop."""
        self.happens(slot.CancelBegan(self.now))

    @rule(reason=st.sampled_from(QuarantineReason))
    def is_condemned(self, reason: QuarantineReason) -> None:
        """Whatever it was doing, it serves no more."""
        self.happens(slot.Condemned(self.now, reason))
        assert self.state.kind not in (*SERVING, SlotState.STARTING, SlotState.DRAINING)

    @precondition(lambda self: self.process and not self.exited)
    @rule()
    def exits(self) -> None:
        """The process ends, asked to or not."""
        self.exited = True
        self.happens(slot.ExitSeen(self.now))
        assert self.state.kind in (SlotState.QUARANTINED, SlotState.DRAINING)

    @precondition(lambda self: self.process and self.exited)
    @rule(roll=rolls, charged=st.booleans())
    def is_reaped(self, roll: float, *, charged: bool) -> None:
        """What was planned for this moment happens; an end that is not charged leaves no mark."""
        next_, before, policy = self.state.next, self.state.history, self.state.policy
        self.happens(slot.Gone(self.now, roll, charged))
        if next_ is Next.STOP:
            assert SlotState.STOPPED == self.state.kind
        elif next_ is Next.START:
            assert SlotState.STARTING == self.state.kind
            assert before == self.state.history
        elif not charged:
            recent = [at for at in before.failures if self.now - at < policy.restart_window]
            worn_out = len(recent) > policy.max_restarts
            assert (SlotState.PARKED if worn_out else SlotState.STARTING) == self.state.kind
            assert (tuple(recent), before.streak) == (
                self.state.history.failures,
                self.state.history.streak,
            )

    @rule(age=st.floats(0.0, 500.0))
    def is_blamed_for_an_earlier_end(self, age: float) -> None:
        """One failure more in its history, and nothing else in any state."""
        before = self.state
        assert () == self.happens(slot.Blamed(self.now, self.now - age))
        assert len(before.history.failures) + 1 == len(self.state.history.failures)
        assert sorted(self.state.history.failures) == list(self.state.history.failures)
        assert before == msgspec.structs.replace(self.state, history=before.history)

    @precondition(lambda self: self.state.kind is SlotState.STOPPED)
    @rule(restarts=st.integers(0, 9))
    def was_parked_before(self, restarts: int) -> None:
        """It stays down until somebody acts, as before."""
        self.happens(slot.ParkedBefore(self.now, "token_stall", restarts))
        assert (SlotState.PARKED, restarts) == (self.state.kind, self.state.restarts)

    @rule(then=st.sampled_from([Next.START, Next.STOP]))
    def is_drained(self, then: Next) -> None:
        """An operator's stop wins over a replacement."""
        stopping = self.state.next is Next.STOP and self.process
        self.happens(slot.DrainAsked(self.now, then, "reload"))
        if then is Next.STOP or stopping:
            assert self.state.kind is SlotState.STOPPED or self.state.next is Next.STOP

    @precondition(lambda self: self.armed is not None)
    @rule()
    def waits_for_its_next_start(self) -> None:
        """The timer counts in backoff and nowhere else."""
        assert self.armed is not None
        due = self.state.kind is SlotState.BACKOFF
        self.now = max(self.now, self.state.next_start_at or self.now)
        before = self.state
        self.happens(Elapsed(self.armed.timer, self.armed.armed_in, self.now))
        expected = SlotState.STARTING if due else before.kind
        assert expected == self.state.kind

    @precondition(lambda self: self.state.kind is SlotState.BACKOFF)
    @rule(share=st.floats(0.0, 0.99))
    def is_woken_too_early(self, share: float) -> None:
        """A timer of an earlier backoff changes nothing."""
        assert self.state.next_start_at is not None
        if self.now >= self.state.next_start_at:
            return
        early = self.now + share * (self.state.next_start_at - self.now)
        expected = (self.state, ())
        assert expected == slot.step(
            self.state, Elapsed(slot.Timer.BACKOFF, SlotState.BACKOFF, early)
        )

    @invariant()
    def never_serves_with_an_unfit_worker(self) -> None:
        """Once quarantined, a generation is never anything else until it is gone."""
        if self.state.generation in self.unfit and self.process:
            assert SlotState.QUARANTINED == self.state.kind
            assert not self.state.takes_work

    @invariant()
    def has_a_worker_where_its_state_says_so(self) -> None:
        """No process is forgotten, and none is imagined."""
        assert self.process == (self.state.kind not in DOWN)

    @invariant()
    def counts_its_work(self) -> None:
        """Never more than its capacity, never less than what is being cancelled."""
        assert 0 <= self.state.cancelling <= self.state.in_flight <= self.state.capacity
        if self.state.kind in (SlotState.READY, *DOWN):
            assert 0 == self.state.in_flight
        if self.state.kind in (SlotState.BUSY, SlotState.CANCELLING):
            assert 0 < self.state.in_flight

    @invariant()
    def is_on_its_way_out_if_it_must_be(self) -> None:
        """An unfit or idle draining worker has been stopped, or has ended by itself."""
        idle = self.state.kind is SlotState.DRAINING and self.state.in_flight == 0
        if self.state.kind is SlotState.QUARANTINED or idle:
            assert self.stop_asked or self.exited

    def teardown(self) -> None:
        """Whatever it was doing, a slot that is stopped comes to rest."""
        if not hasattr(self, "state"):
            return
        self.happens(slot.DrainAsked(self.now, Next.STOP, "shutdown"))
        for _ in range(self.state.in_flight if self.state.kind is SlotState.DRAINING else 0):
            self.happens(slot.Released(self.now, was_cancelling=self.state.cancelling > 0))
        if self.process:
            if not self.exited:
                self.exits()
            self.happens(slot.Gone(self.now, 0.5))
        assert (SlotState.STOPPED, "shutdown") == (self.state.kind, self.state.reason)


def test_a_slot_keeps_its_promises_in_any_order_of_events() -> None:
    """Starts, work, cancellations, faults, exits, drains and timers in any order."""
    run_state_machine_as_test(Slot)
