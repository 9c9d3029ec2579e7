"""One model's slots and their queue: runs `supervisord_llm.core.admission`, performs its result."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial

import trio

from supervisord_llm import events
from supervisord_llm.config.launch import SlotLaunch
from supervisord_llm.config.schema import PoolConfig
from supervisord_llm.core import admission, ledger
from supervisord_llm.core.admission import Limits, Waiting
from supervisord_llm.core.words import (
    WIRE_ID_MAX,
    CancelledBy,
    PoolName,
    RejectReason,
    RequestId,
    SlotState,
)
from supervisord_llm.errors import Refused
from supervisord_llm.runtime.ids import new_request_id
from supervisord_llm.runtime.life import Tools
from supervisord_llm.runtime.mailbox import Mailbox
from supervisord_llm.runtime.registry import Registry
from supervisord_llm.runtime.request import Request, RequestSpec, RequestStream
from supervisord_llm.runtime.slot import Hooks, Slot
from supervisord_llm.wire.messages import Generate, Model, Ready

SERVING = frozenset({SlotState.READY, SlotState.BUSY, SlotState.CANCELLING})
"""The states in which a slot counts as ready: a cancellation within its grace is normal service."""

_RETRY_AFTER_SECONDS = 1.0


class Pool:
    """A model, the slots that serve it, and the requests that wait for them."""

    def __init__(
        self,
        name: PoolName,
        config: PoolConfig,
        launches: Sequence[SlotLaunch],
        tools: Tools,
        registry: Registry,
    ) -> None:
        """Make the pool's slots; nothing runs yet."""
        self.name = name
        self.config = config
        self.model: Model | None = None
        self._tools = tools
        self._registry = registry
        self._limits = Limits(config.queue.max_queued, config.queue.queue_timeout)
        self._queue: dict[RequestId, Request] = {}
        self._stopping = False
        self._queue_changed = trio.Event()
        hooks = Hooks(on_offer=self._schedule, on_down=self._give_up, on_ready=self._learn)
        self.slots = tuple(Slot(launch, config, tools, hooks) for launch in launches)
        self._by_name = {slot.name: slot for slot in self.slots}

    # Facts --------------------------------------------------------------------

    @property
    def queued(self) -> int:
        """How many requests wait."""
        return len(self._queue)

    @property
    def in_flight(self) -> int:
        """How many requests are on workers."""
        return sum(len(slot.requests) for slot in self.slots)

    @property
    def serving(self) -> int:
        """How many slots are ready, busy or cancelling."""
        return sum(slot.state in SERVING for slot in self.slots)

    @property
    def ready(self) -> bool:
        """Whether enough slots serve."""
        return self.serving >= self.config.min_ready

    @property
    def has_verdict(self) -> bool:
        """Whether the pool is ready, or can no longer become so without an operator."""
        return self.ready or not self._can_ever_serve()

    @property
    def unavailable_because(self) -> str | None:
        """Why slots do not serve, in an operator's words; ``None`` if enough of them do."""
        if self.ready:
            return None
        return "; ".join(slot_in_words(slot) for slot in self.slots if slot.state not in SERVING)

    def _can_ever_serve(self) -> bool:
        return admission.can_ever_serve([slot.state for slot in self.slots])

    # The way in ---------------------------------------------------------------

    @asynccontextmanager
    async def request(self, spec: RequestSpec) -> AsyncIterator[RequestStream]:
        """Queue a request and hold it; leaving, by whatever exit, settles it or hands it over.

        Raises:
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
        states = [slot.state for slot in self.slots]
        reason = admission.refusal(len(self._queue), self._limits, states, stopping=self._stopping)
        if reason is not None:
            raise Refused(reason, self._refusal_in_words(reason), retry_after=_RETRY_AFTER_SECONDS)
        queue = self.config.queue
        request = Request(
            new_request_id(),
            self.name,
            spec,
            owner=self,
            mailbox=Mailbox(queue.mailbox_tokens, queue.mailbox_bytes),
            clock=self._tools.clock,
            publish=self._tools.publish,
            turn=self._tools.turn,
        )
        before = len(self._queue)
        self._queue[request.id] = request
        self._registry.add(request)
        self._tools.publish(
            events.RequestAccepted(pool=self.name, request=request.id, queued=before)
        )
        self._tools.turn(self._schedule)
        self._queue_changed.set()
        return RequestStream(request, before)

    def _refusal_in_words(self, reason: RejectReason) -> str:
        if reason is RejectReason.SHUTTING_DOWN:
            return "the daemon is shutting down; try again once it is back"
        if reason is RejectReason.QUEUE_FULL:
            return (
                f"the queue of pool {self.name!r} is full ({self._limits.max_queued} requests); "
                "try again later"
            )
        return (
            f"no slot of pool {self.name!r} can serve ({self.unavailable_because}); an operator "
            "has to see to it with `llmctl workers` and `llmctl resume`"
        )

    # The queue ----------------------------------------------------------------

    def withdraw(self, request: Request) -> None:
        """Take a request out of the queue; inside a turn."""
        del self._queue[request.id]

    def forget(self, request: Request) -> None:
        """A request is over: it is only remembered for a while."""
        self._registry.retire(request)

    def _waiting(self) -> list[Waiting]:
        return [Waiting(request.id, request.accepted_at) for request in self._queue.values()]

    def _schedule(self) -> None:
        """Give what waits to who is free; inside a turn."""
        if not self._queue:
            return
        loads = [slot.load() for slot in self.slots]
        for assignment in admission.assign(self._waiting(), loads):
            request = self._queue.pop(assignment.request)
            slot = self._by_name[assignment.slot]
            slot.assign(request, self._message(request.spec))
            if request.wire_id == WIRE_ID_MAX:
                slot.reload()  # ids never wrap; the next worker starts again at 1

    def _message(self, spec: RequestSpec) -> Generate:
        sampling = self.config.sampling
        return Generate(
            prompt=spec.prompt,
            max_new_tokens=(
                sampling.max_new_tokens if spec.max_new_tokens is None else spec.max_new_tokens
            ),
            temperature=sampling.temperature if spec.temperature is None else spec.temperature,
            top_p=spec.top_p,
            top_k=spec.top_k,
            seed=spec.seed,
            stop=spec.stop,
        )

    def _give_up(self) -> None:
        """Answer for what waits if no slot can take it any more; inside a turn."""
        if self._can_ever_serve():
            return
        detail = f"no slot of pool {self.name!r} can serve: {self.unavailable_because}"
        for request in list(self._queue.values()):
            request.post(ledger.PoolLost(self._tools.clock.now(), detail))

    def _learn(self, ready: Ready) -> None:
        if ready.model is not None:
            self.model = ready.model

    async def expire_queue(self) -> None:
        """Fail what has waited for too long; runs for as long as the pool does."""
        while True:
            self._queue_changed = trio.Event()
            at = admission.next_expiry(self._waiting(), self._limits)
            with trio.move_on_at(float("inf") if at is None else at):
                await self._queue_changed.wait()
            now = self._tools.clock.now()
            for request_id in admission.expired(self._waiting(), self._limits, now):
                expired = self._queue[request_id]
                self._tools.turn(partial(expired.post, ledger.QueueExpired(now)))

    # Stopping -----------------------------------------------------------------

    def begin_stop(self) -> None:
        """Take nothing new, answer for what waits, let the slots finish what they have."""
        self._stopping = True
        for request in list(self._queue.values()):
            request.cancel(CancelledBy.SHUTDOWN)
        for slot in self.slots:
            slot.stop_for_good("shutdown")

    def cancel_all(self, by: CancelledBy) -> None:
        """Cancel whatever is on workers."""
        for slot in self.slots:
            slot.cancel_all(by)

    async def wait_down(self) -> None:
        """Wait until no slot has a process and none is due."""
        for slot in self.slots:
            await slot.wait_down()


def slot_in_words(slot: Slot) -> str:
    """A slot's state for a message: ``smollm.0 parked (unexpected_exit, exit:1)``."""
    facts = [slot.reason] if slot.reason else []
    if slot.last_exit is not None and slot.state in (SlotState.PARKED, SlotState.BACKOFF):
        facts.append(slot.last_exit.exit)
    return f"{slot.name} {slot.state}" + (f" ({', '.join(facts)})" if facts else "")
