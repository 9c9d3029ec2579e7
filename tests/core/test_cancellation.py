"""What holds for a cancellation however the worker behaves and whenever its timers fire."""

from __future__ import annotations

from collections import Counter

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from supervisord_llm.core import cancellation
from supervisord_llm.core.cancellation import Kind, State, Terms, Timer
from supervisord_llm.core.effects import Arm, Elapsed
from supervisord_llm.core.words import AnsweredBy, QuarantineReason

terms = st.builds(
    Terms,
    cooperative_grace=st.floats(0.1, 10.0),
    prefill_grace=st.floats(0.1, 30.0),
    cancellable=st.just(True),  # noqa: FBT003 - a strategy, not a switch
    interruptible_prefill=st.booleans(),
    resend_every=st.floats(0.05, 1.0),
)


class Cancelling(RuleBasedStateMachine):
    """A worker that is asked to stop, with a clock on which every timer fires in time."""

    @initialize(terms=terms, decoding=st.booleans())
    def is_asked(self, terms: Terms, *, decoding: bool) -> None:
        """The cancellation begins."""
        self.now = 100.0
        self.counts: Counter[type] = Counter()
        self.timers: dict[Timer, Arm] = {}
        self.answered_at: float | None = None
        self.condemned_at: float | None = None
        self.ended_by_itself = False
        self.state, effects = cancellation.begin(self.now, terms, decoding=decoding)
        self.perform(effects)

    state: State

    def perform(self, effects: tuple[cancellation.Effect, ...]) -> None:
        """Keep the deadlines and the times of what was decided."""
        for effect in effects:
            self.counts[type(effect)] += 1
            if isinstance(effect, Arm):
                assert self.now <= effect.at
                assert isinstance(effect.timer, Timer)
                self.timers[effect.timer] = effect
            elif isinstance(effect, cancellation.Answer):
                self.answered_at = self.now
            elif isinstance(effect, cancellation.Condemn):
                self.condemned_at = self.now

    def happens(self, event: object) -> None:
        """Show the machine an event."""
        self.state, effects = cancellation.step(self.state, event)
        self.perform(effects)

    @property
    def bound(self) -> float:
        """When the worker must have been condemned, whatever it says."""
        terms = self.state.terms
        longest = max(terms.cooperative_grace, terms.prefill_grace) + terms.cooperative_grace
        return self.state.asked_at + longest

    @rule(seconds=st.floats(0.0, 5.0))
    def time_passes(self, seconds: float) -> None:
        """Fire each timer at its time, the earliest first."""
        until = self.now + seconds
        while due := [arm for arm in self.timers.values() if arm.at <= until]:
            arm = min(due, key=lambda each: each.at)
            assert isinstance(arm.timer, Timer)
            del self.timers[arm.timer]
            self.now = max(self.now, arm.at)
            self.happens(Elapsed(arm.timer, arm.armed_in, self.now))
            if self.state.kind is Kind.OVER:
                self.timers.clear()
        self.now = until

    @rule()
    def takes_a_frame(self) -> None:
        """The control pipe took a frame."""
        self.happens(cancellation.FrameTaken(self.now))

    @rule()
    def breaks_its_pipe(self) -> None:
        """No frame can be trusted any more: an end at once."""
        fit = self.state.kind is not Kind.OVER
        self.happens(cancellation.PipeBroken(self.now))
        assert not fit or self.condemned_at == self.now

    @rule()
    def decodes(self) -> None:
        """The worker says, perhaps again, that its prefill is over."""
        self.happens(cancellation.Decoding(self.now))

    @rule(gone=st.booleans())
    def ends(self, *, gone: bool) -> None:
        """The terminal came, or the worker is gone: nothing is waited for any more."""
        if self.state.kind is not Kind.OVER:
            self.ended_by_itself = True
        kind = cancellation.WorkerGone if gone else cancellation.Terminal
        self.happens(kind(self.now))
        assert Kind.OVER == self.state.kind

    @precondition(lambda self: self.state.kind is Kind.HOLDING)
    @rule()
    def hears_of_a_timer_of_another_state(self) -> None:
        """What was armed while asked is inert while holding, but for the hold."""
        for timer in (Timer.RESEND, Timer.ANSWER):
            expected = (self.state, ())
            assert expected == cancellation.step(self.state, Elapsed(timer, Kind.ASKED, self.now))

    @invariant()
    def is_answered_and_condemned_at_most_once(self) -> None:
        """No history repeats an answer, a verdict or an announcement."""
        for effect in (cancellation.Answer, cancellation.Condemn, cancellation.TellDelivered):
            assert self.counts[effect] <= 1

    @invariant()
    def answers_within_the_cooperative_grace(self) -> None:
        """The client's bound holds in every phase and whatever the worker does."""
        grace_over = self.now >= self.state.asked_at + self.state.terms.cooperative_grace
        if grace_over and not self.ended_by_itself:
            assert self.answered_at is not None
        if self.answered_at is not None:
            answer_by = self.state.asked_at + self.state.terms.cooperative_grace
            assert self.answered_at <= answer_by

    @invariant()
    def condemns_within_its_bound(self) -> None:
        """No word of the worker but its terminal keeps it in service for longer."""
        if self.now >= self.bound and not self.ended_by_itself:
            assert self.condemned_at is not None
        if self.condemned_at is not None:
            assert self.condemned_at <= self.bound
            assert self.answered_at is not None
            assert self.answered_at <= self.condemned_at

    @invariant()
    def writes_frames_until_it_is_over(self) -> None:
        """The next frame is never further away than the interval."""
        if self.state.kind is not Kind.OVER:
            resend = self.timers[Timer.RESEND]
            assert resend.at <= self.now + self.state.terms.resend_every
            assert self.state.kind is resend.armed_in


def test_a_cancellation_keeps_its_bounds_whatever_the_worker_does() -> None:
    """Frames, pipes, phases, endings and timers in any order."""
    run_state_machine_as_test(Cancelling)


@given(
    terms=terms,
    decoding=st.booleans(),
    words=st.lists(st.floats(0.0, 100.0), min_size=1, max_size=20),
)
def test_only_the_first_word_of_decoding_moves_the_deadline(
    terms: Terms, words: list[float], *, decoding: bool
) -> None:
    """A worker that goes on and on cannot put its end off."""
    state, _ = cancellation.begin(0.0, terms, decoding=decoding)
    state, _ = cancellation.step(state, cancellation.Decoding(min(words)))
    for now in sorted(words):
        expected = (state, ())
        assert expected == cancellation.step(state, cancellation.Decoding(now))


@given(
    terms=terms.map(
        lambda each: msgspec.structs.replace(
            each, cancellable=False, on_uncancellable="detach", detach_timeout=20.0
        )
    ),
    decoding=st.booleans(),
    words=st.lists(
        st.sampled_from([cancellation.FrameTaken, cancellation.PipeBroken, cancellation.Decoding])
    ),
    ends=st.sampled_from([cancellation.Terminal, cancellation.WorkerGone, None]),
)
def test_a_worker_that_is_left_alone_is_condemned_only_when_its_time_is_over(
    terms: Terms, words: list[type], ends: type | None, *, decoding: bool
) -> None:
    """Nothing but its ending keeps it in service for longer, and nothing costs it its time."""
    state, (answer, arm) = cancellation.begin(0.0, terms, decoding=decoding)
    assert cancellation.Answer(AnsweredBy.DETACH) == answer
    assert isinstance(arm, Arm)
    for word in words:
        assert (state, ()) == cancellation.step(state, word(1.0))
    if ends is not None:
        state, effects = cancellation.step(state, ends(2.0))
        assert (Kind.OVER, ()) == (state.kind, effects)
    state, effects = cancellation.step(state, Elapsed(arm.timer, arm.armed_in, arm.at))
    assert Kind.OVER == state.kind
    condemned = (cancellation.Condemn(QuarantineReason.UNCANCELLABLE),)
    assert (condemned if ends is None else ()) == effects
    assert 20.0 == arm.at


@given(terms=terms, before=st.floats(0.001, 5.0))
def test_a_deadline_that_was_replaced_changes_nothing(terms: Terms, before: float) -> None:
    """The end of the longer allowance comes late for a worker that decodes by then."""
    state, _ = cancellation.begin(0.0, terms, decoding=False)
    if not state.patient:
        return
    decodes_at = state.hold_at - min(before, terms.cooperative_grace / 2)
    old = Elapsed(Timer.HOLD, Kind.ASKED, state.hold_at)
    state, _ = cancellation.step(state, cancellation.Decoding(decodes_at))
    assert (state, ()) == cancellation.step(state, old)
