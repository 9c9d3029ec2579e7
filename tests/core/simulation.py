"""A pool without processes: the core's machines, a virtual clock, and workers that follow a script.

Everything that the runtime does with pipes, signals and tasks is done here by entries in one list
of due acts, in the order of their times, so that a whole history of faults takes microseconds and
is the same each time. Only what the machines say is performed; there is no judgement here either.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import deque
from collections.abc import Callable, Sequence

from supervisord_llm.core import (
    admission,
    cancellation,
    escalation,
    ledger,
    queueing,
    slot,
)
from supervisord_llm.core.effects import Arm, Elapsed
from supervisord_llm.core.words import (
    CancelledBy,
    FailureReason,
    FinishReason,
    QuarantineReason,
    RequestId,
    RequestState,
    SlotState,
    Usage,
)
from tests.core.simulated import Request, Script, Settings, Slot, Worker


class Pool:
    """Slots, a queue, and the clock that moves all of it."""

    def __init__(self, settings: Settings, scripts: Sequence[Sequence[Script]]) -> None:
        self.now = 0.0
        self.settings = settings
        self.slots = [Slot(f"p.{index}", settings, each) for index, each in enumerate(scripts)]
        self.requests: dict[RequestId, Request] = {}
        self.refused = 0
        self._waiting: list[queueing.Waiting] = []
        self._turns: dict[str, queueing.Turn] = {}
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._armed: dict[object, int] = {}
        self._order = itertools.count()
        self._acts: deque[Callable[[], None]] = deque()
        self._running = False
        for each in self.slots:
            self._step_slot(each, slot.StartAsked(0.0))

    # Time ---------------------------------------------------------------------------------------

    def at(self, time: float, act: Callable[[], None]) -> int:
        """Do ``act`` at this time; what was due there before comes first."""
        number = next(self._order)
        heapq.heappush(self._due, (max(time, self.now), number, act))
        return number

    def run(self, until: float) -> None:
        """Let time pass."""
        while self._due and self._due[0][0] <= until:
            self.now, _, act = heapq.heappop(self._due)
            self._turn(act)
        self.now = max(self.now, until)

    def _turn(self, act: Callable[[], None]) -> None:
        self._acts.append(act)
        if self._running:
            return
        self._running = True
        try:
            while self._acts:
                self._acts.popleft()()
        finally:
            self._running = False
        self._check()

    def _check(self) -> None:
        idle = any(each.state.takes_work for each in self.slots)
        assert not (idle and self._waiting), "a request waits although a slot is free"
        for each in self.slots:
            late = each.state.next_start_at is not None and each.state.next_start_at < self.now
            assert not late, "a slot sleeps through its next start"

    def _arm(self, key: object, arm: Arm, fire: Callable[[Elapsed], None]) -> None:
        def act() -> None:
            if self._armed.get(key) == number:
                fire(Elapsed(arm.timer, arm.armed_in, self.now))

        number = self.at(arm.at, act)
        self._armed[key] = number

    def _later(self, delay: float | None, act: Callable[[], None]) -> None:
        if delay is not None:
            self.at(self.now + delay, act)

    # Wishes -------------------------------------------------------------------------------------

    def submit(self) -> None:
        """Accept a request, or refuse it."""
        if admission.refusal(
            len(self._waiting),
            self.settings.max_queued,
            can_serve=self._can_serve,
            stopping=False,
        ):
            self.refused += 1
            return
        request = Request(f"req_{len(self.requests)}", self.now, self.settings.max_attempts)
        self.requests[request.id] = request
        self._waiting.append(self._entry(request))
        self._turn(self._offer)
        self.at(self.now + self.settings.queue_timeout, self._expire)

    def cancel(self, index: int, by: CancelledBy) -> None:
        """Ask for the end of the request with this number, if there is one."""
        request = self.requests.get(f"req_{index}")
        if request is not None:
            self._post(request, ledger.CancelAsked(self.now, by))

    def find_stop(self, index: int) -> None:
        """Find a stop string in the output of the request with this number, if it has any yet."""
        request = self.requests.get(f"req_{index}")
        if request is not None and request.state.kind is RequestState.STREAMING:
            request.stopped_at = self.now
            self._post(request, ledger.StopFound(self.now))

    def condemn(self, index: int) -> None:
        """Find the worker of one slot unfit, if it has one."""
        each = self.slots[index % len(self.slots)]
        self._step_slot(each, slot.Condemned(self.now, QuarantineReason.TOKEN_STALL))

    def start(self) -> None:
        """Want every slot up."""
        for each in self.slots:
            self._step_slot(each, slot.StartAsked(self.now))

    def drain(self, then: slot.Next) -> None:
        """Reload or stop every slot."""
        for each in self.slots:
            self._step_slot(each, slot.DrainAsked(self.now, then, "reload"))

    # Queue --------------------------------------------------------------------------------------

    def _entry(self, request: Request) -> queueing.Waiting:
        return queueing.Waiting(
            request=request.id,
            client="anybody",
            priority=0,
            enqueued_at=request.state.accepted_at,
            queue_deadline=self.now + self.settings.queue_timeout,
        )

    def _offer(self) -> None:
        loads = [
            queueing.SlotLoad(
                slot=each.name,
                takes_work=each.state.takes_work,
                in_flight=each.state.in_flight,
                capacity=each.state.capacity,
                sessions=0,
                fit=each.state.takes_work,
            )
            for each in self.slots
        ]
        decided = queueing.assign(self._waiting, loads, self._turns, 5.0, self.now)
        self._turns = decided.turns
        for assignment in decided.assignments:
            chosen = next(each for each in self.slots if each.name == assignment.slot)
            self._withdraw(assignment.request)
            self._assign(self.requests[assignment.request], chosen)

    def _expire(self) -> None:
        for each in queueing.expired(self._waiting, self.now):
            self._post(self.requests[each], ledger.QueueExpired(self.now))

    @property
    def _can_serve(self) -> bool:
        down = (SlotState.PARKED, SlotState.STOPPED)
        return any(each.state.kind not in down for each in self.slots)

    def _down(self) -> None:
        if not self._can_serve:
            for entry in list(self._waiting):
                self._post(self.requests[entry.request], ledger.PoolLost(self.now, "parked"))

    def _withdraw(self, id_: RequestId) -> None:
        self._waiting = [entry for entry in self._waiting if entry.request != id_]

    # Requests -----------------------------------------------------------------------------------

    def _assign(self, request: Request, to: Slot) -> None:
        worker = to.worker
        assert worker is not None
        assert worker.condemned_at is None, "work for an unfit worker"
        assert not worker.exited, "work for a worker that has ended"
        self._step_slot(to, slot.Assigned(self.now))
        request.held_by = worker
        request.tries.append((self.now, worker))
        worker.requests[request.id] = request
        self._post(request, ledger.Assigned(self.now))
        script = worker.script
        self._later(script.dies_of_prompts, lambda: self._exit(worker))
        self._later(script.prefill, lambda: self._output(worker, request))
        self._later(
            script.prefill + script.decode, lambda: self._done(worker, request, cancelled=False)
        )

    def _output(self, worker: Worker, request: Request) -> None:
        if worker.exited or worker.condemned_at is not None or request.id not in worker.requests:
            return
        self._deliver(worker, request)
        self._post(request, ledger.FirstOutput(self.now))
        worker.decoding.add(request.id)
        if request.id in worker.cancellations:
            self._step_cancellation(worker, request, cancellation.Decoding(self.now))

    def _deliver(self, worker: Worker, request: Request) -> None:
        if request.state.record is None:
            request.delivered.append(worker)

    def _done(self, worker: Worker, request: Request, *, cancelled: bool) -> None:
        if not worker.exited and request.id in worker.lost:
            request.lates += 1
        if worker.exited or request.id not in worker.requests:
            return
        if worker.condemned_at is not None:
            # A shell need not tell this to the slot; if it does, it must bring nobody back.
            self._step_slot(worker.of, slot.Released(self.now, was_cancelling=False))
            return
        was_cancelling = request.id in worker.cancellations
        if was_cancelling:
            self._step_cancellation(worker, request, cancellation.Terminal(self.now))
            del worker.cancellations[request.id]
        del worker.requests[request.id]
        request.held_by = None
        self._deliver(worker, request)
        reason = FinishReason.STOP
        done = ledger.Done(now=self.now, cancelled=cancelled, finish_reason=reason, usage=Usage())
        self._post(request, done)
        self._step_slot(worker.of, slot.Released(self.now, was_cancelling))

    def _post(self, request: Request, event: object) -> None:
        request.state, effects = ledger.step(request.state, event)
        for effect in effects:
            match effect:
                case ledger.Seal(record):
                    request.seals.append((self.now, record))
                case ledger.Withdraw():
                    self._withdraw(request.id)
                case ledger.AskWorker():
                    self._ask(request)
                case ledger.Requeue():
                    self._requeue(request)
                case ledger.Charge():
                    self._excuse(request)
                case ledger.Acquit(at):
                    self._blame(request, at)
                case ledger.Over():
                    request.overs += 1
                case _:
                    pass  # an announcement

    def _requeue(self, request: Request) -> None:
        worker, request.held_by = request.held_by, None
        assert worker is not None
        worker.lost[request.id] = worker.requests.pop(request.id)
        # It waits anew, but where it was.
        self._waiting.insert(0, self._entry(request))
        self._waiting.sort(key=lambda entry: self.requests[entry.request].state.accepted_at)
        self._turn(self._offer)
        self.at(self.now + self.settings.queue_timeout, self._expire)

    def _excuse(self, request: Request) -> None:
        assert request.held_by is not None
        request.held_by.excused = True
        request.charged.append(request.held_by)

    def _blame(self, request: Request, at: float) -> None:
        (worker,), request.charged = request.charged, []
        assert at == worker.condemned_at
        worker.excused = False
        # Before it is reaped, its end is yet to be counted.
        if worker.reaped:
            self._step_slot(worker.of, slot.Blamed(self.now, at))

    def _ask(self, request: Request) -> None:
        worker = request.held_by
        assert worker is not None
        self._step_slot(worker.of, slot.CancelBegan(self.now))
        worker.cancellations[request.id], effects = cancellation.begin(
            self.now, self.settings.terms, decoding=request.id in worker.decoding
        )
        self._perform_cancellation(worker, request, effects)

    # Cancellations ------------------------------------------------------------------------------

    def _step_cancellation(self, worker: Worker, request: Request, event: object) -> None:
        if request.id not in worker.cancellations:
            return
        state, effects = cancellation.step(worker.cancellations[request.id], event)
        worker.cancellations[request.id] = state
        self._perform_cancellation(worker, request, effects)

    def _perform_cancellation(
        self, worker: Worker, request: Request, effects: Sequence[cancellation.Effect]
    ) -> None:
        for effect in effects:
            match effect:
                case cancellation.WriteFrame():
                    self._turn(lambda: self._write(worker, request))
                case Arm(timer=timer):
                    self._arm(
                        (worker, request, timer),
                        effect,
                        lambda elapsed: self._step_cancellation(worker, request, elapsed),
                    )
                case cancellation.Answer(by):
                    self._post(request, ledger.GraceMissed(self.now, by))
                case cancellation.Condemn(reason):
                    self._step_slot(worker.of, slot.Condemned(self.now, reason))
                case _:
                    pass  # an announcement

    def _write(self, worker: Worker, request: Request) -> None:
        if worker.script.pipe_breaks:
            self._step_cancellation(worker, request, cancellation.PipeBroken(self.now))
            return
        self._step_cancellation(worker, request, cancellation.FrameTaken(self.now))
        self._later(worker.script.heeds_cancel, lambda: self._done(worker, request, cancelled=True))

    # Slots --------------------------------------------------------------------------------------

    def _step_slot(self, of: Slot, event: object) -> None:
        of.state, effects = slot.step(of.state, event)
        for effect in effects:
            match effect:
                case slot.Spawn(generation):
                    self._spawn(of, generation)
                case slot.StopWorker(gently):
                    kind = escalation.StopAsked if gently else escalation.Condemned
                    self._step_ladder(self._worker(of), kind(self.now))
                case slot.ExitedWorker():
                    self._step_ladder(self._worker(of), escalation.Exited(self.now))
                case slot.TellQuarantined(reason):
                    self._lose(self._worker(of), reason)
                case slot.TellRestart(delay=delay):
                    if of.worker is not None:
                        of.worker.restart_delay += delay
                case slot.TellParked() if of.worker is not None:
                    of.worker.restart_delay = math.inf
                case slot.Offer():
                    self._turn(self._offer)
                case slot.TellDown():
                    self._turn(self._down)
                case Arm():
                    self._arm(of, effect, lambda elapsed: self._step_slot(of, elapsed))
                case _:
                    pass  # an announcement

    def _worker(self, of: Slot) -> Worker:
        assert of.worker is not None
        return of.worker

    def _spawn(self, of: Slot, generation: int) -> None:
        assert of.worker is None or of.worker.reaped, "two workers in one slot"
        script = of.scripts[min(of.spawned, len(of.scripts) - 1)]
        of.spawned += 1
        if not script.spawns:
            self._turn(lambda: self._step_slot(of, slot.SpawnFailed(self.now, 0.5)))
            return
        worker = Worker(of, generation, script, self.now)
        of.worker = worker
        of.workers.append(worker)
        self._later(worker.script.load, lambda: self._ready(worker))
        self._later(worker.script.exits_after, lambda: self._exit(worker))

    def _ready(self, worker: Worker) -> None:
        if not worker.exited and not worker.reaped:
            self._step_slot(worker.of, slot.ReadyHeard(self.now, worker.script.capacity))

    def _exit(self, worker: Worker) -> None:
        if not worker.exited:
            worker.exited = True
            self._step_slot(worker.of, slot.ExitSeen(self.now))

    def _lose(self, worker: Worker, reason: QuarantineReason) -> None:
        worker.condemned_at = self.now
        for id_ in list(worker.cancellations):
            self._step_cancellation(worker, worker.requests[id_], cancellation.WorkerGone(self.now))
        alone = reason is QuarantineReason.UNEXPECTED_EXIT and len(worker.requests) == 1
        error = FailureReason.WORKER_QUARANTINED
        for request in list(worker.requests.values()):
            self._post(request, ledger.WorkerLost(self.now, error, reason.value, alone))

    # Ladder -------------------------------------------------------------------------------------

    def _step_ladder(self, worker: Worker, event: object) -> None:
        worker.ladder, effects = escalation.step(worker.ladder, event)
        for effect in effects:
            match effect:
                case escalation.CloseStdin():
                    self._later(worker.script.heeds_close, lambda: self._exit(worker))
                case escalation.Terminate():
                    self._later(worker.script.heeds_term, lambda: self._exit(worker))
                case escalation.Kill():
                    self._later(worker.script.heeds_kill, lambda: self._exit(worker))
                case escalation.Reap():
                    self._turn(lambda: self._reap(worker))
                case escalation.TellUnreapable():
                    assert worker.unreapable_at is None
                    worker.unreapable_at = self.now
                case Arm():
                    self._arm(worker, effect, lambda elapsed: self._step_ladder(worker, elapsed))
                case _:
                    pass  # an announcement

    def _reap(self, worker: Worker) -> None:
        worker.reaped = True
        self._step_ladder(worker, escalation.Reaped(self.now))
        resolution = escalation.resolution(worker.ladder)
        requests, worker.requests = worker.requests, {}
        for request in requests.values():
            request.held_by = None
            self._post(request, ledger.Released(self.now, resolution))
        self._step_slot(worker.of, slot.Gone(self.now, 0.5, charged=not worker.excused))

    @property
    def alive(self) -> list[Worker]:
        """The workers that have not been reaped."""
        return [worker for each in self.slots for worker in each.workers if not worker.reaped]

    @property
    def at_rest(self) -> bool:
        """Whether every slot is down."""
        down = (SlotState.PARKED, SlotState.STOPPED)
        return all(each.state.kind in down for each in self.slots)
