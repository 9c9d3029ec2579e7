"""What anybody may ask of a pool: how it stands, what waits, and why it does not serve."""

from __future__ import annotations

from collections.abc import Sequence

from supervisord_llm.config.schema import PoolConfig
from supervisord_llm.core import residency
from supervisord_llm.core.words import PoolName, RequestId, SlotState
from supervisord_llm.runtime.fleet import Fleet
from supervisord_llm.runtime.queue import Queue
from supervisord_llm.runtime.sessions import SessionDesk
from supervisord_llm.runtime.slot import Slot
from supervisord_llm.runtime.slot_facts import DOWN, SERVING
from supervisord_llm.wire.messages import Model

_FAILED = frozenset({SlotState.QUARANTINED, SlotState.BACKOFF, SlotState.PARKED})


class PoolFacts:
    """The half of a pool that only looks."""

    def __init__(self, name: PoolName, fleet: Fleet, queue: Queue, desk: SessionDesk) -> None:
        """Describe a pool that does not run yet."""
        self.name = name
        self.model: Model | None = None
        """What its workers said of their model."""
        self.drained = False
        """An operator takes it out of service: it finishes what it has."""
        self.serving_since: float | None = None
        """When its first worker became ready after the last load."""
        self._stopping = False
        self._fleet = fleet
        self._queue = queue
        self._desk = desk

    @property
    def config(self) -> PoolConfig:
        """What is in force."""
        return self._fleet.config

    @property
    def slots(self) -> Sequence[Slot]:
        """Its slots, in the order of their indices; they come and go."""
        return self._fleet.slots

    @property
    def queued(self) -> int:
        """How many requests wait."""
        return len(self._queue)

    def order(self) -> list[RequestId]:
        """The requests that wait, in the order in which they are served as things stand."""
        return self._queue.order()

    @property
    def in_flight(self) -> int:
        """How many requests are on workers."""
        return sum(len(slot.requests) for slot in self.slots)

    @property
    def serving(self) -> int:
        """How many slots are ready, busy or cancelling."""
        return sum(slot.state in SERVING for slot in self.slots)

    @property
    def loaded(self) -> bool:
        """Whether it is to have workers; a pool on demand has none while nobody asks."""
        return self._fleet.loaded

    @property
    def target(self) -> int:
        """How many slots are to take work."""
        return self._fleet.workers

    @property
    def standby(self) -> int:
        """How many slots are to be ready to take over."""
        return self.config.standby

    @property
    def revision(self) -> int:
        """How often all of its workers were asked to be replaced."""
        return self._fleet.revision

    @property
    def reloading(self) -> bool:
        """Whether a planned change of its slots is under way."""
        return self._fleet.changing

    @property
    def sessions(self) -> int:
        """How many named sessions its workers hold."""
        return self._desk.count

    @property
    def ready(self) -> bool:
        """Whether enough slots serve, or would on demand."""
        if self.drained:
            return False
        if self.on_demand and not self.loaded:
            return self.on_call
        return self.serving >= self.config.min_ready or self.on_call

    @property
    def on_call(self) -> bool:
        """Whether all that keeps it from serving is that nobody needed it until now.

        It is not loaded, or it loads and nothing has gone wrong with that. A pool that is to be
        loaded from the start has to show first that it can be.
        """
        if not self.on_demand or not self._can_ever_serve():
            return False
        if not self.loaded:
            return True
        proven = any(slot.load_seconds is not None for slot in self.slots)
        return (
            self.serving_since is None
            and (proven or self.config.load == "on_demand")
            and not any(slot.state in _FAILED for slot in self.slots)
        )

    @property
    def on_demand(self) -> bool:
        """Whether it is loaded only when somebody asks, or shares its device."""
        return self.config.load == "on_demand" or bool(self.config.exclusive)

    @property
    def finished(self) -> bool:
        """Whether nothing waits, nothing runs and no process is left."""
        return not self._queue and all(slot.state in DOWN for slot in self.slots)

    @property
    def has_verdict(self) -> bool:
        """Whether the pool is ready, or can no longer become so without an operator."""
        return self.ready or not self._can_ever_serve()

    @property
    def unavailable_because(self) -> str | None:
        """Why slots do not serve, in an operator's words; ``None`` if enough of them do."""
        if self.ready:
            return None
        if self.drained:
            return f"an operator drained it; `llmctl resume {self.name}` brings it back"
        return "; ".join(slot.in_words() for slot in self.slots if not slot.serving)

    def _can_ever_serve(self) -> bool:
        return not self.drained and self._slots_can_serve()

    def _slots_can_serve(self) -> bool:
        """Whether some slot will take work again without an operator's help."""
        return any(
            slot.state is not SlotState.PARKED
            and not (slot.held and slot.state is SlotState.STOPPED)
            for slot in self.slots
        )

    def resident(self) -> residency.Resident:
        """What the decision about loading needs to know."""
        config = self.config
        return residency.Resident(
            pool=self.name,
            group=config.exclusive,
            eager=config.load == "eager",
            idle_ttl=config.idle_ttl,
            age_step=config.queue.age_step,
            wanted=self.loaded,
            present=any(slot.state not in DOWN for slot in self.slots),
            # A drained pool finishes what it has, but is not loaded again for it.
            can_serve=self._slots_can_serve() and (self.loaded or not self.drained),
            serving_since=self.serving_since,
            in_flight=self.in_flight,
            waiting_since=self._queue.waiting_since,
            idle_since=self._queue.idle_since,
        )
