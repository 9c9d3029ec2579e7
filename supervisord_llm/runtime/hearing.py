"""What a slot hears of its worker: messages, lines, signs of trouble, the exit.

Each is told to the slot's machine in one turn. The slot decides; this only knows what a message
means for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from supervisord_llm.core import slot as lifecycle
from supervisord_llm.core.words import (
    Dialect,
    ExitCause,
    Extension,
    QuarantineReason,
    SlotState,
)
from supervisord_llm.host import usage as host_usage
from supervisord_llm.runtime.canary import Canary
from supervisord_llm.runtime.life import Life
from supervisord_llm.wire.messages import (
    Done,
    Failed,
    Malformed,
    Message,
    ProbeAck,
    Ready,
    SessionDone,
    SessionRefused,
    Tokens,
)

if TYPE_CHECKING:
    from supervisord_llm.runtime.slot_driver import SlotDriver


class Hearing:
    """The ears of one slot, for one worker after the other."""

    def __init__(self, slot: SlotDriver) -> None:
        """Hear for ``slot``."""
        self._slot = slot
        self._canary: Canary | None = None

    @property
    def _life(self) -> Life:
        return self._slot.live()

    def on_messages(self, messages: Sequence[Message]) -> None:
        """Take what one read brought, in one turn.

        So a terminal that is followed by garbage does not bring the worker another request first.
        Output that changes no state, which is nearly all of it, needs no turn.
        """
        first = messages[0]
        if len(messages) == 1 and isinstance(first, Tokens) and self._canary is None:
            fit = self._slot.state is not SlotState.QUARANTINED
            if fit and self._life.workload.try_output(first):
                return
        self._slot.turn(partial(self._hear_all, messages))

    def _hear_all(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self._hear(message)

    def _hear(self, message: Message) -> None:
        slot = self._slot
        match message:
            case Tokens():
                if slot.state is not SlotState.QUARANTINED and self._canary is None:
                    self._life.workload.output(message)
            case ProbeAck():
                slot.offer()
            case SessionDone() | SessionRefused():
                slot.operated()
            case Ready():
                if slot.state is SlotState.STARTING:
                    self._ready(message)
            case Done() | Failed():
                # An unfit worker is never trusted again; the teardown answers for its requests.
                if slot.state is SlotState.QUARANTINED:
                    self._life.workload.end_too_late(message)
                elif self._canary is not None:
                    self._canary.ended(message)
                else:
                    self._life.workload.end(message)
            case Malformed(detail=detail):
                slot.condemn(QuarantineReason.PROTOCOL_ERROR, detail)
            case _:
                pass  # a sign of life, which the worker object has taken

    def _ready(self, ready: Ready) -> None:
        worker, cancel = self._life.worker, self._slot.config.cancel
        if worker.dialect is not Dialect.SERIAL_CANCEL:
            worker.channel.close_control()
            if cancel.cancellation == "required":
                self._slot.condemn(
                    QuarantineReason.UNCANCELLABLE,
                    'cannot be cancelled, but cancel.cancellation is "required"; use a worker '
                    'that supports it, or set "auto"',
                )
                return
        self._canary = None
        worker.became_idle()
        worker.note_usage()
        if not cancel.self_test or worker.dialect is not Dialect.SERIAL_CANCEL:
            self._serve(ready)
            return
        prefill = Extension.CANCEL_PREFILL in worker.extensions
        self._canary = Canary(
            worker,
            cancel.cooperative_grace if prefill else cancel.prefill_grace,
            wire_id=self._life.workload.take_wire_id(),
            timers=self._slot.timers,
            turn=self._slot.turn,
            on_passed=partial(self._passed, ready),
            on_failed=partial(self._slot.condemn, QuarantineReason.SELF_TEST_FAILED),
        )
        self._canary.begin()

    def _passed(self, ready: Ready) -> None:
        self._canary = None
        if self._slot.state is SlotState.STARTING:
            self._serve(ready)

    def _serve(self, ready: Ready) -> None:
        self._slot.serve(ready)

    def worker_gone(self) -> None:
        """The worker was condemned or is gone: its self-test is over, too."""
        if self._canary is not None:
            # It stays: what the worker still says is about the request of its test, and no other.
            self._canary.abandon()

    def after_read(self) -> Awaitable[None] | None:
        """Between two reads of the worker's output: what to wait for, if anything."""
        life = self._slot.life
        return None if life is None else life.workload.clients_chance()

    def on_decoding(self) -> None:
        """The worker has left its prefill."""
        self._slot.turn(self._life.workload.decoding)

    def on_log(self, lines: Sequence[str]) -> None:
        """The worker wrote to stderr."""
        self._slot.tell.log(self._slot.generation, lines, self._slot.now())

    def on_usage(self, used: host_usage.Usage) -> None:
        """The worker was looked at."""
        self._slot.tell.usage(self._slot.generation, used)

    def on_held(self, held: int) -> bool:
        """So many bytes would come back if the worker and its descendants ended."""
        return self._slot.weigh(held)

    def on_descendants(self) -> None:
        """The worker has other descendants than before."""
        self._slot.tools.records.remember(self._life.worker.process)

    def on_unfit(self, reason: QuarantineReason, detail: str) -> None:
        """There is evidence against the worker."""
        self._slot.turn(partial(self._slot.condemn, reason, detail))

    def on_exit(self, cause: ExitCause, *, cut_off: bool) -> None:
        """The worker's process has ended."""
        slot = self._slot
        worker = self._life.worker
        slot.exiting(cause, " in the middle of a line" if cut_off else "")
        slot.turn(lambda: slot.step(lifecycle.ExitSeen(slot.now())))
        slot.note_exit(cause, worker)
