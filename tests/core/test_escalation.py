"""What holds for the ladder however slowly, early or late things happen."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from supervisord_llm.core import escalation
from supervisord_llm.core.effects import Arm, Elapsed
from supervisord_llm.core.escalation import Graces, Kind, State
from supervisord_llm.core.words import Resolution

graces = st.builds(
    Graces, terminate=st.floats(0.0, 10.0), kill=st.floats(0.0, 10.0), reap=st.floats(0.01, 10.0)
)
ORDER = {kind: index for index, kind in enumerate(Kind)}


class Ladder(RuleBasedStateMachine):
    """A worker that may be stopped, condemned and exit at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self.state = State(graces=Graces(terminate=3.0, kill=2.0, reap=5.0))
        self.armed: Arm | None = None
        self.told: list[escalation.Effect] = []
        self.exited = False

    def happens(self, event: object) -> None:
        """Show the ladder an event, and keep what it arms."""
        before = self.state
        self.state, effects = escalation.step(before, event)
        assert ORDER[before.kind] <= ORDER[self.state.kind]
        for effect in effects:
            if isinstance(effect, Arm):
                assert self.now <= effect.at
                assert self.armed is None or self.armed.at <= effect.at
                assert self.state.kind is effect.armed_in
                self.armed = effect
            self.told.append(effect)

    def count(self, kind: type) -> int:
        """How many effects of this kind there were."""
        return sum(isinstance(effect, kind) for effect in self.told)

    @rule()
    def is_stopped(self) -> None:
        """A planned stop, perhaps not the first."""
        self.happens(escalation.StopAsked(self.now))

    @rule()
    def is_condemned(self) -> None:
        """The worker is unfit, perhaps again."""
        self.happens(escalation.Condemned(self.now))

    @precondition(lambda self: not self.exited)
    @rule()
    def exits(self) -> None:
        """The process ends, once."""
        self.exited = True
        self.happens(escalation.Exited(self.now))

    @precondition(lambda self: self.exited and self.state.kind is not Kind.GONE)
    @rule()
    def is_reaped(self) -> None:
        """The status is taken, only of what has ended."""
        self.happens(escalation.Reaped(self.now))

    @precondition(lambda self: self.armed is not None)
    @rule()
    def waits_for_its_grace(self) -> None:
        """The armed deadline comes, in time or late."""
        assert self.armed is not None
        armed = self.armed
        self.now = max(self.now, armed.at)
        self.happens(Elapsed(armed.timer, armed.armed_in, self.now))

    @precondition(lambda self: self.state.kind is not Kind.UP)
    @rule(kind=st.sampled_from(Kind))
    def hears_of_a_grace_of_another_state(self, kind: Kind) -> None:
        """It changes nothing."""
        if kind is self.state.kind:
            return
        expected = (self.state, ())
        assert expected == escalation.step(
            self.state, Elapsed(escalation.Timer.GRACE, kind, self.now)
        )

    @invariant()
    def reaps_once_and_only_what_has_ended(self) -> None:
        """The exit status of a running process is never waited for."""
        assert (1 if self.exited else 0) == self.count(escalation.Reap)

    @invariant()
    def kills_before_it_gives_up(self) -> None:
        """Nothing is called unreapable, and nothing unresponsive is reaped, without SIGKILL."""
        if self.state.kind is Kind.UNREAPABLE:
            assert self.count(escalation.Kill) >= 1
        if not self.exited and ORDER[self.state.kind] >= ORDER[Kind.KILLING]:
            assert self.count(escalation.Kill) >= 1
            assert self.state.killed
        assert self.count(escalation.TellUnreapable) <= 1

    @invariant()
    def always_has_a_deadline_while_something_is_due(self) -> None:
        """Every wait has a bound."""
        if self.state.kind not in (Kind.UP, Kind.GONE):
            assert self.armed is not None
            assert self.state.kind is self.armed.armed_in

    def teardown(self) -> None:
        """Once the process has ended and is reaped, the ladder has."""
        if not self.exited:
            self.exits()
        if self.state.kind is not Kind.GONE:
            self.is_reaped()
        assert Kind.GONE == self.state.kind
        assert self.state.began_at is not None
        assert self.state.began_at <= self.now


def test_the_ladder_keeps_its_promises_in_any_order_of_events() -> None:
    """Stops, condemnations, exits and graces may come in any order, early or late."""
    run_state_machine_as_test(Ladder)


def climb(state: State, event: object, now: float) -> tuple[State, list[tuple[float, object]]]:
    """Let every grace run out until the worker counts as unreapable; effects with their times."""
    told: list[tuple[float, object]] = []
    for _ in Kind:
        state, effects = escalation.step(state, event)
        told += [(now, effect) for effect in effects]
        arm = effects[-1]
        assert isinstance(arm, Arm)
        if state.kind is Kind.UNREAPABLE:
            return state, told
        now = arm.at
        event = Elapsed(arm.timer, arm.armed_in, now)
    raise AssertionError(f"the ladder has no end: {state}")


@given(graces=graces, gently=st.booleans())
def test_a_worker_that_never_ends_is_told_unreapable_after_all_its_graces(
    graces: Graces, *, gently: bool
) -> None:
    """SIGTERM, SIGKILL twice, then the announcement; each at the end of the rung before."""
    event = escalation.StopAsked(0.0) if gently else escalation.Condemned(0.0)
    state, told = climb(State(graces=graces), event, 0.0)
    closing = graces.terminate if gently else 0.0
    killed_at = closing + graces.terminate
    expected = [
        *([(0.0, escalation.CloseStdin)] if gently else []),
        (closing, escalation.Terminate),
        (killed_at, escalation.Kill),
        (killed_at + graces.kill, escalation.Kill),
        (killed_at + graces.kill + graces.reap, escalation.TellUnreapable),
        (killed_at + graces.kill + graces.reap, escalation.Kill),
    ]
    quiet = (Arm, escalation.TellEscalated)
    assert expected == [(at, type(effect)) for at, effect in told if not isinstance(effect, quiet)]
    assert Resolution.UNREAPABLE == escalation.resolution(state)


@given(graces=graces, tries=st.integers(1, 20))
def test_an_unreapable_worker_is_killed_again_and_again(graces: Graces, tries: int) -> None:
    """The ladder tries on for as long as it takes, and ends if the process does after all."""
    state, told = climb(State(graces=graces), escalation.Condemned(0.0), 0.0)
    now, last = told[-1]
    for _ in range(tries):
        assert isinstance(last, Arm)
        now = last.at
        state, effects = escalation.step(state, Elapsed(last.timer, last.armed_in, now))
        expected = (
            escalation.Kill(),
            Arm(escalation.Timer.GRACE, now + graces.reap, Kind.UNREAPABLE),
        )
        assert expected == effects
        last = effects[-1]
    state, effects = escalation.step(state, escalation.Exited(now))
    assert (escalation.Reap(),) == effects
    state, _ = escalation.step(state, escalation.Reaped(now))
    assert Kind.GONE == state.kind
    assert Resolution.KILLED == escalation.resolution(state)


def test_a_worker_that_ends_on_sigterm_was_terminated_not_killed() -> None:
    """The resolution tells how far the ladder had to be climbed."""
    state = State(graces=Graces(terminate=3.0, kill=2.0, reap=5.0))
    for event in (
        escalation.Condemned(0.0),
        escalation.Exited(1.0),
        escalation.Reaped(1.5),
    ):
        state, _ = escalation.step(state, event)
    assert Resolution.TERMINATED == escalation.resolution(state)
