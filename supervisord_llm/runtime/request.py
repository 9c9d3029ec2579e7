"""One request: drives its ledger cell, fills its mailbox, tells its story.

The object outlives the HTTP handler that brought it. The handler holds a `RequestStream`; leaving
it, by whatever exit, is a cancellation by the client, which the ledger ignores once the request is
over.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import msgspec
import trio

from supervisord_llm import events
from supervisord_llm.core import ledger, ledger_events
from supervisord_llm.core.record import Record
from supervisord_llm.core.words import (
    CancelledBy,
    FailureReason,
    Generation,
    PoolName,
    RequestId,
    RequestState,
    Resolution,
    SlotName,
    WireId,
)
from supervisord_llm.errors import InternalError
from supervisord_llm.events import GAP_BUCKETS
from supervisord_llm.runtime.clock import Clock
from supervisord_llm.runtime.mailbox import Batch, Mailbox, Started
from supervisord_llm.runtime.turn import Turn
from supervisord_llm.wire.messages import Model, Prompt

Publish = Callable[[events.Event], object]

Render = Callable[[Model], Awaitable[str]]
"""Makes the prompt for a model; raises ``InvalidRequest`` if there is none to be made, ``Refused``
if there is none now."""


class RequestSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What to generate; ``None`` takes the pool's default, then the worker's."""

    prompt: Prompt
    render: Render | None = None
    """Makes the prompt once the model is known; until then ``prompt`` is empty, and it waits."""
    session_id: str | None = None
    """The named session whose context it goes on with."""
    client: str = "unknown"
    """Whose it is; the queue takes turns between these."""
    priority: int = 0
    """Higher is sooner, -10 to 10."""
    queue_timeout: float | None = None
    """Seconds that it may wait for a worker."""
    deadline: float | None = None
    """Seconds after which it is cancelled, on a worker as in the queue."""
    max_new_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()


class Holder(Protocol):
    """The slot that has a request."""

    def ask_to_stop(self, request: Request) -> None:
        """Begin the cancellation of the request on the worker."""

    def blame(self, at: float) -> None:
        """The end of the worker, at that time, was not the request's fault after all."""


class Owner(Protocol):
    """The pool that accepted a request."""

    def withdraw(self, request: Request) -> None:
        """Take the request out of the queue."""

    def take_back(self, request: Request) -> None:
        """The request has lost its worker and waits for another."""

    def forget(self, request: Request) -> None:
        """The request is over."""

    def may_charge(self, request: Request) -> bool:
        """Whether the end of its worker may be held against the request."""

    def produced(self) -> None:
        """A worker showed that it can produce output."""


class Request:
    """An accepted request, from the queue to its end."""

    def __init__(
        self,
        request_id: RequestId,
        pool: PoolName,
        spec: RequestSpec,
        *,
        owner: Owner,
        mailbox: Mailbox,
        max_attempts: int,
        clock: Clock,
        publish: Publish,
        turn: Turn,
    ) -> None:
        """Accept the request now."""
        self.id = request_id
        self.pool = pool
        self.spec = spec
        self.mailbox = mailbox
        self.tokens = 0
        self.settled_ms: float | None = None
        self.wire_id: WireId = 0
        self.token_limit: int | None = None
        """The most tokens that its worker was asked for."""
        self._owner = owner
        self._clock = clock
        self._publish = publish
        self._turn = turn
        self._holder: Holder | None = None
        self._accuser: Holder | None = None
        self.session_refused = False
        """Whether its worker would not have its session, for want of room or at all."""
        self.charged = False
        """Whether the end of the worker that it just lost counts against it, not the slot."""
        self._generation: Generation | None = None
        self._state = ledger.State(accepted_at=clock.now(), attempts_left=max_attempts - 1)
        self._last_output_at = 0.0
        self._gaps = [0] * (len(GAP_BUCKETS) + 1)
        self._finished = trio.Event()
        self._settled = trio.Event()

    # Facts --------------------------------------------------------------------

    @property
    def state(self) -> RequestState:
        """Where the request stands."""
        return self._state.kind

    @property
    def priority(self) -> int:
        """Higher is sooner."""
        return self.spec.priority

    @property
    def session_id(self) -> str | None:
        """The named session whose context it goes on with."""
        return self.spec.session_id

    @property
    def client(self) -> str:
        """Whose it is."""
        return self.spec.client

    @property
    def attempt(self) -> int:
        """How many workers it has had, the present one included."""
        return self._state.attempt

    @property
    def chargeable(self) -> bool:
        """Whether the end of its worker may be held against it."""
        return self._owner.may_charge(self)

    @property
    def record(self) -> Record | None:
        """The terminal record, once it is sealed."""
        return self._state.record

    @property
    def resolution(self) -> Resolution | None:
        """What became of the worker; ``None`` until known, and for requests never cancelled."""
        return self._state.resolution

    @property
    def accepted_at(self) -> float:
        """When the queue took the request."""
        return self._state.accepted_at

    @property
    def assigned_at(self) -> float | None:
        """When a slot took the request."""
        return self._state.assigned_at

    @property
    def first_at(self) -> float | None:
        """When the first output came."""
        return self._state.first_at

    @property
    def cancel_asked_at(self) -> float | None:
        """When the cancellation was first asked for."""
        return self._state.cancel_at

    @property
    def worker(self) -> SlotName | None:
        """The slot that has, or had, the request."""
        return None if self._generation is None else self._generation.slot

    @property
    def generation(self) -> int | None:
        """The generation of the worker that has, or had, the request."""
        return None if self._generation is None else self._generation.number

    async def wait_finished(self) -> Record:
        """Wait for the terminal record."""
        await self._finished.wait()
        if self._state.record is None:
            raise InternalError(f"{self.id} is finished without a record")
        return self._state.record

    async def wait_settled(self) -> None:
        """Wait until the request is answered and no worker holds it."""
        await self._settled.wait()

    # Events -------------------------------------------------------------------

    def cancel(self, by: CancelledBy) -> None:
        """Ask for the request's end; asking twice is the same as asking once."""
        self._turn(lambda: self.post(ledger.CancelAsked(self._clock.now(), by)))

    def stop_found(self) -> None:
        """End the output where it is: a stop string was found in it, so nothing more is wanted.

        The record says ``completed`` with ``stop``, once the worker has said what it used or has
        not reacted within its grace. Where the request is sealed or being cancelled already, this
        changes nothing about its record. Either way no more text comes, and what waits is dropped.

        Raises:
            InternalError: if there has been no output.
        """
        self.mailbox.close()
        self._turn(lambda: self.post(ledger.StopFound(self._clock.now())))

    def assign(self, holder: Holder, generation: Generation, wire_id: WireId) -> None:
        """A slot takes the request."""
        now = self._clock.now()
        self._holder = holder
        self._generation = generation
        self.wire_id = wire_id
        since = self._state.requeued_at
        waited = now - (self.accepted_at if since is None else since)
        self.post(ledger.Assigned(now))
        self.mailbox.put_started(Started(generation.slot, self.attempt))
        self._publish(
            events.RequestStarted(
                pool=self.pool,
                worker=generation.slot,
                generation=generation.number,
                request=self.id,
                attempt=self.attempt,
                queued_ms=round(waited * 1000, 3),
            )
        )

    def output(self, texts: Sequence[str], now: float) -> None:
        """The worker produced tokens; the hot path, once per read."""
        state = self._state
        if state.record is not None or state.kind is RequestState.STOPPING:
            return
        if state.first_at is None:
            self.post(ledger.FirstOutput(now))
        else:
            self._gaps[bisect_left(GAP_BUCKETS, now - self._last_output_at)] += 1
        self._gaps[0] += len(texts) - 1
        self._last_output_at = now
        self.tokens += len(texts)
        self.mailbox.put_tokens(texts)

    def overflow(self, now: float) -> None:
        """The client has left too much lying."""
        self.post(ledger.Overflowed(now))

    def late(self, kind: str) -> None:
        """An unfit worker proposed an ending; tell it and do nothing."""
        self._publish(events.RequestLateTerminal(pool=self.pool, request=self.id, kind=kind))

    def prepare(self, prompt: str) -> None:
        """Take the prompt, which had to wait until the model was known."""
        self.spec = msgspec.structs.replace(self.spec, prompt=prompt, render=None)

    def release_text(self) -> None:
        """Forget the prompt: the request is over and only its story is still asked for."""
        self.spec = msgspec.structs.replace(self.spec, prompt="", render=None, stop=())

    def post(self, event: object) -> None:
        """Give an event to the ledger and perform what it decides; inside a turn only."""
        self._state, effects = ledger.step(self._state, event)
        for effect in effects:
            self._perform(effect)

    # Effects ------------------------------------------------------------------

    def _perform(self, effect: ledger.Effect) -> None:
        match effect:
            case ledger.Seal(record):
                self._seal(record)
            case ledger.Withdraw():
                self._owner.withdraw(self)
            case ledger.Requeue():
                self._holder = None
                self._owner.take_back(self)
            case ledger.Charge():
                self.charged, self._accuser = True, self._holder
            case ledger.Acquit(at):
                if self._accuser is not None:
                    self._accuser.blame(at)
            case ledger.AskWorker():
                if self._holder is None:
                    raise InternalError(f"{self.id} is on no worker")
                self._holder.ask_to_stop(self)
            case ledger.Over():
                self._holder = None
                self._settled.set()
                self._owner.forget(self)
            case _:
                self._tell(effect)

    def _tell(self, effect: ledger_events.Tell) -> None:
        match effect:
            case ledger.TellFirstOutput(ttft_ms):
                self._tell_first_output(ttft_ms)
                self._owner.produced()
            case ledger.TellRetried(error):
                self._tell_retried(error)
            case ledger.TellCancel(by):
                self._publish(
                    events.CancelRequested(
                        pool=self.pool,
                        request=self.id,
                        by=by,
                        worker=self.worker,
                        generation=self.generation,
                    )
                )
            case ledger.TellSettled(resolution, elapsed_ms):
                self.settled_ms = elapsed_ms
                self._publish(
                    events.CancelSettled(
                        pool=self.pool,
                        request=self.id,
                        resolution=resolution,
                        elapsed_ms=elapsed_ms,
                        worker=self.worker,
                        generation=self.generation,
                    )
                )
            case ledger.TellLate(kind):
                self.late(kind)

    def _tell_retried(self, error: FailureReason) -> None:
        if self._generation is None:
            raise InternalError(f"{self.id} is tried again without having been tried")
        self._publish(
            events.RequestRetried(
                pool=self.pool,
                worker=self._generation.slot,
                generation=self._generation.number,
                request=self.id,
                attempt=self.attempt,
                reason=error,
            )
        )

    def _tell_first_output(self, ttft_ms: float) -> None:
        if self._generation is None:
            raise InternalError(f"{self.id} has output without a worker")
        self._publish(
            events.RequestFirstToken(
                pool=self.pool,
                worker=self._generation.slot,
                generation=self._generation.number,
                request=self.id,
                ttft_ms=ttft_ms,
            )
        )

    def _seal(self, record: Record) -> None:
        self.mailbox.put_record(record)
        self._finished.set()
        usage = record.usage
        self._publish(
            events.RequestFinished(
                pool=self.pool,
                request=self.id,
                outcome=record.outcome,
                worker=self.worker,
                generation=self.generation,
                finish_reason=record.finish_reason,
                cancelled_by=record.cancelled_by,
                error=record.error,
                suspect=record.suspect,
                detail=record.detail,
                tokens=self.tokens,
                prompt_tokens=None if usage is None else usage.prompt_tokens,
                reused_tokens=None if usage is None else usage.reused_tokens,
                generated_tokens=None if usage is None else usage.generated_tokens,
                queued_ms=record.queued_ms,
                ttft_ms=record.ttft_ms,
                total_ms=record.total_ms,
                gaps=self._gaps if self.tokens else [],
                gaps_ms=self._gaps_ms(),
            )
        )

    def _gaps_ms(self) -> float:
        first_at = self._state.first_at
        return 0.0 if first_at is None else round((self._last_output_at - first_at) * 1000, 3)


class RequestStream:
    """A client's hold on its request: what comes, in batches, until the record."""

    def __init__(self, request: Request, queued: int) -> None:
        """``queued`` is how many requests were before it when it was accepted."""
        self.request = request
        self.queued = queued
        self._ended = False

    def pass_directly(self, take: Callable[[Sequence[str]], bool]) -> None:
        """Let ``take`` have the tokens that come while `next_batch` waits; see `Mailbox.direct`."""
        self.request.mailbox.direct = take

    def stop_found(self) -> None:
        """Take nothing but the record from here on; see `Request.stop_found`."""
        self.request.stop_found()

    async def next_batch(self) -> Batch | None:
        """Wait for what comes next; ``None`` after the batch that carried the record.

        Giving up the wait loses nothing: what comes then is in the next batch.
        """
        if self._ended:
            return None
        batch = await self.request.mailbox.next_batch()
        self._ended = batch.record is not None
        return batch
