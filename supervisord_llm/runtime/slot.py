"""One slot, and what its pool and an operator want of it: start, reload, drain, quarantine, stop.

Each wish comes in through a plain method, is decided by the machine and done in one turn, as all
that befalls a slot (`slot_driver`); nobody who asks something of a slot waits for it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from supervisord_llm.config.launch import SlotLaunch
from supervisord_llm.config.schema import PoolConfig, RestartConfig
from supervisord_llm.core import slot as lifecycle
from supervisord_llm.core.words import (
    CancelledBy,
    PlannedReason,
    QuarantineReason,
    RejectReason,
    SlotState,
)
from supervisord_llm.errors import Refused
from supervisord_llm.runtime.slot_driver import SlotDriver, policy_of
from supervisord_llm.runtime.slot_facts import LastExit


class Slot(SlotDriver):
    """A stable place with a stable name, in which one worker after the other lives."""

    def start(self) -> None:
        """Bring a stopped slot up."""
        self.turn(lambda: self.step(lifecycle.StartAsked(self.now())))

    def park_as_before(self) -> None:
        """Begin where an earlier daemon left the slot, if that was parked."""
        record = self.tools.records.parked(self.name, self.launch.digest)
        if record is None:
            return
        reason = record.reason or "unknown"
        at = self.tools.clock.at(record.at)
        if record.exit is not None:
            self.last_exit = LastExit(record.exit, reason, at, 0, list(record.last_lines))
        self.turn(lambda: self.step(lifecycle.ParkedBefore(self.now(), reason, record.restarts)))
        self.tell.parked(0, reason, record.restarts, record.exit, record.last_lines)
        self.since = at

    def adopt(self, launch: SlotLaunch, config: PoolConfig, revision: int) -> None:
        """Start the next worker, and every later one, this way."""
        self.launch = launch
        self.config = config
        self.revision = revision

    def restart_by(self, config: RestartConfig) -> None:
        """From the next failure on, judge by this."""
        self._state = msgspec.structs.replace(self._state, policy=policy_of(config))

    def reload(self) -> None:
        """Finish what is there, then start a fresh worker; at once if there is none.

        Raises:
            Refused: if the daemon is shutting down.
        """
        self._refuse_when_stopping("reload")
        self._let_go(partial(self.replace, PlannedReason.RELOAD))

    def resume(self) -> None:
        """Bring the slot back: from parked, stopped or backoff at once, from draining if it can.

        Nothing happens to a slot that is in service or being torn down to start again.

        Raises:
            Refused: if the daemon is shutting down.
        """
        self._refuse_when_stopping("resume")
        self._let_go(self.start)

    def _let_go(self, begin: Callable[[], None]) -> None:
        """Begin, or be ready for it while the pool is unloaded: its device may be another's."""
        self.held = False
        if self.wanted:
            begin()
        elif self.state is SlotState.PARKED:
            self.tools.records.unpark(self.name)
            self.stop(PlannedReason.IDLE)
        self.turn(self._hooks.on_move)

    def drain(self) -> None:
        """Finish what is there, then stay down until an operator resumes the slot.

        Raises:
            Refused: if the daemon is shutting down.
        """
        self._refuse_when_stopping("drain")
        self.held = True
        self.stop(PlannedReason.DRAIN)

    def quarantine(self) -> None:
        """Tear the worker down now, on an operator's word; its requests are cancelled.

        Raises:
            Refused: if the daemon is shutting down, or the slot has no worker.
        """
        self._refuse_when_stopping("quarantine")
        if self.life is None:
            raise Refused(
                RejectReason.POOL_UNAVAILABLE,
                f"cannot quarantine {self.name}: it is {self.state} and has no worker; "
                "`llmctl resume` starts one",
            )
        self.cancel_all(CancelledBy.OPERATOR)
        detail = "an operator asked for it"
        self.turn(partial(self.condemn, QuarantineReason.OPERATOR, detail))

    def _refuse_when_stopping(self, verb: str) -> None:
        if self._stopping:
            raise Refused(
                RejectReason.SHUTTING_DOWN, f"cannot {verb} {self.name}: the daemon shuts down"
            )

    def stop_for_good(self) -> None:
        """Finish what is there, then stay down; no later wish brings the slot back."""
        self._stopping = True
        self.stop(PlannedReason.SHUTDOWN)

    def stop(self, reason: PlannedReason) -> None:
        """Finish what is there, then stay down."""
        self._drain(lifecycle.Next.STOP, reason)

    def replace(self, reason: PlannedReason) -> None:
        """Finish what is there, then start anew."""
        self._drain(lifecycle.Next.START, reason)

    def _drain(self, then: lifecycle.Next, reason: PlannedReason) -> None:
        def drain() -> None:
            self.step(lifecycle.DrainAsked(self.now(), then, reason))
            if self.detached:
                # It was spared to keep a loaded model, which goes now.
                detail = "works on a cancelled request that nobody waits for, and is to go"
                self.condemn(QuarantineReason.UNCANCELLABLE, detail)

        self.turn(drain)

    def cancel_all(self, by: CancelledBy) -> None:
        """Cancel whatever the worker holds."""
        if self.life is not None:
            self.life.workload.cancel_all(by)
