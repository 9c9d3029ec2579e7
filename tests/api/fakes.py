"""A daemon without workers, for tests of the HTTP front: real requests with a scripted fate."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TypeVar, cast

import trio

from supervisord_llm.api.front import Front
from supervisord_llm.api.keys import KeyRings
from supervisord_llm.config.schema import PoolConfig
from supervisord_llm.core import ledger
from supervisord_llm.core.words import (
    CancelledBy,
    Dialect,
    Extension,
    FinishReason,
    Generation,
    RequestId,
    RequestState,
    SlotName,
    SlotState,
    TeardownStage,
    Usage,
)
from supervisord_llm.errors import ConfigError, NotFound, Refused
from supervisord_llm.events import Event
from supervisord_llm.runtime.clock import Clock
from supervisord_llm.runtime.log_book import LogBook
from supervisord_llm.runtime.mailbox import Mailbox
from supervisord_llm.runtime.reconfigure import Change
from supervisord_llm.runtime.request import Request, RequestSpec, RequestStream
from supervisord_llm.runtime.supervisor import Supervisor
from supervisord_llm.runtime.turn import Turn
from supervisord_llm.telemetry.log import EventLog
from supervisord_llm.telemetry.metrics import Metrics
from supervisord_llm.telemetry.ring import Ring
from supervisord_llm.telemetry.totals import Totals
from supervisord_llm.wire.messages import Model

E = TypeVar("E", bound=Event)


@dataclass(kw_only=True)
class FakeSlot:
    """What the front reads of a slot."""

    name: SlotName
    pool: str
    since: float
    state: SlotState = SlotState.READY
    stage: TeardownStage | None = None
    reason: str | None = None
    generation: int = 1
    pid: int | None = 4711
    dialect: Dialect | None = Dialect.SERIAL_CANCEL
    extensions: tuple[Extension, ...] = (Extension.PING,)
    active: bool = True
    revision: int = 1
    capacity: int = 1
    requests: tuple[RequestId, ...] = ()
    served: int = 0
    tokens: int = 0
    restarts: int = 0
    next_start_at: float | None = None
    last_exit: SimpleNamespace | None = None
    usage: SimpleNamespace | None = None
    logs: LogBook = field(default_factory=LogBook)
    told: list[str] = field(default_factory=list)
    """What the slot was told to do."""
    refusal: Refused | None = None

    def reload(self) -> None:
        """Note it, or refuse."""
        self._take("reload", SlotState.DRAINING)

    def drain(self) -> None:
        """Note it, or refuse."""
        self._take("drain", SlotState.DRAINING)

    def quarantine(self) -> None:
        """Note it, or refuse."""
        self._take("quarantine", SlotState.QUARANTINED)

    def resume(self) -> None:
        """Note it, or refuse."""
        self._take("resume", SlotState.STARTING)
        self.generation += 1

    def _take(self, verb: str, state: SlotState) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.told.append(verb)
        self.state = state


class FakePool:
    """A pool whose requests wait for the test to decide about them."""

    def __init__(self, name: str, daemon: FakeDaemon) -> None:
        self.name = name
        self.config = PoolConfig(command=("worker",))
        now = daemon.clock.now()
        self.slots = [FakeSlot(name=f"{name}.{at}", pool=name, since=now) for at in range(2)]
        self.model: Model | None = None
        self.queued = 0
        self.in_flight = 0
        self.ready = True
        self.unavailable_because: str | None = None
        self.failure: Exception | None = None
        """Raised instead of accepting."""
        self.target = 2
        self.standby = 0
        self.drained = False
        self.loaded = True
        self.on_call = False
        self.reloading = False
        self.revision = 1
        self.sessions = 0
        self.keeps_sessions: bool | None = True
        self.told: list[str] = []
        """What the pool was told to do."""
        self.refusal: Refused | None = None
        """Raised instead of doing what it is told."""
        self.settled = trio.Event()
        """Set by the test when what was begun is over."""
        self.held = {"trip"}
        """The sessions that workers hold."""
        self.withdrawn: list[RequestId] = []
        self.specs: list[RequestSpec] = []
        self._daemon = daemon
        self._arrive, self._arrived = trio.open_memory_channel[Request](100)

    @property
    def serving(self) -> int:
        """Slots that serve."""
        serving = {SlotState.READY, SlotState.BUSY, SlotState.CANCELLING}
        return sum(slot.state in serving for slot in self.slots)

    @asynccontextmanager
    async def request(self, spec: RequestSpec) -> AsyncIterator[RequestStream]:
        """Accept a request; leaving the block cancels it as the client."""
        if self.failure is not None:
            raise self.failure
        request = self._daemon.new_request(self, spec)
        self.specs.append(spec)
        self._arrive.send_nowait(request)
        try:
            yield RequestStream(request, self.queued)
        finally:
            request.cancel(CancelledBy.CLIENT)

    def reload(self) -> None:
        """Note it, or refuse."""
        self._take("reload")
        self.reloading, self.revision = True, self.revision + 1

    def drain(self) -> None:
        """Note it, or refuse."""
        self._take("drain")
        self.drained = True

    def resume(self) -> None:
        """Note it, or refuse."""
        self._take("resume")

    def scale(self, workers: int) -> None:
        """Note it, or refuse."""
        self._take("scale")
        self.target = workers

    def _take(self, verb: str) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.told.append(verb)

    async def wait_settled(self) -> None:
        """Wait for the test."""
        await self.settled.wait()
        self.reloading = False

    async def reset_session(self, session_id: str) -> bool:
        """Tell whether it is held, or refuse."""
        self._take(f"reset {session_id}")
        await trio.lowlevel.checkpoint()
        return session_id in self.held

    async def close_session(self, session_id: str) -> bool:
        """Let go of it, or refuse."""
        self._take(f"close {session_id}")
        await trio.lowlevel.checkpoint()
        held = session_id in self.held
        self.held.discard(session_id)
        return held

    def order(self) -> list[RequestId]:
        """The last comes first, as if its priority were high."""
        waiting = [each for each in self._daemon.requests() if each.state is RequestState.QUEUED]
        return [each.id for each in reversed(waiting)]

    async def next_request(self) -> Request:
        """Wait for the next accepted request."""
        with trio.fail_after(5):
            return await self._arrived.receive()

    def assign(self, request: Request) -> None:
        """Give the request to the pool's first slot."""
        request.assign(self, Generation(self.slots[0].name, 1), 1)

    def complete(self, request: Request, *, cancelled: bool = False) -> None:
        """Say ``done`` for the worker."""
        request.post(
            ledger.Done(
                now=self._daemon.clock.now(),
                cancelled=cancelled,
                finish_reason=FinishReason.STOP,
                usage=Usage(prompt_tokens=3, reused_tokens=0, generated_tokens=2),
            )
        )

    def ask_to_stop(self, request: Request) -> None:
        """Acknowledge a cancellation at once, as an obedient worker does."""
        self.complete(request, cancelled=True)

    def blame(self, at: float) -> None:
        """Nothing is charged here."""

    def withdraw(self, request: Request) -> None:
        """Note that a queued request was taken out."""
        self.withdrawn.append(request.id)

    def take_back(self, request: Request) -> None:
        """Nothing is tried again here."""

    def forget(self, request: Request) -> None:
        """Nothing to forget."""

    def may_charge(self, request: Request) -> bool:
        """Only one that has no output."""
        return request.tokens == 0

    def produced(self) -> None:
        """Nobody is suspected here."""


@dataclass
class FakeDaemon:
    """The parts that a ``Front`` is made of, with one pool ``smollm`` of two ready slots."""

    clock: Clock = field(default_factory=Clock)
    ring: Ring = field(default_factory=lambda: Ring(1000))
    totals: Totals = field(default_factory=Totals)
    metrics: Metrics = field(default_factory=Metrics)
    keys: KeyRings = field(default_factory=KeyRings)
    stopping: bool = False
    is_live: bool = True
    boot: str = "boot-1"
    change: Change | ConfigError = field(
        default_factory=lambda: Change("ab12", ["pool smollm: workers 2 -> 3"], [], [])
    )

    def __post_init__(self) -> None:
        self.started_at = self.clock.now()
        self.events: list[Event] = []
        self.log = EventLog(
            boot=self.boot,
            ring=self.ring,
            consumers=[
                self.totals,
                self.metrics,
                lambda _seq, event: self.events.append(event),
            ],
        )
        self.accepted: dict[RequestId, Request] = {}
        self.pool = FakePool("smollm", self)
        self.pools = {"smollm": self.pool}
        self.slots = {slot.name: slot for slot in self.pool.slots}

    def find(self, model: str) -> FakePool | None:
        """Return the pool of that name; there are no others."""
        return self.pools.get(model)

    def requests(self) -> list[Request]:
        """Return every request, in the order of their acceptance."""
        return list(self.accepted.values())

    def find_request(self, id_: RequestId) -> Request:
        """Return an accepted request."""
        if id_ not in self.accepted:
            raise NotFound(f"cannot find request {id_!r}; it may be too long ago", param="id")
        return self.accepted[id_]

    def new_request(self, pool: FakePool, spec: RequestSpec) -> Request:
        """Make a request in the queue."""
        request = Request(
            f"req_{len(self.accepted) + 1}",
            pool.name,
            spec,
            owner=pool,
            mailbox=Mailbox(1024, 1 << 20),
            max_attempts=1,
            clock=self.clock,
            publish=self.log.publish,
            turn=Turn(),
        )
        self.accepted[request.id] = request
        return request

    def reload_config(self) -> Change:
        """Say what the test has put there, or raise it."""
        if isinstance(self.change, Exception):
            raise self.change
        return self.change

    def front(self) -> Front:
        """Return what the handlers are given."""
        return Front(
            supervisor=cast("Supervisor", self),
            ring=self.ring,
            totals=self.totals,
            metrics=self.metrics,
            publish=self.log.publish,
            reload_config=self.reload_config,
            live=lambda: self.is_live,
            keys=self.keys,
            config_path="/etc/daemon.toml",
            version="1.2.3",
        )

    async def wait_event(self, kind: type[E], count: int = 1) -> E:
        """Wait until ``count`` events of a kind were published; return the last of them."""
        with trio.fail_after(5):
            while len(found := [each for each in self.events if isinstance(each, kind)]) < count:
                await self.ring.wait_appended()
        return found[-1]
