"""One model: its slots, the requests that wait for them, and what an operator wants of both."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from supervisord_llm import events
from supervisord_llm.config.schema import PoolConfig
from supervisord_llm.core import admission, ledger, suspicion
from supervisord_llm.core.words import (
    WIRE_ID_MAX,
    CancelledBy,
    FailureReason,
    Outcome,
    PlannedReason,
    PoolName,
    RejectReason,
    SlotName,
    SlotState,
)
from supervisord_llm.errors import InternalError, InvalidRequest, Refused
from supervisord_llm.runtime.fleet import Fleet, Launches
from supervisord_llm.runtime.ids import new_request_id
from supervisord_llm.runtime.life import Tools
from supervisord_llm.runtime.mailbox import Mailbox
from supervisord_llm.runtime.pool_facts import PoolFacts
from supervisord_llm.runtime.queue import Queue
from supervisord_llm.runtime.registry import Registry
from supervisord_llm.runtime.request import Render, Request, RequestSpec, RequestStream
from supervisord_llm.runtime.sessions import SessionDesk
from supervisord_llm.runtime.slot import Slot
from supervisord_llm.runtime.slot_driver import Hooks
from supervisord_llm.runtime.slot_facts import DOWN
from supervisord_llm.runtime.timers import Timers
from supervisord_llm.wire.messages import Generate, Model, Ready

_ON_THE_WAY = frozenset({SlotState.STARTING, SlotState.DRAINING})
"""The states that pass by themselves, and that a planned change goes through."""


class Pool(PoolFacts):
    """A model, the slots that serve it, and the requests that wait for them."""

    def __init__(
        self,
        name: PoolName,
        config: PoolConfig,
        launches: Launches,
        tools: Tools,
        registry: Registry,
    ) -> None:
        """Make the pool's slots; nothing runs yet.

        Raises:
            ValueError: if a slot cannot be worked out.
        """
        self._tools = tools
        self._registry = registry
        self._timers = Timers()
        self._scope = trio.CancelScope()
        self._nursery: trio.Nursery | None = None
        self._keeps_sessions: bool | None = None
        self._suspicion = suspicion.State()
        # The desk is made from the fleet's slots, and the fleet's slots speak to the desk.
        hooks = Hooks(
            on_offer=self._schedule,
            on_down=self._give_up,
            on_ready=self._learn,
            on_move=self._moved,
            on_lost=self._forget_sessions,
        )
        fleet = Fleet(name, config, launches, tools, hooks)
        desk = SessionDesk(
            config.session_ttl,
            lambda: fleet.slots,
            clock=tools.clock,
            timers=self._timers,
            turn=tools.turn,
            on_offer=self._offer,
        )
        queue = Queue(config.queue, desk, clock=tools.clock, timers=self._timers, turn=tools.turn)
        super().__init__(name, fleet, queue, desk)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Own the tasks of the pool and its slots until cancelled; stop it in order before that."""
        with self._scope:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                self._fleet.open(nursery)
                nursery.start_soon(self._timers.run)
                task_status.started()
                await trio.sleep_forever()

    def close(self) -> None:
        """End the pool's tasks; it is `finished`, and its slots are no slots any more."""
        self._fleet.close()
        self._scope.cancel()

    # The way in ---------------------------------------------------------------

    @asynccontextmanager
    async def request(self, spec: RequestSpec) -> AsyncIterator[RequestStream]:
        """Queue a request and hold it; leaving, by whatever exit, settles it or hands it over.

        Raises:
            InvalidRequest: if it names a session and the workers keep none.
            Refused: if the pool does not take it.
        """
        stream = self._accept(spec)
        try:
            yield stream
        finally:
            # What this begins belongs to the slot's task; the death of this one does not end it.
            stream.request.mailbox.close()
            stream.request.cancel(CancelledBy.CLIENT)

    def _accept(self, spec: RequestSpec) -> RequestStream:
        reason = admission.refusal(
            len(self._queue),
            self.config.queue.max_queued,
            can_serve=self._can_ever_serve(),
            stopping=self._stopping,
        )
        if reason is not None:
            raise Refused(
                reason, self._refusal_in_words(reason), retry_after=self._retry_after(reason)
            )
        self._refuse_session(spec)
        queue = self.config.queue
        request = Request(
            new_request_id(),
            self.name,
            spec,
            owner=self,
            mailbox=Mailbox(queue.mailbox_tokens, queue.mailbox_bytes),
            max_attempts=queue.max_attempts,
            clock=self._tools.clock,
            publish=self._tools.publish,
            turn=self._tools.turn,
        )
        before = len(self._queue)
        self._registry.add(request)
        self._tools.publish(
            events.RequestAccepted(pool=self.name, request=request.id, queued=before)
        )

        def accept() -> None:
            self._queue.accept(request)
            self._prepare(request)
            self._schedule()
            if not self.loaded or not before:
                self._tools.on_demand()

        self._tools.turn(accept)
        return RequestStream(request, before)

    @property
    def keeps_sessions(self) -> bool | None:
        """Whether its workers keep named sessions; ``None`` until one of them has told."""
        return self._keeps_sessions

    def _refuse_session(self, spec: RequestSpec) -> None:
        # By the last worker's word: while all of them are new and load, nobody else can tell.
        if spec.session_id is not None and self._keeps_sessions is False:
            raise InvalidRequest(
                f"cannot use field 'session_id': the workers of pool {self.name!r} keep no named "
                "sessions; leave it out, or start them with room for some",
                param="session_id",
            )

    def _refusal_in_words(self, reason: RejectReason) -> str:
        if reason is RejectReason.SHUTTING_DOWN:
            return "the daemon is shutting down; try again once it is back"
        if reason is RejectReason.QUEUE_FULL:
            return (
                f"the queue of pool {self.name!r} is full ({self.config.queue.max_queued} "
                "requests); try again later"
            )
        if self.drained:
            return f"pool {self.name!r} takes no new work: {self.unavailable_because}"
        return (
            f"no slot of pool {self.name!r} can serve ({self.unavailable_because}); an operator "
            "has to see to it with `llmctl workers` and `llmctl resume`"
        )

    def _retry_after(self, reason: RejectReason) -> float:
        starts = [slot.next_start_at for slot in self.slots if slot.next_start_at is not None]
        waits = reason is RejectReason.QUEUE_FULL and not self.serving
        return self._queue.retry_after(min(starts, default=None) if waits else None)

    # The owner of its requests ------------------------------------------------

    def withdraw(self, request: Request) -> None:
        """Take a request out of the queue; inside a turn."""
        self._queue.withdraw(request)

    def take_back(self, request: Request) -> None:
        """A request has lost its worker and waits for another; inside a turn."""
        self._queue.take_back(request)
        self._offer()
        self._tools.turn(self._give_up)

    def forget(self, request: Request) -> None:
        """A request is over: it is only remembered for a while."""
        record = request.record
        if record is not None and record.suspect:
            self._suspicion = suspicion.convicted(self._suspicion, hash(request.spec.prompt))
        elif record is not None and record.outcome is Outcome.COMPLETED:
            self.produced()
        if request.session_refused and request.spec.session_id and request.worker:
            self._desk.refused(request.spec.session_id, request.worker)
        self._queue.over(request, self.queued + self.in_flight)
        self._registry.retire(request)
        if self.on_demand or self.drained:
            self._moved()

    def may_charge(self, request: Request) -> bool:
        """Whether the end of its worker may be held against a request."""
        return suspicion.may_be_charged(self._suspicion, hash(request.spec.prompt))

    def produced(self) -> None:
        """A worker showed that it can produce output."""
        self._suspicion = suspicion.produced(self._suspicion)

    # Who goes where -----------------------------------------------------------

    def _offer(self) -> None:
        self._tools.turn(self._schedule)

    def _schedule(self) -> None:
        """Give what waits to who is free; inside a turn."""
        self._desk.work()
        if not self._queue:
            return
        by_name = {slot.name: slot for slot in self.slots}
        loads = [slot.load(self._desk.count_of(slot.name)) for slot in self.slots]
        for request, name in self._queue.assignments(loads):
            self._assign(request, by_name[name])

    def _assign(self, request: Request, slot: Slot) -> None:
        session = request.spec.session_id
        if session is not None and slot.max_sessions:
            if not self._desk.has_room(session, slot):
                # The worker forgets another one first; its answer brings the queue back here.
                self._queue.put_back(request)
                return
            self._desk.used(session, slot)
        else:
            session = None
        slot.assign(request, self._message(request.spec, session))
        if request.wire_id == WIRE_ID_MAX:
            slot.replace(PlannedReason.RECYCLE)  # ids never wrap; the next worker begins at 1

    def _message(self, spec: RequestSpec, session: str | None) -> Generate:
        sampling = self.config.sampling
        return Generate(
            prompt=spec.prompt,
            session_id=session,
            max_new_tokens=(
                sampling.max_new_tokens if spec.max_new_tokens is None else spec.max_new_tokens
            ),
            temperature=sampling.temperature if spec.temperature is None else spec.temperature,
            top_p=spec.top_p,
            top_k=spec.top_k,
            seed=spec.seed,
            stop=spec.stop,
        )

    def _prepare(self, request: Request) -> None:
        """Have the prompt made, if it is not and the model is known; inside a turn.

        In a task of its own: it may take its time, and nothing else waits for it meanwhile.
        """
        if request.spec.render is None or self.model is None:
            return
        if self._nursery is None:
            raise InternalError(f"pool {self.name} knows its model and does not run")
        self._nursery.start_soon(self._make_prompt, request, request.spec.render, self.model)

    async def _make_prompt(self, request: Request, render: Render, model: Model) -> None:
        try:
            prompt = await render(model)
        except InvalidRequest as error:
            lost = FailureReason.INVALID_REQUEST, str(error)
        except Refused as error:
            lost = FailureReason.POOL_UNAVAILABLE, str(error)
        else:
            self._tools.turn(lambda: self._prepared(request, prompt))
            return
        reason, detail = lost
        now = self._tools.clock.now()
        self._tools.turn(lambda: request.post(ledger.PoolLost(now, detail, reason)))

    def _prepared(self, request: Request, prompt: str) -> None:
        if request.record is None:
            request.prepare(prompt)
            self._schedule()

    def _give_up(self) -> None:
        """Answer for what waits if no slot can take it any more; inside a turn."""
        if self._stopping:
            self._cancel_queued()
            return
        if self._slots_can_serve() and not (self.drained and not self.loaded):
            return
        detail = f"no slot of pool {self.name!r} can serve: {self.unavailable_because}"
        for request in self._queue.requests:
            request.post(ledger.PoolLost(self._tools.clock.now(), detail))

    def _forget_sessions(self, slot: SlotName) -> None:
        self._desk.lost(slot)

    def _learn(self, ready: Ready) -> None:
        self._keeps_sessions = ready.max_named_sessions > 0
        known = self.model is not None
        if ready.model is not None or not known:
            self.model = ready.model or Model()
        if not known:
            for request in self._queue.requests:
                self._prepare(request)

    def _moved(self) -> None:
        """A slot went into service or out of it: see what is to be done about it."""
        if self.serving and self.serving_since is None:
            self.serving_since = self._tools.clock.now()
        if self.drained and not self._queue and not self._stopping:
            self._fleet.unload(PlannedReason.DRAIN)
        self._fleet.look()
        self._tools.on_demand()

    # What an operator wants ---------------------------------------------------

    def _refuse_when_stopping(self, verb: str) -> None:
        if self._stopping:
            raise Refused(
                RejectReason.SHUTTING_DOWN,
                f"cannot {verb} pool {self.name!r}: the daemon shuts down",
            )

    def reload(self) -> None:
        """Replace every worker by a fresh one, without losing work.

        Raises:
            Refused: if the daemon is shutting down.
        """
        self._refuse_when_stopping("reload")
        self._fleet.renew()

    def drain(self) -> None:
        """Take nothing new, finish what waits and runs, then have no workers.

        Raises:
            Refused: if the daemon is shutting down.
        """
        self._refuse_when_stopping("drain")
        self.drained = True
        self._tools.turn(self._moved)
        self._tools.turn(self._give_up)

    def resume(self) -> None:
        """Bring the pool, and each of its slots that is parked or was stopped, back.

        Raises:
            Refused: if the daemon is shutting down.
        """
        self._refuse_when_stopping("resume")
        self.drained = False
        if not self.on_demand:
            self._fleet.load()
        for slot in self.slots:
            if slot.held or slot.state in (SlotState.PARKED, SlotState.BACKOFF):
                slot.resume()
        self._tools.turn(self._moved)

    def scale(self, workers: int) -> None:
        """Have so many slots, besides those on standby; until the daemon is started again.

        Raises:
            InvalidRequest: if the configuration has no place for so many.
            Refused: if the daemon is shutting down.
        """
        self._refuse_when_stopping("scale")
        try:
            self._fleet.scale(workers)
        except ValueError as error:
            raise InvalidRequest(
                f"cannot scale pool {self.name!r} to {workers} workers: {error}", param="workers"
            ) from error

    async def close_session(self, session_id: str) -> bool:
        """Forget a session, after what was asked of it before; whether there was one.

        Raises:
            Refused: if the daemon is shutting down.
        """
        self._refuse_when_stopping("close a session of")
        return await self._desk.ask("close", session_id)

    async def reset_session(self, session_id: str) -> bool:
        """Empty a session, after what was asked of it before; whether there was one.

        Raises:
            Refused: if the daemon is shutting down.
        """
        self._refuse_when_stopping("reset a session of")
        return await self._desk.ask("reset", session_id)

    async def wait_settled(self) -> None:
        """Wait until what was last wanted of its slots has come about, or has failed.

        A drained pool has finished then, and any other has no slot that loads or drains.
        """
        while not self._settled:
            await self._tools.moves.park()

    @property
    def _settled(self) -> bool:
        if self.reloading or (self.drained and not self.finished):
            return False
        return not any(slot.state in _ON_THE_WAY for slot in self.slots)

    # What the daemon wants ----------------------------------------------------

    def reconfigure(self, config: PoolConfig, launches: Launches, *, renew: bool) -> None:
        """Put another configuration into force; ``renew`` replaces the workers, one by one."""
        self._fleet.reconfigure(config, launches)
        self._queue.config = config.queue
        self._desk.keep_for(config.session_ttl)
        if renew:
            self._fleet.renew()
        if not self.on_demand and not self.drained:
            self._fleet.load()
        self._tools.turn(self._moved)

    def note_launches(self, launches: Launches) -> None:
        """Other pools have changed, and with them, perhaps, the cores that are left for this."""
        self._fleet.launches = launches

    def load(self) -> None:
        """Have workers; inside a turn."""
        if not self.loaded and not self.drained:
            self.serving_since = None
            self._fleet.load()

    def unload(self, reason: PlannedReason) -> None:
        """Have none; what waits goes on waiting; inside a turn."""
        if self.loaded:
            self._fleet.unload(reason)

    def begin_stop(self) -> None:
        """Take nothing new, answer for what waits, let the slots finish what they have."""
        self._stopping = True
        self._cancel_queued()
        self._fleet.stop()

    def _cancel_queued(self) -> None:
        for request in self._queue.requests:
            request.cancel(CancelledBy.SHUTDOWN)

    def cancel_all(self, by: CancelledBy) -> None:
        """Cancel whatever is on workers."""
        for slot in self.slots:
            slot.cancel_all(by)

    async def wait_down(self) -> None:
        """Wait until no slot has a process and none is due."""
        while not all(slot.state in DOWN for slot in self.slots):
            await self._tools.moves.park()
