"""What a simulated pool is made of: slots, workers that follow a script, and requests."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from supervisord_llm.core import (
    cancellation,
    escalation,
    ledger,
    restart,
    slot,
)
from supervisord_llm.core.record import Record
from supervisord_llm.core.words import (
    RequestId,
    SlotName,
)


class Script(msgspec.Struct, frozen=True, kw_only=True):
    """How one generation's worker behaves; delays in seconds, ``None`` for never."""

    spawns: bool = True
    """Whether there is a process at all."""
    capacity: int = 1
    load: float = 1.0
    prefill: float = 0.5
    decode: float = 1.0
    heeds_cancel: float | None = 0.1
    """After a frame: how soon it ends the request."""
    pipe_breaks: bool = False
    heeds_close: float | None = 0.1
    heeds_term: float | None = 0.1
    heeds_kill: float | None = 0.1
    exits_after: float | None = None
    """By itself, counted from its spawn."""
    dies_of_prompts: float | None = None
    """By itself, counted from being given a request."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """A pool's configuration, as far as the core knows it."""

    terms: cancellation.Terms
    graces: escalation.Graces
    policy: restart.Policy
    max_queued: int = 8
    queue_timeout: float = 30.0
    max_attempts: int = 1


class Request:
    """One request: its ledger, when it was sealed, and who worked on it."""

    def __init__(self, id_: RequestId, now: float, attempts: int) -> None:
        self.id = id_
        self.state = ledger.State(accepted_at=now, attempts_left=attempts - 1)
        self.tries: list[tuple[float, Worker]] = []
        self.delivered: list[Worker] = []
        """Whose words the client was given, one entry for each."""
        self.charged: list[Worker] = []
        """Whose ends are held against it."""
        self.lates = 0
        """Endings that were told as late by workers that had lost it."""
        self.seals: list[tuple[float, Record]] = []
        self.overs = 0
        self.stopped_at: float | None = None
        """When a stop string was found in its output."""
        self.held_by: Worker | None = None

    @property
    def was_on(self) -> Worker | None:
        """The worker that had it last."""
        return self.tries[-1][1] if self.tries else None


class Worker:
    """One process, and what is asked of it."""

    def __init__(self, of: Slot, generation: int, script: Script, now: float) -> None:
        self.of = of
        self.generation = generation
        self.script = script
        self.spawned_at = now
        self.exited = False
        self.reaped = False
        self.condemned_at: float | None = None
        self.unreapable_at: float | None = None
        self.restart_delay = 0.0
        """How long the slot waits until there is another, as was told; for ever if parked."""
        self.ladder = escalation.State(graces=of.settings.graces)
        self.excused = False
        """Whether its end is charged to a request, and not to its slot."""
        self.requests: dict[RequestId, Request] = {}
        self.lost: dict[RequestId, Request] = {}
        """What was taken from it for another worker."""
        self.cancellations: dict[RequestId, cancellation.State] = {}
        self.decoding: set[RequestId] = set()


class Slot:
    """One slot's machine and its worker."""

    def __init__(self, name: SlotName, settings: Settings, scripts: Sequence[Script]) -> None:
        self.name = name
        self.settings = settings
        self.scripts = scripts
        self.state = slot.State(policy=settings.policy)
        self.worker: Worker | None = None
        self.workers: list[Worker] = []
        self.spawned = 0
