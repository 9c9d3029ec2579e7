"""The self-test of a new worker: one request that is cancelled at once and must end in time.

A worker that says it can be cancelled is believed only after it has shown it, where the pool asks
for that; otherwise the first client who leaves finds out. The request and its cancel frame are
written together, and the frame is repeated like any other, so that the worker may take it in
prefill or in decode.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from supervisord_llm.core.words import WireId
from supervisord_llm.runtime.channel import FrameFate
from supervisord_llm.runtime.timers import Timers
from supervisord_llm.runtime.turn import Turn
from supervisord_llm.runtime.worker import Worker
from supervisord_llm.wire.messages import Done, Failed, Generate

_RESEND_SECONDS = 0.2
_ASKED = Generate(
    prompt="Count from one to a hundred in words.", max_new_tokens=256, temperature=0.0
)


class Canary:
    """One self-test; methods are to be called inside a turn."""

    def __init__(
        self,
        worker: Worker,
        grace: float,
        *,
        wire_id: WireId,
        timers: Timers,
        turn: Turn,
        on_passed: Callable[[], None],
        on_failed: Callable[[str], None],
    ) -> None:
        """Test a ``worker`` that is loaded and idle, within ``grace`` seconds."""
        self._worker = worker
        self._grace = grace
        self._wire_id = wire_id
        self._timers = timers
        self._turn = turn
        self._on_passed = on_passed
        self._on_failed = on_failed
        self._over = False

    def begin(self) -> None:
        """Ask for a generation and cancel it."""
        self._worker.became_busy()
        self._worker.channel.generate(_ASKED, self._wire_id)
        self._arm("grace", trio.current_time() + self._grace, self._too_late)
        self._cancel()

    def ended(self, message: Done | Failed) -> None:
        """The worker's terminal; one that had completed before it heard has passed as well."""
        if self._over:
            return
        self.abandon()
        if isinstance(message, Failed):
            self._on_failed(f"refused the request of its self-test: {message.error}")
            return
        self._worker.became_idle()
        self._on_passed()

    def abandon(self) -> None:
        """Nobody waits for the result any more."""
        self._over = True
        for timer in ("grace", "resend"):
            self._timers.disarm((self, timer))

    def _cancel(self) -> None:
        if self._worker.channel.cancel(self._wire_id) is FrameFate.BROKEN:
            self.abandon()
            self._on_failed("its control pipe broke in its self-test")
            return
        self._arm("resend", trio.current_time() + _RESEND_SECONDS, self._cancel)

    def _too_late(self) -> None:
        self.abandon()
        self._on_failed(
            f"did not end the cancelled request of its self-test within {self._grace:g} s"
        )

    def _arm(self, timer: str, at: float, act: Callable[[], None]) -> None:
        def fire(_now: float) -> None:
            if timer == "grace":
                # If the worker's terminal is pending in the same moment, its word counts.
                self._worker.channel.read_now()
            self._turn(lambda: None if self._over else act())

        self._timers.arm((self, timer), at, fire)
