"""What holds for a request whatever happens to it, in whichever order."""

from __future__ import annotations

from collections import Counter

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
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
        self.happens(ledger.FirstOutput(self.now))

    @rule(by=st.sampled_from(CancelledBy))
    def is_cancelled(self, by: CancelledBy) -> None:
        """Somebody wants its end, perhaps again."""
        self.happens(ledger.CancelAsked(self.now, by))

    @rule(cancelled=st.booleans(), reason=st.sampled_from(FinishReason))
    def is_done(self, *, cancelled: bool, reason: FinishReason) -> None:
        """Its worker ends it."""
        done = ledger.Done(now=self.now, cancelled=cancelled, finish_reason=reason, usage=Usage())
        self.happens(done)

    @rule()
    def fails_in_the_engine(self) -> None:
        """Its worker says that it cannot be served."""
        self.happens(ledger.EngineError(self.now, "decode failed"))

    @rule()
    def misses_its_grace(self) -> None:
        """Its worker does not react."""
        self.happens(ledger.GraceMissed(self.now))

    @rule(error=st.sampled_from(FailureReason))
    def loses_its_worker(self, error: FailureReason) -> None:
        """Its worker is condemned or exits."""
        self.happens(ledger.WorkerLost(self.now, error, "gone"))

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
        """A request is withdrawn only if no worker ever had it."""
        withdrawn = any(isinstance(effect, ledger.Withdraw) for effect in self.told)
        assert withdrawn == (
            self.state.assigned_at is None and self.state.kind is RequestState.FINISHED
        )

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
        assert (record.answered_by is AnsweredBy.QUEUE) == (
            cancelled and self.state.assigned_at is None
        )
        raced = record.outcome is Outcome.COMPLETED and self.state.cancel_at is not None
        assert raced == record.cancel_raced
        assert 0.0 <= record.queued_ms <= record.total_ms
        assert record.ttft_ms is None or record.queued_ms <= record.ttft_ms <= record.total_ms

    def teardown(self) -> None:
        """However a request got where it is, its worker's end is its end."""
        self.happens(ledger.PoolLost(self.now, "stopping"))
        self.happens(ledger.WorkerLost(self.now, FailureReason.WORKER_EXITED, "gone"))
        self.happens(ledger.Released(self.now, Resolution.KILLED))
        assert RequestState.FINISHED == self.state.kind
        self.is_answered_once()
        self.is_over_once_and_not_before_the_answer()
        self.asks_nobody_twice()


def test_a_request_is_answered_once_and_over_once_whatever_happens() -> None:
    """Any order of assignments, endings, cancellations and losses keeps every invariant."""
    run_state_machine_as_test(Request)
