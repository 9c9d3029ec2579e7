"""A slot's events: fills in which pool, worker and generation they are about."""

from __future__ import annotations

from collections.abc import Sequence

from supervisord_llm import events
from supervisord_llm.core.words import (
    ExitCause,
    PoolName,
    QuarantineReason,
    SlotName,
    SlotState,
    TeardownStage,
)
from supervisord_llm.host.usage import Usage
from supervisord_llm.runtime.log_book import LogBook
from supervisord_llm.runtime.log_lines import LogRate
from supervisord_llm.runtime.request import Publish
from supervisord_llm.runtime.worker import Worker

_REPORTED_LINES = 10


class Announcer:
    """Publishes what happens in one slot."""

    def __init__(self, pool: PoolName, slot: SlotName, publish: Publish, now: float) -> None:
        """Speak for ``slot``, beginning ``now``."""
        self.book = LogBook()
        """The last lines that the slot's workers wrote."""
        self._pool = pool
        self._slot = slot
        self._publish = publish
        self._rate = LogRate(now)

    def last_lines(self, worker: Worker) -> list[str]:
        """A worker's last lines, for the report of its end."""
        return self.book.of_generation(worker.generation.number, _REPORTED_LINES)

    def state(self, generation: int, from_: SlotState, to: SlotState, reason: str | None) -> None:
        """The slot moved."""
        self._publish(
            events.WorkerState(
                pool=self._pool,
                worker=self._slot,
                generation=generation,
                from_=from_,
                to=to,
                reason=reason,
            )
        )

    def added(self) -> None:
        """There is a slot."""
        self._publish(events.WorkerAdded(pool=self._pool, worker=self._slot))

    def removed(self) -> None:
        """It is no more."""
        self._publish(events.WorkerRemoved(pool=self._pool, worker=self._slot))

    def spawned(self, worker: Worker, argv0: str) -> None:
        """A process was started."""
        self._publish(
            events.WorkerSpawned(
                pool=self._pool,
                worker=self._slot,
                generation=worker.generation.number,
                pid=worker.process.pid,
                argv0=argv0,
            )
        )

    def spawn_failed(self, error: str) -> None:
        """No process could be started."""
        self._publish(
            events.DaemonWarning(
                topic="spawn",
                message=error,
                remedy="the slot tries again after a delay",
                pool=self._pool,
                worker=self._slot,
            )
        )

    def ready(self, worker: Worker, load_seconds: float) -> None:
        """The worker's model is loaded."""
        dialect = worker.dialect
        if dialect is None:
            return
        self._publish(
            events.WorkerReady(
                pool=self._pool,
                worker=self._slot,
                generation=worker.generation.number,
                load_ms=round(load_seconds * 1000, 3),
                dialect=dialect,
                extensions=list(worker.extensions),
                capacity=worker.connection.capacity,
            )
        )

    def active(self, generation: int, *, active: bool) -> None:
        """A worker that serves takes work from now on, or stands by."""
        kind = events.WorkerActivated if active else events.WorkerRested
        self._publish(kind(pool=self._pool, worker=self._slot, generation=generation))

    def draining(
        self, worker: Worker, reason: str, detail: str | None, requests: Sequence[str]
    ) -> None:
        """The worker finishes what it has."""
        self._publish(
            events.WorkerDraining(
                pool=self._pool,
                worker=self._slot,
                generation=worker.generation.number,
                reason=reason,
                detail=detail,
                requests=list(requests),
            )
        )

    def quarantined(
        self,
        worker: Worker,
        reason: QuarantineReason,
        detail: str | None,
        requests: Sequence[str],
    ) -> None:
        """The worker was judged unfit; what has exited is only reaped any more."""
        exited = reason is QuarantineReason.UNEXPECTED_EXIT
        stage = TeardownStage.REAPING if exited else TeardownStage.TERMINATING
        self._publish(
            events.WorkerQuarantined(
                pool=self._pool,
                worker=self._slot,
                generation=worker.generation.number,
                reason=reason,
                stage=stage,
                detail=detail,
                requests=list(requests),
                last_lines=self.last_lines(worker),
            )
        )

    def exited(
        self, worker: Worker, cause: ExitCause, uptime_seconds: float, *, expected: bool
    ) -> None:
        """The process has ended."""
        self._publish(
            events.WorkerExited(
                pool=self._pool,
                worker=self._slot,
                generation=worker.generation.number,
                exit=str(cause),
                uptime_seconds=round(uptime_seconds, 3),
                served=worker.served,
                expected=expected,
                last_lines=[] if expected else self.last_lines(worker),
            )
        )

    def reaped(self, worker: Worker, cause: ExitCause, descendants: Sequence[int]) -> None:
        """The exit status was taken."""
        self._publish(
            events.WorkerReaped(
                pool=self._pool,
                worker=self._slot,
                generation=worker.generation.number,
                exit=str(cause),
                descendants=list(descendants),
            )
        )

    def restart(self, generation: int, attempt: int, delay: float, reason: str) -> None:
        """The next generation will start."""
        self._publish(
            events.WorkerRestartScheduled(
                pool=self._pool,
                worker=self._slot,
                generation=generation,
                attempt=attempt,
                delay_ms=round(delay * 1000, 3),
                reason=reason,
            )
        )

    def parked(
        self,
        generation: int,
        reason: str,
        restarts: int,
        exit_: str | None,
        last_lines: Sequence[str],
    ) -> None:
        """The slot stays down."""
        self._publish(
            events.WorkerParked(
                pool=self._pool,
                worker=self._slot,
                generation=generation,
                reason=reason,
                exit=exit_,
                restarts=restarts,
                last_lines=list(last_lines),
            )
        )

    def resumed(self, generation: int) -> None:
        """An operator brought the slot back."""
        self._publish(
            events.WorkerResumed(pool=self._pool, worker=self._slot, generation=generation)
        )

    def log(self, generation: int, lines: Sequence[str], now: float) -> None:
        """The worker wrote to stderr: write it down, and tell as much of it as the rate allows."""
        for line in lines:
            self.book.add(now, generation, line)
            if (dropped := self._rate.admit(now)) is None:
                continue
            self._publish(
                events.WorkerLog(
                    pool=self._pool,
                    worker=self._slot,
                    generation=generation,
                    stream="stderr",
                    line=line,
                    dropped=dropped,
                )
            )

    def usage(self, generation: int, used: Usage) -> None:
        """What the worker holds and has used."""
        self._publish(
            events.WorkerUsage(
                pool=self._pool,
                worker=self._slot,
                generation=generation,
                rss=used.rss,
                pss=used.pss,
                anonymous=used.anonymous,
                swap=used.swap,
                gpu=used.gpu,
                held=used.held,
                processes=used.processes,
                cpu_seconds=used.cpu_seconds,
            )
        )
