"""One slot: drives `supervisord_llm.core.slot` for the workers that live in it.

The slot's task owns the timers and the tasks of its worker. Whatever happens to the slot, be it a
message, an exit, a deadline or an operator's wish, comes in through a plain method, is decided by
the machine and done in one turn; nobody who asks something of a slot waits for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

import msgspec
import trio

from supervisord_llm.config.launch import SlotLaunch
from supervisord_llm.config.schema import PoolConfig
from supervisord_llm.core import admission, restart
from supervisord_llm.core import slot as lifecycle
from supervisord_llm.core.effects import Arm, Elapsed
from supervisord_llm.core.words import (
    CancelledBy,
    Dialect,
    EscalationStage,
    ExitCause,
    Extension,
    FailureReason,
    Generation,
    PlannedReason,
    QuarantineReason,
    RejectReason,
    RequestId,
    SlotState,
    TeardownStage,
)
from supervisord_llm.errors import InternalError, Refused, SpawnError
from supervisord_llm.host import usage as host_usage
from supervisord_llm.runtime.announce import Announcer
from supervisord_llm.runtime.life import Life, Tools, begin
from supervisord_llm.runtime.log_book import LogBook
from supervisord_llm.runtime.request import Request
from supervisord_llm.runtime.timers import Timers
from supervisord_llm.wire.messages import (
    Done,
    Failed,
    Generate,
    Malformed,
    Message,
    ProbeAck,
    Ready,
    Tokens,
)

_FAILURES: Mapping[QuarantineReason, FailureReason] = {
    QuarantineReason.UNEXPECTED_EXIT: FailureReason.WORKER_EXITED,
    QuarantineReason.PROTOCOL_ERROR: FailureReason.PROTOCOL_ERROR,
    QuarantineReason.FIRST_TOKEN_STALL: FailureReason.STALLED,
    QuarantineReason.TOKEN_STALL: FailureReason.STALLED,
    QuarantineReason.HEALTH_PROBE_FAILED: FailureReason.STALLED,
}


class LastExit(msgspec.Struct, frozen=True):
    """How the previous worker of a slot ended; ``at`` is on the monotonic clock."""

    exit: str
    reason: str | None
    at: float
    generation: int
    last_lines: list[str]


class Hooks(msgspec.Struct, frozen=True):
    """What the pool wants to hear from its slots."""

    on_offer: Callable[[], None]
    """A slot may take work."""
    on_down: Callable[[], None]
    """A slot is parked or stopped."""
    on_ready: Callable[[Ready], None]
    """A new worker said that it is ready, and what it is."""


class Slot:
    """A stable place with a stable name, in which one worker after the other lives."""

    def __init__(self, launch: SlotLaunch, config: PoolConfig, tools: Tools, hooks: Hooks) -> None:
        """Make a stopped slot; `start` brings it up once `run` runs."""
        self.name = launch.slot
        self.pool = launch.pool
        self.since = tools.clock.now()
        self.last_exit: LastExit | None = None
        self._launch = launch
        self._config = config
        self._tools = tools
        self._hooks = hooks
        self._tell = Announcer(launch.pool, launch.slot, tools.publish, self.since)
        self._state = lifecycle.State(
            policy=restart.Policy(
                backoff_initial=config.restart.backoff_initial,
                backoff_max=config.restart.backoff_max,
                jitter=config.restart.jitter,
                healthy_after=config.restart.healthy_after,
                max_restarts=config.restart.max_restarts,
                restart_window=config.restart.restart_window,
            )
        )
        self._timers = Timers()
        self._life: Life | None = None
        self._stopping = False
        self._detail: str | None = None
        self._accused: Request | None = None
        self._nursery: trio.Nursery | None = None

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Own the slot's tasks until cancelled; stop it in order before that."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(self._timers.run)
            task_status.started()
            await trio.sleep_forever()

    # Facts --------------------------------------------------------------------

    @property
    def state(self) -> SlotState:
        """What the slot is doing."""
        return self._state.kind

    @property
    def stage(self) -> TeardownStage | None:
        """How far the teardown of a quarantined worker has come."""
        if self._life is None or self.state is not SlotState.QUARANTINED:
            return None
        return self._life.ladder.stage

    @property
    def reason(self) -> str | None:
        """Why the slot is in its state, where there is something to say."""
        return self._state.reason

    @property
    def generation(self) -> int:
        """The number of the current, or last, worker."""
        return self._state.generation

    @property
    def pid(self) -> int | None:
        """The worker's process."""
        return None if self._life is None else self._life.worker.process.pid

    @property
    def guardian(self) -> int | None:
        """The process that is the worker's parent, a child of ours."""
        return None if self._life is None else self._life.worker.process.guardian.pid

    @property
    def dialect(self) -> Dialect | None:
        """The protocol that the worker announced."""
        return None if self._life is None else self._life.worker.dialect

    @property
    def extensions(self) -> Sequence[Extension]:
        """What the worker offered."""
        return () if self._life is None else self._life.worker.extensions

    @property
    def capacity(self) -> int:
        """How many requests the worker takes at a time."""
        return self._state.capacity

    @property
    def requests(self) -> Sequence[RequestId]:
        """The requests that the worker holds."""
        return () if self._life is None else self._life.workload.requests

    @property
    def served(self) -> int:
        """How many requests the current worker has ended."""
        return 0 if self._life is None else self._life.worker.served

    @property
    def restarts(self) -> int:
        """How often a worker was replaced because it failed."""
        return self._state.restarts

    @property
    def next_start_at(self) -> float | None:
        """When the next worker starts, in backoff."""
        return self._state.next_start_at

    @property
    def usage(self) -> host_usage.Usage | None:
        """What the worker held and had used when it was last looked at."""
        return None if self._life is None else self._life.worker.usage

    @property
    def logs(self) -> LogBook:
        """The last lines that the slot's workers wrote to stderr."""
        return self._tell.book

    def load(self) -> admission.SlotLoad:
        """What admission needs to know."""
        probing = self._life is not None and self._life.worker.probing
        return admission.SlotLoad(
            slot=self.name,
            takes_work=self._state.takes_work and not probing,
            in_flight=self._state.in_flight,
            capacity=self._state.capacity,
        )

    async def wait_down(self) -> None:
        """Wait until there is no process and none is due: parked or stopped."""
        while self.state not in (SlotState.PARKED, SlotState.STOPPED):
            await self._tools.moves.park()

    # Wishes -------------------------------------------------------------------

    def start(self) -> None:
        """Bring a stopped slot up."""
        self._tools.turn(lambda: self._step(lifecycle.StartAsked(self._now())))

    def reload(self) -> None:
        """Finish what is there, then start a fresh worker; at once if there is none.

        Raises:
            Refused: if the daemon is shutting down.
        """
        self._refuse_when_stopping("reload")
        self._drain(lifecycle.Next.START, PlannedReason.RELOAD)

    def resume(self) -> None:
        """Bring the slot back: from parked, stopped or backoff at once, from draining if it can.

        Nothing happens to a slot that is in service or being torn down to start again.

        Raises:
            Refused: if the daemon is shutting down.
        """
        self._refuse_when_stopping("resume")
        self.start()

    def quarantine(self) -> None:
        """Tear the worker down now, on an operator's word; its requests are cancelled.

        Raises:
            Refused: if the daemon is shutting down, or the slot has no worker.
        """
        self._refuse_when_stopping("quarantine")
        if self._life is None:
            raise Refused(
                RejectReason.POOL_UNAVAILABLE,
                f"cannot quarantine {self.name}: it is {self.state} and has no worker; "
                "`llmctl resume` starts one",
            )
        self.cancel_all(CancelledBy.OPERATOR)
        detail = "an operator asked for it"
        self._tools.turn(partial(self.condemn, QuarantineReason.OPERATOR, detail))

    def _refuse_when_stopping(self, verb: str) -> None:
        if self._stopping:
            raise Refused(
                RejectReason.SHUTTING_DOWN, f"cannot {verb} {self.name}: the daemon shuts down"
            )

    def stop_for_good(self, reason: str) -> None:
        """Finish what is there, then stay down; no later wish brings the slot back."""
        self._stopping = True
        self._drain(lifecycle.Next.STOP, reason)

    def _drain(self, then: lifecycle.Next, reason: str) -> None:
        asked = lifecycle.DrainAsked(self._now(), then, reason)
        self._tools.turn(lambda: self._step(asked))

    def cancel_all(self, by: CancelledBy) -> None:
        """Cancel whatever the worker holds."""
        if self._life is not None:
            self._life.workload.cancel_all(by)

    def assign(self, request: Request, message: Generate) -> None:
        """Give a request to the worker; inside a turn, and only where `load` takes work."""
        self._live().workload.assign(request, message)

    # What its work amounts to -------------------------------------------------

    def took(self) -> None:
        """The worker was given a request."""
        self._step(lifecycle.Assigned(self._now()))

    def cancelling(self) -> None:
        """One of the worker's requests began to be cancelled."""
        self._step(lifecycle.CancelBegan(self._now()))

    def ended(self, *, was_cancelling: bool) -> None:
        """The worker ended a request."""
        self._step(lifecycle.Released(self._now(), was_cancelling))

    def condemn(
        self, reason: QuarantineReason, detail: str, request: Request | None = None
    ) -> None:
        """The worker is unfit, for ``request`` if it is the one that shows it; inside a turn."""
        if self.state is not SlotState.QUARANTINED:
            self._detail, self._accused = detail, request
        self._step(lifecycle.Condemned(self._now(), reason))

    # What the worker does -----------------------------------------------------

    def on_messages(self, messages: Sequence[Message]) -> None:
        """Take what one read brought, in one turn.

        So a terminal that is followed by garbage does not bring the worker another request first.
        Output that changes no state, which is nearly all of it, needs no turn.
        """
        first = messages[0]
        if len(messages) == 1 and isinstance(first, Tokens):
            fit = self._state.kind is not SlotState.QUARANTINED
            if fit and self._live().workload.try_output(first):
                return
        self._tools.turn(partial(self._hear_all, messages))

    def _hear_all(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self._hear(message)

    def _hear(self, message: Message) -> None:
        match message:
            case Tokens():
                if self.state is not SlotState.QUARANTINED:
                    self._live().workload.output(message)
            case ProbeAck():
                self._tools.turn(self._hooks.on_offer)
            case Ready():
                if self.state is SlotState.STARTING:
                    self._ready(message)
            case Done() | Failed():
                # An unfit worker is never trusted again; the teardown answers for its requests.
                if self.state is SlotState.QUARANTINED:
                    self._live().workload.end_too_late(message)
                else:
                    self._live().workload.end(message)
            case Malformed(detail=detail):
                self.condemn(QuarantineReason.PROTOCOL_ERROR, detail)
            case _:
                pass  # a sign of life, which the worker object has taken

    def _ready(self, ready: Ready) -> None:
        worker = self._live().worker
        if worker.dialect is not Dialect.SERIAL_CANCEL:
            worker.channel.close_control()
            if self._config.cancel.cancellation == "required":
                self.condemn(
                    QuarantineReason.UNCANCELLABLE,
                    'cannot be cancelled, but cancel.cancellation is "required"; use a worker '
                    'that supports it, or set "auto"',
                )
                return
        worker.became_idle()
        worker.note_usage()
        self._step(lifecycle.ReadyHeard(self._now(), worker.connection.capacity))
        self._tell.ready(worker, self._now() - worker.spawned_at)
        self._hooks.on_ready(ready)

    def after_read(self) -> Awaitable[None] | None:
        """Between two reads of the worker's output: what to wait for, if anything."""
        return None if self._life is None else self._life.workload.clients_chance()

    def on_decoding(self) -> None:
        """The worker has left its prefill."""
        self._tools.turn(self._live().workload.decoding)

    def on_log(self, lines: Sequence[str]) -> None:
        """The worker wrote to stderr."""
        self._tell.log(self.generation, lines, self._now())

    def on_usage(self, used: host_usage.Usage) -> None:
        """The worker was looked at."""
        self._tell.usage(self.generation, used)

    def on_descendants(self) -> None:
        """The worker has other descendants than before."""
        self._tools.records.remember(self._live().worker.process)

    def on_unfit(self, reason: QuarantineReason, detail: str) -> None:
        """There is evidence against the worker."""
        self._tools.turn(partial(self.condemn, reason, detail))

    def on_exit(self, cause: ExitCause, *, cut_off: bool) -> None:
        """The worker's process has ended."""
        worker = self._live().worker
        draining = self.state is SlotState.DRAINING and not self.requests
        if self.state is not SlotState.QUARANTINED:
            where = " in the middle of a line" if cut_off else ""
            self._detail = f"the worker ended{where}: {cause}"
        uptime = self._now() - worker.spawned_at
        self._tell.exited(worker, cause, uptime, expected=draining or self.stage is not None)
        self._tools.turn(lambda: self._step(lifecycle.ExitSeen(self._now())))
        self.last_exit = LastExit(
            exit=str(cause),
            reason=self.reason,
            at=self._now(),
            generation=worker.generation.number,
            last_lines=self._tell.last_lines(worker),
        )

    # The machine --------------------------------------------------------------

    def _now(self) -> float:
        return self._tools.clock.now()

    def _live(self) -> Life:
        if self._life is None:
            raise InternalError(f"{self.name} has no worker")
        return self._life

    def _step(self, event: object) -> None:
        before = self._state
        self._state, effects = lifecycle.step(before, event)
        if self._state.kind is not before.kind:
            self.since = self._now()
            self._tell.state(
                self._state.generation, before.kind, self._state.kind, self._state.reason
            )
            self._tools.moves.unpark_all()
        for effect in effects:
            self._perform(effect, before.generation)

    def _perform(self, effect: lifecycle.Effect, generation_before: int) -> None:
        match effect:
            case lifecycle.Spawn(generation):
                self._spawn(Generation(self.name, generation))
            case lifecycle.StopWorker(gently):
                self._stop_worker(gently=gently)
            case lifecycle.ExitedWorker():
                self._live().ladder.exited()
            case lifecycle.TellQuarantined(reason):
                self._quarantined(reason)
            case lifecycle.TellRestart(attempt, delay, reason):
                self._tell.restart(generation_before, attempt, delay, reason)
            case lifecycle.TellParked(restarts, reason):
                last = self.last_exit
                exit_, lines = (None, []) if last is None else (last.exit, last.last_lines)
                self._tell.parked(self.generation, reason, restarts, exit_, lines)
            case lifecycle.TellResumed():
                self._tell.resumed(self.generation)
            case lifecycle.Offer():
                self._tools.turn(self._hooks.on_offer)
            case lifecycle.TellDown():
                self._tools.turn(self._hooks.on_down)
            case Arm(timer, at, armed_in):
                self._timers.arm(
                    timer,
                    at,
                    lambda now: self._tools.turn(lambda: self._step(Elapsed(timer, armed_in, now))),
                )

    def _spawn(self, generation: Generation) -> None:
        if self._nursery is None:
            raise InternalError(f"{self.name} does not run")
        self._detail = self._accused = None
        try:
            self._life = begin(
                self._launch,
                generation,
                self._config,
                self._tools,
                slot=self,
                nursery=self._nursery,
                timers=self._timers,
                on_reaped=self._reaped,
            )
        except SpawnError as error:
            self._tell.spawn_failed(str(error))
            failed = lifecycle.SpawnFailed(self._now(), self._tools.random.random())
            self._tools.turn(lambda: self._step(failed))
            return
        self._tell.spawned(self._life.worker, self._launch.argv[0])

    def _stop_worker(self, *, gently: bool) -> None:
        life = self._live()
        life.worker.became_unfit()
        if gently:
            life.ladder.stop()
        elif self._accused is None:
            life.ladder.condemn()
        else:
            life.ladder.condemn(EscalationStage.COOPERATIVE, self._accused.id)

    def _quarantined(self, reason: QuarantineReason) -> None:
        life = self._live()
        life.worker.became_unfit()
        self._tell.quarantined(life.worker, reason, self._detail, self.requests)
        error = _FAILURES.get(reason, FailureReason.WORKER_QUARANTINED)
        life.workload.lose(error, self._detail or reason.value)

    def _reaped(self, cause: ExitCause, descendants: Sequence[int]) -> None:
        life = self._live()
        self._tell.reaped(life.worker, cause, descendants)
        self._tools.records.forget(self.name)
        life.workload.release(life.ladder.resolution)
        life.worker.release()
        self._life = None
        self._step(lifecycle.Gone(self._now(), self._tools.random.random()))
