"""What holds for a request whatever happens to it, in whichever order."""

from __future__ import annotations

from collections import Counter

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from supervisord_llm.core import ledger
from supervisord_llm.core.words import (
    AnsweredBy,
    CancelledBy,
    FailureReason,
    FinishReason,
    Outcome,
    RequestState,
    Resolution,
    Usage,
)
from supervisord_llm.errors import InternalError

ANSWERED = (RequestState.HELD, RequestState.FINISHED)
ON_A_WORKER = (RequestState.DISPATCHED, RequestState.STREAMING, RequestState.CANCELLING)


class Request(RuleBasedStateMachine):
    """One request, to which anything may happen at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self.state = ledger.State(accepted_at=self.now)
        self.told: list[ledger.Effect] = []
        self.spoke_in: set[int] = set()
        """The attempts whose output the client was given."""
        self.stopped = False
        """Whether a stop was found in its output before anything else ended it."""
        self.lone_ends = 0
        """Workers that ended by themselves with nothing but this request, before its output."""

    @initialize(attempts=st.integers(1, 3))
    def is_accepted(self, attempts: int) -> None:
        """It may have so many workers."""
        self.attempts = attempts
        self.state = ledger.State(accepted_at=self.now, attempts_left=attempts - 1)

    def happens(self, event: object) -> None:
        """Show the ledger an event; what it calls impossible must leave no trace."""
        try:
            after, effects = ledger.step(self.state, event)
        except InternalError:
            return
        # What is sealed, and when it was cancelled by whom, is never rewritten.
        for field in (
            "record",
            "cancelled_by",
            "cancel_at",
            "resolution",
            "assigned_at",
            "charged_at",
            "first_at",
        ):
            before = getattr(self.state, field)
            assert before is None or before == getattr(after, field)
        self.state = after
        self.told += effects

    @rule(seconds=st.floats(0.0, 5.0))
    def time_passes(self, seconds: float) -> None:
        """Events come later from here on."""
        self.now += seconds

    @rule()
    def is_assigned(self) -> None:
        """A slot takes it."""
        self.happens(ledger.Assigned(self.now))

    @rule()
    def speaks(self) -> None:
        """Its worker produces output."""
        before = len(self.told)
        self.happens(ledger.FirstOutput(self.now))
        if any(isinstance(effect, ledger.TellFirstOutput) for effect in self.told[before:]):
            self.spoke_in.add(self.state.attempt)
        elif self.state.kind is RequestState.STREAMING:
            assert {self.state.attempt} == self.spoke_in

    @rule(by=st.sampled_from(CancelledBy))
    def is_cancelled(self, by: CancelledBy) -> None:
        """Somebody wants its end, perhaps again."""
        self.happens(ledger.CancelAsked(self.now, by))

    @rule()
    def stop_is_found(self) -> None:
        """Its reader has all that it wants."""
        before = self.state.kind
        self.happens(ledger.StopFound(self.now))
        self.stopped = self.stopped or before is RequestState.STREAMING

    @rule(cancelled=st.booleans(), reason=st.sampled_from(FinishReason))
    def is_done(self, *, cancelled: bool, reason: FinishReason) -> None:
        """Its worker ends it."""
        done = ledger.Done(now=self.now, cancelled=cancelled, finish_reason=reason, usage=Usage())
        self.happens(done)

    @rule(reason=st.sampled_from(FailureReason))
    def fails_in_the_engine(self, reason: FailureReason) -> None:
        """Its worker says that it cannot be served."""
        self.happens(ledger.EngineError(self.now, "decode failed", reason))

    @rule(by=st.sampled_from([AnsweredBy.GRACE, AnsweredBy.DETACH]))
    def misses_its_grace(self, by: AnsweredBy) -> None:
        """Its worker does not react, or cannot be asked."""
        self.happens(ledger.GraceMissed(self.now, by))

    @rule(error=st.sampled_from(FailureReason), alone=st.booleans())
    def loses_its_worker(self, error: FailureReason, *, alone: bool) -> None:
        """Its worker is condemned or exits."""
        before = self.state
        if alone and before.kind is RequestState.DISPATCHED:
            self.lone_ends += 1
        self.happens(ledger.WorkerLost(self.now, error, "gone", alone))
        if before.kind is RequestState.DISPATCHED and self.state.kind is RequestState.QUEUED:
            assert before.attempt < self.attempts

    @rule(resolution=st.sampled_from(Resolution))
    def is_released(self, resolution: Resolution) -> None:
        """No worker holds it any more."""
        self.happens(ledger.Released(self.now, resolution))

    @rule()
    def is_not_read(self) -> None:
        """Its client leaves the output lying."""
        self.happens(ledger.Overflowed(self.now))

    @precondition(lambda self: self.state.kind is RequestState.QUEUED)
    @rule()
    def waits_too_long(self) -> None:
        """Its time in the queue is over."""
        self.happens(ledger.QueueExpired(self.now))

    @rule()
    def loses_its_pool(self) -> None:
        """No slot can serve any more."""
        self.happens(ledger.PoolLost(self.now, "parked"))

    @invariant()
    def is_answered_once(self) -> None:
        """Exactly one record, from the moment in which the client has its answer."""
        seals = [effect.record for effect in self.told if isinstance(effect, ledger.Seal)]
        expected = [self.state.record] if self.state.kind in ANSWERED else []
        assert expected == seals

    @invariant()
    def is_over_once_and_not_before_the_answer(self) -> None:
        """Answered and released, in this order; nothing but late endings is told afterwards."""
        kinds = [type(effect) for effect in self.told]
        finished = self.state.kind is RequestState.FINISHED
        assert (1 if finished else 0) == kinds.count(ledger.Over)
        if finished:
            over = kinds.index(ledger.Over)
            assert kinds.index(ledger.Seal) < over
            assert all(kind is ledger.TellLate for kind in kinds[over + 1 :])

    @invariant()
    def asks_nobody_twice(self) -> None:
        """One cancellation, one question to the worker, one settlement."""
        counts = Counter(type(effect) for effect in self.told)
        cancelled = self.state.cancel_at is not None
        assert (1 if cancelled else 0) == counts[ledger.TellCancel]
        settled = cancelled and self.state.kind is RequestState.FINISHED
        assert (1 if settled else 0) == counts[ledger.TellSettled]
        assert settled == (self.state.resolution is not None)
        assert counts[ledger.AskWorker] <= 1
        assert counts[ledger.TellFirstOutput] == (0 if self.state.first_at is None else 1)

    @invariant()
    def leaves_the_queue_once(self) -> None:
        """It enters the queue once more than it left it for a worker; it is withdrawn once at most.

        So it ends in the queue only if no worker has it.
        """
        counts = Counter(type(effect) for effect in self.told)
        stays = 1 + counts[ledger.Requeue] - self.state.attempt
        waits = self.state.kind is RequestState.QUEUED
        assert (1 if waits else counts[ledger.Withdraw]) == stays

    @invariant()
    def has_no_more_workers_than_it_may(self) -> None:
        """Attempts are counted, and each one after the first is told."""
        counts = Counter(type(effect) for effect in self.told)
        assert counts[ledger.Requeue] == counts[ledger.TellRetried]
        assert self.state.attempt + self.state.attempts_left <= self.attempts

    @invariant()
    def has_output_of_one_attempt_only(self) -> None:
        """What a client was given is never continued by another worker."""
        assert len(self.spoke_in) <= 1
        if self.spoke_in:
            assert {self.state.attempt} == self.spoke_in
            assert self.state.kind not in (RequestState.QUEUED, RequestState.DISPATCHED)

    @invariant()
    def answers_for_each_worker_s_end_once(self) -> None:
        """A charge is given back with the record, or the request is suspect and keeps both."""
        charges = sum(isinstance(effect, ledger.Charge) for effect in self.told)
        acquittals = [effect.at for effect in self.told if isinstance(effect, ledger.Acquit)]
        record = self.state.record
        suspect = record is not None and record.suspect
        if record is None:
            assert acquittals == []
            assert (1 if charges else 0) == charges == (self.state.charged_at is not None)
        elif suspect:
            assert (2, []) == (charges, acquittals)
            assert self.lone_ends == 2
            assert not record.retryable
        else:
            assert [self.state.charged_at] * charges == acquittals
            assert charges <= 1

    @invariant()
    def is_complete_once_its_stop_was_found(self) -> None:
        """Whatever its worker or anybody else does after that; and no cancellation is told of."""
        if self.stopped and self.state.record is not None:
            record = self.state.record
            assert (Outcome.COMPLETED, FinishReason.STOP) == (record.outcome, record.finish_reason)
            assert not record.cancel_raced
            assert self.state.resolution is None

    @invariant()
    def has_a_record_without_contradictions(self) -> None:
        """Each outcome comes with its own facts and no other's."""
        record = self.state.record
        if record is None:
            return
        assert (record.outcome is Outcome.COMPLETED) == (record.finish_reason is not None)
        assert (record.outcome is Outcome.FAILED) == (record.error is not None)
        cancelled = record.outcome is Outcome.CANCELLED
        for fact in (record.cancelled_by, record.answered_by, record.cancel_elapsed_ms):
            assert cancelled == (fact is not None)
        withdrawn = any(isinstance(effect, ledger.Withdraw) for effect in self.told)
        assert (record.answered_by is AnsweredBy.QUEUE) == (cancelled and withdrawn)
        assert (self.state.resolution is Resolution.QUEUED) >= (cancelled and withdrawn)
        assert record.suspect <= (record.outcome is Outcome.FAILED)
        raced = record.outcome is Outcome.COMPLETED and self.state.cancel_at is not None
        assert raced == record.cancel_raced
        assert 0.0 <= record.queued_ms <= record.total_ms
        assert record.ttft_ms is None or record.queued_ms <= record.ttft_ms <= record.total_ms

    def teardown(self) -> None:
        """However a request got where it is, the end of its worker and its pool is its end."""
        self.happens(ledger.WorkerLost(self.now, FailureReason.WORKER_EXITED, "gone"))
        self.happens(ledger.PoolLost(self.now, "stopping"))
        self.happens(ledger.Released(self.now, Resolution.KILLED))
        assert RequestState.FINISHED == self.state.kind
        self.is_answered_once()
        self.is_over_once_and_not_before_the_answer()
        self.asks_nobody_twice()


def test_a_request_is_answered_once_and_over_once_whatever_happens() -> None:
    """Any order of assignments, endings, cancellations and losses keeps every invariant."""
    run_state_machine_as_test(Request)
