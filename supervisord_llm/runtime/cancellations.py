"""Drives `supervisord_llm.core.cancellation` for the requests of one worker."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

import trio

from supervisord_llm import events
from supervisord_llm.core import cancellation, ledger
from supervisord_llm.core.effects import Arm, Elapsed
from supervisord_llm.core.words import EscalationStage, PoolName, QuarantineReason, WireId
from supervisord_llm.runtime.channel import FrameFate
from supervisord_llm.runtime.request import Publish, Request
from supervisord_llm.runtime.timers import Timers
from supervisord_llm.runtime.turn import Turn
from supervisord_llm.runtime.worker import Worker


class Judge(Protocol):
    """Who takes the verdict that a cancellation came to: the slot."""

    def condemn(self, reason: QuarantineReason, detail: str, request: Request | None) -> None:
        """The worker is unfit."""


_DETAILS = {
    QuarantineReason.CANCEL_GRACE_MISSED: "did not end a request in time after it was asked to",
    QuarantineReason.UNCANCELLABLE: "cannot be asked to stop, and had a request that must end",
    QuarantineReason.CONTROL_PIPE_BROKEN: "its control pipe broke in the middle of a cancellation",
}


class Cancellations:
    """The cancellations under way on one worker; methods are to be called inside a turn."""

    def __init__(
        self,
        pool: PoolName,
        worker: Worker,
        judge: Judge,
        *,
        timers: Timers,
        turn: Turn,
        publish: Publish,
    ) -> None:
        """None is under way yet."""
        self._pool = pool
        self._worker = worker
        self._judge = judge
        self._timers = timers
        self._turn = turn
        self._publish = publish
        self._states: dict[WireId, cancellation.State] = {}
        self._requests: dict[WireId, Request] = {}

    def __contains__(self, wire_id: WireId) -> bool:
        """Whether this request is being cancelled."""
        return wire_id in self._states

    def is_detached(self, wire_id: WireId) -> bool:
        """Whether the worker finishes this request for nobody."""
        state = self._states.get(wire_id)
        return state is not None and state.kind is cancellation.Kind.DETACHED

    def begin(self, request: Request, terms: cancellation.Terms) -> None:
        """Ask the worker to stop; or, where it cannot be asked, answer and condemn at once."""
        wire_id = request.wire_id
        self._requests[wire_id] = request
        self._states[wire_id], effects = cancellation.begin(
            trio.current_time(), terms, decoding=self._worker.decoding
        )
        self._perform(wire_id, effects)

    def decoding(self) -> None:
        """The worker has left its prefill."""
        for wire_id in list(self._states):
            self._step(wire_id, cancellation.Decoding(trio.current_time()))

    def end(self, wire_id: WireId) -> bool:
        """The worker ended the request; whether it was being cancelled."""
        if wire_id not in self._states:
            return False
        self._step(wire_id, cancellation.Terminal(trio.current_time()))
        del self._states[wire_id]
        del self._requests[wire_id]
        return True

    def worker_gone(self) -> None:
        """The worker was condemned, or exited: nothing of this is waited for any more."""
        for wire_id in list(self._states):
            self._step(wire_id, cancellation.WorkerGone(trio.current_time()))

    def _step(self, wire_id: WireId, event: object) -> None:
        self._states[wire_id], effects = cancellation.step(self._states[wire_id], event)
        self._perform(wire_id, effects)

    def _perform(self, wire_id: WireId, effects: tuple[cancellation.Effect, ...]) -> None:
        for effect in effects:
            match effect:
                case cancellation.WriteFrame():
                    self._write(wire_id)
                case Arm(timer, at, armed_in):
                    self._arm(wire_id, timer, at, armed_in)
                case cancellation.Answer(by):
                    self._requests[wire_id].post(ledger.GraceMissed(trio.current_time(), by))
                case cancellation.Condemn(reason):
                    self._judge.condemn(
                        reason, self._detail(wire_id, reason), self._requests[wire_id]
                    )
                case cancellation.TellDelivered(elapsed):
                    self._tell_delivered(wire_id, elapsed)

    def _detail(self, wire_id: WireId, reason: QuarantineReason) -> str:
        terms = self._states[wire_id].terms
        if reason is QuarantineReason.UNCANCELLABLE and terms.on_uncancellable == "detach":
            return (
                "was left to finish a request for nobody, and did not within "
                f"cancel.detach_timeout ({terms.detach_timeout:g} s)"
            )
        return _DETAILS[reason]

    def _write(self, wire_id: WireId) -> None:
        match self._worker.channel.cancel(wire_id):
            case FrameFate.TAKEN:
                event: object = cancellation.FrameTaken(trio.current_time())
            case FrameFate.BROKEN:
                event = cancellation.PipeBroken(trio.current_time())
            case FrameFate.FULL:
                return
        # After the effects of the step that asked for the frame, so that none is overtaken.
        self._turn(lambda: self._step(wire_id, event) if wire_id in self._states else None)

    def _arm(self, wire_id: WireId, timer: StrEnum, at: float, armed_in: StrEnum) -> None:
        def fire(now: float) -> None:
            if timer is not cancellation.Timer.RESEND:
                # If the worker's terminal is pending in the same moment, its word counts.
                self._worker.channel.read_now()
            self._turn(lambda: self._elapsed(wire_id, timer, armed_in, now))

        self._timers.arm((self, wire_id, timer), at, fire)

    def _elapsed(self, wire_id: WireId, timer: StrEnum, armed_in: StrEnum, now: float) -> None:
        if wire_id in self._states:
            self._step(wire_id, Elapsed(timer, armed_in, now))

    def _tell_delivered(self, wire_id: WireId, elapsed: float) -> None:
        generation = self._worker.generation
        self._publish(
            events.CancelDelivered(
                pool=self._pool,
                request=self._requests[wire_id].id,
                worker=generation.slot,
                generation=generation.number,
                stage=EscalationStage.COOPERATIVE,
                elapsed_ms=round(elapsed * 1000, 3),
            )
        )
