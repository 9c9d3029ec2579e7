"""The event log: the one place where an event gets its number and reaches everybody concerned.

Publishing is synchronous and never waits, so that it can be called in the middle of a decision. The
alternative, a task that drains a queue of events, was not taken: what happened would be told after
what happened next, and the queue would need a bound.
"""

from __future__ import annotations

import secrets
import time
import traceback
from collections.abc import Callable, Iterable
from typing import Protocol

from supervisord_llm.events import DaemonError, DaemonWarning, Event
from supervisord_llm.telemetry.record import Record, make_record
from supervisord_llm.telemetry.ring import Ring

Consumer = Callable[[int, Event], None]
"""Called with each event and its sequence number, in order; must not wait and should not raise."""

_LOSS_NOTICE_SECONDS = 5.0
"""Loss is told at most this often: with a reader that is always too slow, it would never end."""


class Output(Protocol):
    """What writes records somewhere, or drops and counts them; it never raises."""

    target: str
    """Where to, as the object of a sentence."""
    remedy: str
    """What helps when it does not take them."""

    def __call__(self, record: Record) -> None:
        """Write a record that is grave enough, or drop it."""

    @property
    def recovered(self) -> bool:
        """Whether records were dropped since `take_lost`, but the last one was taken."""

    def take_lost(self) -> int:
        """The number of records that were dropped, which is forgotten by this."""

    def close(self) -> None:
        """Finish what was begun, within a bound."""


class EventLog:
    """Numbers events and hands them to the ring, the renderer and the consumers."""

    def __init__(
        self,
        *,
        boot: str,
        ring: Ring,
        renderer: Output | None = None,
        consumers: Iterable[Consumer] = (),
        wall_clock: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make a log that publishes into ``ring``.

        Args:
            boot: the id of this run of the daemon, in which the numbers begin at 1.
            ring: keeps the encoded events; nobody else may append to it.
            renderer: writes lines; without one nothing is written.
            consumers: are called for each event, the filtered ones included.
            wall_clock: seconds since the Unix epoch, for ``ts``.
            clock: seconds on a clock that is never set back.
        """
        self.boot = boot
        self.ring = ring
        self._renderer = renderer
        self._consumers = tuple(consumers)
        self._said: set[int] = set()
        self._wall_clock = wall_clock
        self._clock = clock
        self._next_loss_notice = clock()

    def publish(self, event: Event) -> int:
        """Record an event and give its sequence number; call it from trio's thread only.

        A consumer that raises is told of once, as ``daemon.error``, and neither stops the others
        nor reaches the publisher.
        """
        record = make_record(self.ring.last_seq + 1, self._wall_clock(), event)
        self.ring.append(record.encoded)
        if self._renderer is not None:
            self._renderer(record)
        failures: list[tuple[int, Exception]] = []
        for index, consumer in enumerate(self._consumers):
            try:
                consumer(record.seq, event)
            except Exception as error:  # noqa: BLE001 - whatever it is, the publisher is not to blame
                failures.append((index, error))
        # Told only now, since these publish in their turn and everybody sees events in order.
        for index, failure in failures:
            self._tell_failure(index, failure)
        self._tell_loss()
        return record.seq

    def close(self) -> None:
        """Finish the last line, within a bound."""
        if self._renderer is not None:
            self._renderer.close()

    def _tell_loss(self) -> None:
        if self._renderer is None or not self._renderer.recovered:
            return
        if self._clock() < self._next_loss_notice:
            return
        self._next_loss_notice = self._clock() + _LOSS_NOTICE_SECONDS
        count = self._renderer.take_lost()
        self.publish(
            DaemonWarning(
                topic="log",
                message=f"cannot write all events to {self._renderer.target}: {count} lines were "
                "dropped",
                remedy=self._renderer.remedy,
            )
        )

    def _tell_failure(self, index: int, error: Exception) -> None:
        if index in self._said:
            return
        self._said.add(index)
        self.publish(
            DaemonError(
                id=secrets.token_hex(8),
                where=f"consumer of events {self._consumers[index]!r}",
                error=f"{type(error).__name__}: {error}",
                traceback="".join(traceback.format_exception(error)),
            )
        )
