"""What anybody may ask of a slot: its state, its worker, and what both amount to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from supervisord_llm.core import queueing
from supervisord_llm.core import slot as lifecycle
from supervisord_llm.core.words import (
    Dialect,
    Extension,
    FailureReason,
    PoolName,
    QuarantineReason,
    RequestId,
    SlotName,
    SlotState,
    TeardownStage,
)
from supervisord_llm.errors import InternalError
from supervisord_llm.host import usage as host_usage
from supervisord_llm.runtime.announce import Announcer
from supervisord_llm.runtime.life import Life
from supervisord_llm.runtime.log_book import LogBook

SERVING = frozenset({SlotState.READY, SlotState.BUSY, SlotState.CANCELLING})
"""The states in which a slot counts as ready: a cancellation within its grace is normal service."""

DOWN = frozenset({SlotState.PARKED, SlotState.STOPPED})
"""The states in which there is no process and none is due."""

FAILURES: Mapping[QuarantineReason, FailureReason] = {
    QuarantineReason.UNEXPECTED_EXIT: FailureReason.WORKER_EXITED,
    QuarantineReason.PROTOCOL_ERROR: FailureReason.PROTOCOL_ERROR,
    QuarantineReason.FIRST_TOKEN_STALL: FailureReason.STALLED,
    QuarantineReason.TOKEN_STALL: FailureReason.STALLED,
    QuarantineReason.HEALTH_PROBE_FAILED: FailureReason.STALLED,
}
"""What the requests of an unfit worker fail of, where that says more than that it is unfit."""


class LastExit(msgspec.Struct, frozen=True):
    """How the previous worker of a slot ended; ``at`` is on the monotonic clock."""

    exit: str
    reason: str | None
    at: float
    generation: int
    last_lines: list[str]


class SlotFacts:
    """The half of a slot that only looks."""

    def __init__(
        self, name: SlotName, pool: PoolName, index: int, state: lifecycle.State, tell: Announcer
    ) -> None:
        """Describe a slot that has no worker yet."""
        self.name = name
        self.pool = pool
        self.index = index
        self.tell = tell
        self.life: Life | None = None
        self.last_exit: LastExit | None = None
        self.active = True
        """Whether it may take work; a slot on standby may not."""
        self.revision = 0
        """Of the settings that its next worker is started with, in its pool's count."""
        self.worker_revision = 0
        """Of those that the present worker was started with."""
        self.held = False
        """An operator took it down: nothing but an operator brings it back."""
        self.wanted = False
        """Its pool is to have workers; one that is unloaded is not."""
        self.leaving = False
        """It is removed as soon as it is down."""
        self.replaces: int | None = None
        """The index of the slot that it is to replace when it is ready."""
        self.kept_at: int | None = None
        """The revision whose replacement for it failed, so that it keeps serving."""
        self.kept_generation = 0
        """The worker that was to be replaced then."""
        self.recycle: str | None = None
        """The limit that its worker has reached, in words."""
        self.max_sessions = 0
        """How many named sessions its worker keeps."""
        self.load_seconds: float | None = None
        """How long its last worker took to load."""
        self._state = state

    def live(self) -> Life:
        """The worker and what drives it.

        Raises:
            InternalError: if there is none.
        """
        if self.life is None:
            raise InternalError(f"{self.name} has no worker")
        return self.life

    @property
    def state(self) -> SlotState:
        """What the slot is doing."""
        return self._state.kind

    @property
    def stopping(self) -> bool:
        """Whether it stays down once its worker is gone."""
        return self._state.next is lifecycle.Next.STOP

    @property
    def leaving_worker(self) -> bool:
        """Whether its worker is on its way out, whatever follows it."""
        return self.stopping or self.state is SlotState.DRAINING

    @property
    def detached(self) -> bool:
        """Whether its worker is busy, perhaps for long, with what nobody waits for any more."""
        return self.life is not None and self.life.workload.for_nobody

    @property
    def serving(self) -> bool:
        """Whether its worker is in service."""
        return self.state in SERVING

    @property
    def stage(self) -> TeardownStage | None:
        """How far the teardown of a quarantined worker has come."""
        if self.life is None or self.state is not SlotState.QUARANTINED:
            return None
        return self.life.ladder.stage

    @property
    def reason(self) -> str | None:
        """Why the slot is in its state, where there is something to say."""
        return self._state.reason

    @property
    def generation(self) -> int:
        """The number of the current, or last, worker."""
        return self._state.generation

    @property
    def pid(self) -> int | None:
        """The worker's process."""
        return None if self.life is None else self.life.worker.process.pid

    @property
    def guardian(self) -> int | None:
        """The process that is the worker's parent, a child of ours."""
        return None if self.life is None else self.life.worker.process.guardian.pid

    @property
    def dialect(self) -> Dialect | None:
        """The protocol that the worker announced."""
        return None if self.life is None else self.life.worker.dialect

    @property
    def extensions(self) -> Sequence[Extension]:
        """What the worker offered."""
        return () if self.life is None else self.life.worker.extensions

    @property
    def capacity(self) -> int:
        """How many requests the worker takes at a time."""
        return self._state.capacity

    @property
    def in_flight(self) -> int:
        """How many requests the worker works on."""
        return self._state.in_flight

    @property
    def requests(self) -> Sequence[RequestId]:
        """The requests that the worker holds."""
        return () if self.life is None else self.life.workload.requests

    @property
    def served(self) -> int:
        """How many requests the current worker has ended."""
        return 0 if self.life is None else self.life.worker.served

    @property
    def tokens(self) -> int:
        """How many tokens the current worker has written."""
        return 0 if self.life is None else self.life.worker.tokens

    @property
    def restarts(self) -> int:
        """How often a worker was replaced because it failed."""
        return self._state.restarts

    @property
    def next_start_at(self) -> float | None:
        """When the next worker starts, in backoff."""
        return self._state.next_start_at

    @property
    def usage(self) -> host_usage.Usage | None:
        """What the worker held and had used when it was last looked at."""
        return None if self.life is None else self.life.worker.usage

    @property
    def logs(self) -> LogBook:
        """The last lines that the slot's workers wrote to stderr."""
        return self.tell.book

    @property
    def free(self) -> bool:
        """Whether the worker has nothing to do, so that it may be asked about its sessions."""
        return (
            self.state is SlotState.READY
            and self.life is not None
            and not self.life.worker.operating
        )

    def load(self, sessions: int) -> queueing.SlotLoad:
        """What admission needs to know; ``sessions`` are those that the worker holds."""
        operating = self.life is not None and self.life.worker.operating
        return queueing.SlotLoad(
            slot=self.name,
            takes_work=self.active and self._state.takes_work and not operating,
            fit=self.active and self.serving and not self.detached,
            in_flight=self._state.in_flight,
            capacity=self._state.capacity,
            sessions=sessions,
        )

    def in_words(self) -> str:
        """Its state for a message: ``smollm.0 parked (unexpected_exit, exit:1)``."""
        facts = [self.reason] if self.reason else []
        if self.last_exit is not None and self.state in (SlotState.PARKED, SlotState.BACKOFF):
            facts.append(self.last_exit.exit)
        return f"{self.name} {self.state}" + (f" ({', '.join(facts)})" if facts else "")
