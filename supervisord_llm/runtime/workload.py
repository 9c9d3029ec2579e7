"""The requests that one worker holds: wire ids, output, endings and cancellations."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from functools import partial
from typing import Protocol

import trio

from supervisord_llm.config.schema import CancelConfig
from supervisord_llm.core import cancellation, ledger
from supervisord_llm.core.words import (
    CancelledBy,
    Dialect,
    Extension,
    FailureReason,
    Generation,
    PoolName,
    QuarantineReason,
    RequestId,
    RequestState,
    Resolution,
    Usage,
    WireId,
)
from supervisord_llm.errors import InternalError
from supervisord_llm.runtime.cancellations import Cancellations
from supervisord_llm.runtime.clock import Clock
from supervisord_llm.runtime.request import Publish, Request
from supervisord_llm.runtime.timers import Timers
from supervisord_llm.runtime.turn import Turn
from supervisord_llm.runtime.worker import Worker
from supervisord_llm.wire.messages import Done, Failed, Generate, Tokens

_CONSUMER_CHANCE_SECONDS = 0.25
"""How long one read waits for a client that has left too much lying, before its request fails.

Without it a client that reads as fast as it can would lose to a worker that writes faster.
"""

_SESSION_REFUSED = frozenset({"capacity_exhausted", "unsupported_session"})
"""The codes of a worker that did not take the session of a request."""


_REASONS = {"context_length_exceeded": FailureReason.CONTEXT_LENGTH_EXCEEDED}
"""The codes of a worker that say why the request fails."""


class Keeper(Protocol):
    """The slot: hears what the work on its worker amounts to; inside a turn."""

    @property
    def leaving_worker(self) -> bool:
        """Whether its worker is on its way out, so that nothing is won by keeping it."""

    def took(self) -> None:
        """A request was assigned."""

    def cancelling(self) -> None:
        """A request began to be cancelled."""

    def ended(self, *, was_cancelling: bool) -> None:
        """The worker ended a request."""

    def condemn(self, reason: QuarantineReason, detail: str, request: Request | None) -> None:
        """The worker is unfit."""

    def blame(self, generation: Generation, at: float) -> None:
        """The end of that worker, at that time, counts against the slot after all."""

    def reload_seconds(self) -> float | None:
        """How long it would take to have another worker in this one's place, if that is known."""


class Workload:
    """What one worker works on, from its spawn to its reaping."""

    def __init__(
        self,
        pool: PoolName,
        worker: Worker,
        cancel: CancelConfig,
        keeper: Keeper,
        *,
        clock: Clock,
        timers: Timers,
        turn: Turn,
        publish: Publish,
    ) -> None:
        """Nothing yet."""
        self._worker = worker
        self._cancel = cancel
        self._keeper = keeper
        self._clock = clock
        self._turn = turn
        self._requests: dict[WireId, Request] = {}
        self._requeued: dict[WireId, Request] = {}
        self._next_wire_id: WireId = 1
        self._cancellations = Cancellations(
            pool, worker, keeper, timers=timers, turn=turn, publish=publish
        )

    def __len__(self) -> int:
        """How many requests the worker holds."""
        return len(self._requests)

    @property
    def requests(self) -> Sequence[RequestId]:
        """The requests that the worker holds."""
        return [request.id for request in self._requests.values()]

    @property
    def for_nobody(self) -> bool:
        """Whether the worker works, and only on what nobody waits for any more."""
        return bool(self._requests) and all(map(self._cancellations.is_detached, self._requests))

    def assign(self, request: Request, message: Generate) -> None:
        """Give a request to the worker; inside a turn."""
        wire_id = self.take_wire_id()
        if not self._requests:
            self._worker.became_busy()
        self._requests[wire_id] = request
        request.token_limit = message.max_new_tokens
        self._keeper.took()
        request.assign(self, self._worker.generation, wire_id)
        self._worker.channel.generate(message, wire_id)

    def take_wire_id(self) -> WireId:
        """An id that this worker has not heard yet."""
        wire_id = self._next_wire_id
        self._next_wire_id += 1
        return wire_id

    def output(self, tokens: Tokens) -> None:
        """Hand output on; inside a turn."""
        self._worker.tokens += len(tokens.texts)
        self._requests[tokens.wire_id].output(tokens.texts, self._clock.now())

    def try_output(self, tokens: Tokens) -> bool:
        """Hand output on unless it changes a state, as a request's first does; whether it did.

        This needs no turn.
        """
        request = self._requests[tokens.wire_id]
        if request.first_at is None:
            return False
        self._worker.tokens += len(tokens.texts)
        request.output(tokens.texts, self._clock.now())
        return True

    def end(self, message: Done | Failed) -> None:
        """The worker's terminal for one request; inside a turn."""
        request = self._requests.pop(message.wire_id)
        was_cancelling = self._cancellations.end(message.wire_id)
        self._worker.served += 1
        if not self._requests:
            self._worker.became_idle()
        request.post(self._ending(request, message))
        self._keeper.ended(was_cancelling=was_cancelling)

    def _ending(self, request: Request, message: Done | Failed) -> ledger.Done | ledger.EngineError:
        now = self._clock.now()
        if isinstance(message, Failed):
            request.session_refused = message.code in _SESSION_REFUSED
            if (reason := _REASONS.get(message.code or "")) is not None:
                return ledger.EngineError(now, message.error, reason)
            code = "" if message.code is None else f"{message.code}: "
            return ledger.EngineError(now, f"{code}{message.error}")
        return ledger.Done(
            now=now,
            cancelled=message.cancelled,
            finish_reason=message.finish_reason,
            usage=Usage(
                prompt_tokens=message.prompt_tokens,
                reused_tokens=message.reused_prompt_tokens,
                generated_tokens=message.completion_tokens,
            ),
            prefill_ms=message.prefill_ms,
            decode_ms=message.decode_ms,
        )

    def end_too_late(self, message: Done | Failed) -> None:
        """An unfit worker's terminal: told, and nothing else."""
        wire_id = message.wire_id
        if (request := self._requests.get(wire_id) or self._requeued.get(wire_id)) is not None:
            request.late("done" if isinstance(message, Done) else "error")

    def clients_chance(self) -> Awaitable[None] | None:
        """The short moment for clients that have left too much lying; ``None`` if none has."""
        for request in self._requests.values():
            if request.mailbox.overfull:
                return self._give_clients_a_chance()
        return None

    async def _give_clients_a_chance(self) -> None:
        """Let clients that have left too much lying read, for a short moment; then fail them."""
        for request in list(self._requests.values()):
            if request.record is not None or not request.mailbox.overfull:
                continue
            with trio.move_on_after(_CONSUMER_CHANCE_SECONDS):
                await request.mailbox.wait_taken()
            if request.mailbox.overfull:
                self._turn(partial(request.overflow, self._clock.now()))

    def ask_to_stop(self, request: Request) -> None:
        """Begin the cancellation of a request that the worker holds; inside a turn.

        Raises:
            InternalError: if the worker does not hold it.
        """
        if request.wire_id not in self._requests:
            raise InternalError(f"{request.id} is not on {self._worker.generation}")
        cancel = self._cancel
        terms = cancellation.Terms(
            cooperative_grace=cancel.cooperative_grace,
            prefill_grace=cancel.prefill_grace,
            cancellable=self._worker.dialect is Dialect.SERIAL_CANCEL,
            interruptible_prefill=Extension.CANCEL_PREFILL in self._worker.extensions,
            on_uncancellable="terminate"
            if self._keeper.leaving_worker
            else cancellation.choose(
                cancel.on_uncancellable,
                reload_seconds=self._keeper.reload_seconds(),
                remaining_seconds=self._remaining(request),
            ),
            detach_timeout=cancel.detach_timeout,
        )
        self._keeper.cancelling()
        self._cancellations.begin(request, terms)

    def _remaining(self, request: Request) -> float | None:
        """How many seconds the request's generation would still take, as far as can be told."""
        limit = request.token_limit
        if limit is None or request.first_at is None or request.tokens < 2:
            return None
        pace = (self._clock.now() - request.first_at) / (request.tokens - 1)
        return cancellation.remaining(limit - request.tokens, pace)

    def decoding(self) -> None:
        """The worker has left its prefill; inside a turn."""
        self._cancellations.decoding()

    def cancel_all(self, by: CancelledBy) -> None:
        """Cancel whatever the worker holds."""
        for request in list(self._requests.values()):
            request.cancel(by)

    def lose(self, error: FailureReason, detail: str, *, exited: bool) -> bool:
        """The worker is lost: answer for every request; inside a turn.

        Args:
            error: why, for those that fail of it.
            detail: the same in words.
            exited: whether its process ended by itself.

        Returns:
            Whether its end is charged to the one request that it had, rather than to the slot.
        """
        self._cancellations.worker_gone()
        alone = exited and [each.chargeable for each in self._requests.values()] == [True]
        charged = False
        for wire_id, request in list(self._requests.items()):
            request.charged = False
            request.post(ledger.WorkerLost(self._clock.now(), error, detail, alone))
            charged = charged or request.charged
            if request.state is RequestState.QUEUED:
                # It is somebody else's from here on; this worker's last words for it are late.
                self._requeued[wire_id] = self._requests.pop(wire_id)
        return charged

    def blame(self, at: float) -> None:
        """The end of this worker counts against its slot after all; inside a turn."""
        self._keeper.blame(self._worker.generation, at)

    def release(self, resolution: Resolution) -> None:
        """The worker holds nothing any more; inside a turn."""
        requests, self._requests = self._requests, {}
        for request in requests.values():
            request.post(ledger.Released(self._clock.now(), resolution))
