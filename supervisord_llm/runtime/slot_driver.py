"""Drives `supervisord_llm.core.slot` for the workers that live in one slot.

The slot's task owns the timers and the tasks of its worker. Whatever happens to the slot, be it a
message, an exit, a deadline or an operator's wish, comes in through a plain method, is decided by
the machine and done in one turn; nobody who asks something of a slot waits for it. What comes from
its worker comes through `Hearing`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

import msgspec
import trio

from supervisord_llm.config.launch import SlotLaunch
from supervisord_llm.config.schema import PoolConfig, RestartConfig
from supervisord_llm.core import recycling, restart
from supervisord_llm.core import slot as lifecycle
from supervisord_llm.core.effects import Arm, Elapsed
from supervisord_llm.core.words import (
    EscalationStage,
    ExitCause,
    FailureReason,
    Generation,
    QuarantineReason,
    SlotState,
)
from supervisord_llm.errors import InternalError, SpawnError
from supervisord_llm.host.parking import ParkingRecord
from supervisord_llm.runtime.announce import Announcer
from supervisord_llm.runtime.hearing import Hearing
from supervisord_llm.runtime.life import Tools, begin
from supervisord_llm.runtime.request import Request
from supervisord_llm.runtime.slot_facts import DOWN, FAILURES, LastExit, SlotFacts
from supervisord_llm.runtime.timers import Timers
from supervisord_llm.runtime.worker import Worker
from supervisord_llm.wire.messages import Generate, Ready

RECYCLE_JITTER = 0.1
"""The share by which a worker's own limits of age and requests may be lower than the pool's."""


class Hooks(msgspec.Struct, frozen=True):
    """What the pool wants to hear from its slots."""

    on_offer: Callable[[], None]
    """A slot may take work."""
    on_down: Callable[[], None]
    """A slot is parked or stopped."""
    on_ready: Callable[[Ready], None]
    """A new worker said that it is ready, and what it is."""
    on_move: Callable[[], None]
    """A slot went into service or out of it, or has reached a limit."""
    on_lost: Callable[[str], None]
    """What the worker of this slot had in its memory is lost."""


class SlotDriver(SlotFacts):
    """A slot as far as its worker and its machine are concerned; `Slot` adds what others want."""

    def __init__(self, launch: SlotLaunch, config: PoolConfig, tools: Tools, hooks: Hooks) -> None:
        """Make a stopped slot; `open` it before it is started."""
        now = tools.clock.now()
        super().__init__(
            launch.slot,
            launch.pool,
            launch.index,
            lifecycle.State(
                policy=policy_of(config.restart), generation=tools.numbers.get(launch.slot, 0)
            ),
            Announcer(launch.pool, launch.slot, tools.publish, now),
        )
        self.since = now
        self.launch = launch
        self.config = config
        self.tools = tools
        self.turn = tools.turn
        self.now = tools.clock.now
        self.timers = Timers()
        self._hooks = hooks
        self._ears = Hearing(self)
        self._stopping = False
        self._detail: str | None = None
        self._accused: Request | None = None
        self._charged = False
        self._roll = 0.0
        self._operation: Callable[[], None] | None = None
        self._nursery: trio.Nursery | None = None
        self._scope = trio.CancelScope()

    def open(self, nursery: trio.Nursery) -> None:
        """Let the slot's tasks run in its pool's nursery; `close` ends them."""
        self._nursery = nursery
        nursery.start_soon(self._run_timers)

    def close(self) -> None:
        """End the slot's own task; there is no worker any more."""
        self._scope.cancel()

    async def _run_timers(self) -> None:
        with self._scope:
            await self.timers.run()

    async def wait_down(self) -> None:
        """Wait until there is no process and none is due: parked or stopped."""
        while self.state not in DOWN:
            await self.tools.moves.park()

    # Its work -----------------------------------------------------------------

    def assign(self, request: Request, message: Generate) -> None:
        """Give a request to the worker; inside a turn, and only where `load` takes work."""
        self.live().workload.assign(request, message)

    def operate(
        self, operation: Literal["close", "reset"], session_id: str, done: Callable[[], None]
    ) -> None:
        """Let a `free` worker do something to a session; inside a turn.

        ``done`` is called when it has answered, or is gone and the session with it.
        """
        worker = self.live().worker
        worker.began_operation()
        self._operation = done
        if operation == "close":
            worker.channel.close_session(session_id)
        else:
            worker.channel.reset_session(session_id)

    # What its work amounts to -------------------------------------------------

    def took(self) -> None:
        """The worker was given a request."""
        self.step(lifecycle.Assigned(self.now()))

    def cancelling(self) -> None:
        """One of the worker's requests began to be cancelled."""
        self.step(lifecycle.CancelBegan(self.now()))

    def ended(self, *, was_cancelling: bool) -> None:
        """The worker ended a request."""
        self._look_at_limits(None)
        self.step(lifecycle.Released(self.now(), was_cancelling))

    def condemn(
        self, reason: QuarantineReason, detail: str, request: Request | None = None
    ) -> None:
        """The worker is unfit, for ``request`` if it is the one that shows it; inside a turn."""
        if self.state is not SlotState.QUARANTINED:
            self._detail, self._accused = detail, request
        self.step(lifecycle.Condemned(self.now(), reason))

    def blame(self, generation: Generation, at: float) -> None:
        """An exit that was charged to a request counts against the slot after all."""
        if self.life is not None and self.generation == generation.number:
            self._charged = True  # it is not reaped yet
        else:
            self.step(lifecycle.Blamed(self.now(), at))

    def reload_seconds(self) -> float | None:
        """How long its last worker took to load, and may take to end; ``None`` before the first."""
        if self.load_seconds is None:
            return None
        return self.load_seconds + self.config.cancel.terminate_grace

    # What the ears report -----------------------------------------------------

    def serve(self, ready: Ready) -> None:
        """The worker is loaded, and fit as far as it was tested; inside a turn."""
        worker = self.live().worker
        self.max_sessions = ready.max_named_sessions
        self.load_seconds = self.now() - worker.spawned_at
        self._roll = self.tools.random.random()
        self.step(lifecycle.ReadyHeard(self.now(), worker.connection.capacity))
        self.tell.ready(worker, self.load_seconds)
        self._hooks.on_ready(ready)

    def offer(self) -> None:
        """The slot may take work: let the pool look at its queue."""
        self.turn(self._hooks.on_offer)

    def operated(self) -> None:
        """The worker answered an operation on a session; inside a turn."""
        self._end_operation()
        self.offer()

    def _end_operation(self) -> None:
        done, self._operation = self._operation, None
        if done is not None:
            done()

    def weigh(self, held: int) -> bool:
        """Judge what the worker and its descendants hold of memory, in bytes.

        Returns whether the soft limit still matters: not once it is to be replaced anyway.
        """
        hard = self.config.limits.memory_hard
        if hard is not None and held >= hard:
            detail = (
                f"holds {held / 2**20:.0f} MiB with its descendants; limits.memory_hard is "
                f"{hard / 2**20:.0f} MiB"
            )
            self.turn(partial(self.condemn, QuarantineReason.MEMORY_LIMIT, detail))
        else:
            self._look_at_limits(held)
        return self.recycle is None

    def _look_at_limits(self, held: int | None) -> None:
        """See whether the worker is due to be recycled."""
        if self.life is None or not self.serving or self.recycle is not None:
            return
        limits = self.config.limits
        self.recycle = recycling.due(
            recycling.Limits(
                max_age=limits.max_age,
                max_requests=limits.max_requests,
                memory_soft=limits.memory_soft,
            ),
            started_at=self.life.worker.spawned_at,
            served=self.served,
            held_bytes=held,
            now=self.now(),
            jitter=RECYCLE_JITTER,
            roll=self._roll,
        )
        if self.recycle is not None:
            self.turn(self._hooks.on_move)

    def exiting(self, cause: ExitCause, where: str) -> None:
        """The process has ended; tell it before anything follows from it."""
        worker = self.live().worker
        draining = self.state is SlotState.DRAINING and not self.requests
        if self.state is not SlotState.QUARANTINED:
            self._detail = f"the worker ended{where}: {cause}"
        uptime = self.now() - worker.spawned_at
        self.tell.exited(worker, cause, uptime, expected=draining or self.stage is not None)

    def note_exit(self, cause: ExitCause, worker: Worker) -> None:
        """Keep how the worker ended, for whoever asks what became of it."""
        self.last_exit = LastExit(
            exit=str(cause),
            reason=self.reason,
            at=self.now(),
            generation=worker.generation.number,
            last_lines=self.tell.last_lines(worker),
        )

    # The machine --------------------------------------------------------------

    def step(self, event: object) -> None:
        """Let the machine decide about ``event`` and do what it says; inside a turn."""
        before, served = self._state, self.serving
        self._state, effects = lifecycle.step(before, event)
        if self._state.kind is not before.kind:
            self.since = self.now()
            self.tell.state(
                self._state.generation, before.kind, self._state.kind, self._state.reason
            )
            if self.state is SlotState.DRAINING and self.life is not None:
                self.tell.draining(self.life.worker, self.reason or "", self.recycle, self.requests)
            self.tools.moves.unpark_all()
            if not (served and self.serving):
                self.turn(self._hooks.on_move)
        for effect in effects:
            self._perform(effect, before.generation)

    def _perform(self, effect: lifecycle.Effect, generation_before: int) -> None:
        match effect:
            case lifecycle.Spawn(generation):
                self._spawn(Generation(self.name, generation))
            case lifecycle.StopWorker(gently):
                self._stop_worker(gently=gently)
            case lifecycle.ExitedWorker():
                self.live().ladder.exited()
            case lifecycle.TellQuarantined(reason):
                self._quarantined(reason)
            case lifecycle.TellRestart(attempt, delay, reason):
                self.tell.restart(generation_before, attempt, delay, reason)
            case lifecycle.TellParked(restarts, reason):
                last = self.last_exit
                exit_, lines = (None, []) if last is None else (last.exit, last.last_lines)
                self.tell.parked(self.generation, reason, restarts, exit_, lines)
                self.tools.records.park(
                    self.name,
                    ParkingRecord(
                        reason=reason,
                        exit=exit_,
                        restarts=restarts,
                        at=self.tools.clock.unix(self.now()),
                        last_lines=tuple(lines),
                        place=self.launch.place,
                        launch_digest=self.launch.digest,
                    ),
                )
            case lifecycle.TellResumed():
                self.tell.resumed(self.generation)
            case lifecycle.Offer():
                self.offer()
            case lifecycle.TellDown():
                self.turn(self._hooks.on_down)
            case Arm(timer, at, armed_in):
                self.timers.arm(
                    timer,
                    at,
                    lambda now: self.turn(lambda: self.step(Elapsed(timer, armed_in, now))),
                )

    def _spawn(self, generation: Generation) -> None:
        if self._nursery is None:
            raise InternalError(f"{self.name} does not run")
        self._detail = self._accused = self.recycle = None
        self._charged = True
        self.tools.numbers[self.name] = generation.number
        self.worker_revision = self.revision
        self.tools.records.unpark(self.name)
        try:
            self.life = begin(
                self.launch,
                generation,
                self.config,
                self.tools,
                slot=self,
                ears=self._ears,
                nursery=self._nursery,
                timers=self.timers,
                on_reaped=self._reaped,
            )
        except SpawnError as error:
            self.tell.spawn_failed(str(error))
            failed = lifecycle.SpawnFailed(self.now(), self.tools.random.random())
            self.turn(lambda: self.step(failed))
            return
        self.tell.spawned(self.life.worker, self.launch.argv[0])

    def _stop_worker(self, *, gently: bool) -> None:
        life = self.live()
        life.worker.became_unfit()
        self._ears.worker_gone()
        if gently:
            life.ladder.stop()
        elif self._accused is None:
            life.ladder.condemn()
        else:
            life.ladder.condemn(EscalationStage.COOPERATIVE, self._accused.id)

    def _quarantined(self, reason: QuarantineReason) -> None:
        life = self.live()
        life.worker.became_unfit()
        self._ears.worker_gone()
        self.tell.quarantined(life.worker, reason, self._detail, self.requests)
        # Its sessions are over with it, and nobody waits for its word on them.
        self._hooks.on_lost(self.name)
        self._end_operation()
        self._charged = not life.workload.lose(
            FAILURES.get(reason, FailureReason.WORKER_QUARANTINED),
            self._detail or reason.value,
            exited=reason is QuarantineReason.UNEXPECTED_EXIT,
        )

    def _reaped(self, cause: ExitCause, descendants: Sequence[int]) -> None:
        life = self.live()
        self.tell.reaped(life.worker, cause, descendants)
        self.tools.records.forget(self.name)
        life.workload.release(life.ladder.resolution)
        life.worker.release()
        if life.group is not None and self._nursery is not None:
            self._nursery.start_soon(self.tools.machine.remove, life.group)
        self.life = None
        self._hooks.on_lost(self.name)
        self._end_operation()
        self.step(lifecycle.Gone(self.now(), self.tools.random.random(), charged=self._charged))


def policy_of(config: RestartConfig) -> restart.Policy:
    """The configuration's rules of starting again, as the core wants them."""
    return restart.Policy(**msgspec.structs.asdict(config))
