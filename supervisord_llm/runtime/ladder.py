"""Drives `supervisord_llm.core.escalation` for one worker: signals, their graces, the reaping."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, cast

import trio

from supervisord_llm import events
from supervisord_llm.core import escalation
from supervisord_llm.core.effects import Arm, Elapsed
from supervisord_llm.core.words import (
    EscalationStage,
    ExitCause,
    PoolName,
    RequestId,
    Resolution,
    TeardownStage,
)
from supervisord_llm.runtime.process import Sent
from supervisord_llm.runtime.request import Publish
from supervisord_llm.runtime.timers import Timers
from supervisord_llm.runtime.turn import Turn
from supervisord_llm.runtime.worker import Worker

_STAGES = {
    escalation.Kind.TERMINATING: TeardownStage.TERMINATING,
    escalation.Kind.KILLING: TeardownStage.KILLING,
    escalation.Kind.REAPING: TeardownStage.REAPING,
    escalation.Kind.UNREAPABLE: TeardownStage.REAPING,
}

Reaped = Callable[[ExitCause, Sequence[int]], None]


class Ladder:
    """The way down of one worker; every method is to be called inside a turn."""

    def __init__(
        self,
        pool: PoolName,
        worker: Worker,
        graces: escalation.Graces,
        *,
        nursery: trio.Nursery,
        timers: Timers,
        turn: Turn,
        publish: Publish,
        on_reaped: Reaped,
        on_unreapable: Callable[[], None],
    ) -> None:
        """Stand at the top: the worker is up.

        Args:
            pool: for the events.
            worker: whose process and pipes are acted on.
            graces: how long each rung may take.
            nursery: where the reaping runs; it must outlive the worker's own tasks.
            timers: where deadlines are armed.
            turn: what deadlines and the end of the reaping are told in.
            publish: takes the events.
            on_reaped: the process and its descendants are gone.
            on_unreapable: the process does not die; told once.
        """
        self._pool = pool
        self._worker = worker
        self._state = escalation.State(graces=graces)
        self._nursery = nursery
        self._timers = timers
        self._turn = turn
        self._publish = publish
        self._on_reaped = on_reaped
        self._on_unreapable = on_unreapable
        self._request: RequestId | None = None

    @property
    def stage(self) -> TeardownStage | None:
        """How far the teardown has come; ``None`` before it begins."""
        return _STAGES.get(self._state.kind)

    @property
    def killed(self) -> bool:
        """Whether we have sent SIGKILL."""
        return self._state.killed

    @property
    def resolution(self) -> Resolution:
        """How far the ladder had to be climbed."""
        return escalation.resolution(self._state)

    def stop(self) -> None:
        """Begin a planned stop."""
        self._step(escalation.StopAsked(trio.current_time()))

    def condemn(
        self, after: EscalationStage | None = None, request: RequestId | None = None
    ) -> None:
        """Go straight to SIGTERM; ``after`` and ``request`` say which rung failed for whom."""
        self._request = request
        self._step(escalation.Condemned(trio.current_time(), after))

    def exited(self) -> None:
        """The process has ended."""
        self._step(escalation.Exited(trio.current_time()))

    def _step(self, event: object) -> None:
        self._state, effects = escalation.step(self._state, event)
        for effect in effects:
            self._perform(effect)

    def _perform(self, effect: escalation.Effect) -> None:
        match effect:
            case Arm(timer, at, armed_in):
                self._timers.arm(
                    self,
                    at,
                    lambda now: self._turn(lambda: self._step(Elapsed(timer, armed_in, now))),
                )
            case escalation.CloseStdin():
                self._worker.channel.close_stdin()
            case escalation.Terminate():
                self._tell_sent(self._worker.process.terminate())
            case escalation.Kill():
                self._tell_sent(self._worker.process.kill())
            case escalation.Reap():
                self._nursery.start_soon(self._reap)
            case escalation.TellEscalated(from_, to, elapsed):
                generation = self._worker.generation
                self._publish(
                    events.CancelEscalated(
                        pool=self._pool,
                        worker=generation.slot,
                        generation=generation.number,
                        from_=from_,
                        to=to,
                        elapsed_ms=round(elapsed * 1000, 3),
                        request=self._request,
                    )
                )
            case escalation.TellUnreapable(elapsed):
                generation = self._worker.generation
                self._publish(
                    events.WorkerUnreapable(
                        pool=self._pool,
                        worker=generation.slot,
                        generation=generation.number,
                        pid=self._worker.process.pid,
                        elapsed_ms=round(elapsed * 1000, 3),
                    )
                )
                self._on_unreapable()

    def _tell_sent(self, sent: Sequence[Sent]) -> None:
        generation = self._worker.generation
        for each in sent:
            self._publish(
                events.WorkerSignalled(
                    pool=self._pool,
                    worker=generation.slot,
                    generation=generation.number,
                    signal=each.signal,
                    target=cast(Literal["pid", "group", "descendants"], each.target),
                    pids=list(each.pids),
                )
            )

    async def _reap(self) -> None:
        """Runs for as long as it takes; the machine watches the time."""
        cause, descendants = await self._worker.process.reap()
        cause = self._worker.exit or cause  # the status alone does not tell who has killed it

        def reaped() -> None:
            self._step(escalation.Reaped(trio.current_time()))
            self._on_reaped(cause, descendants)

        self._turn(reaped)
