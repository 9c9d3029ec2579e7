"""Who may queue, who goes where, who has waited too long.

One synchronous breath: the pool hands over its queue and its slots, gets a list of decisions, and
only then acts. The queue is bounded and first in, first out; a request goes to the slot with the
smallest share of its capacity in use, the lowest index first among equals.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from supervisord_llm.core.words import RejectReason, RequestId, SlotName, SlotState


class Limits(msgspec.Struct, frozen=True):
    """A pool's bounds on its queue."""

    max_queued: int
    queue_timeout: float
    """Seconds that a request may wait."""


class SlotLoad(msgspec.Struct, frozen=True):
    """What admission needs to know of a slot."""

    slot: SlotName
    takes_work: bool
    in_flight: int
    capacity: int


class Waiting(msgspec.Struct, frozen=True):
    """A queued request."""

    request: RequestId
    since: float


class Assignment(msgspec.Struct, frozen=True):
    """This request goes to this slot."""

    request: RequestId
    slot: SlotName


def refusal(
    queued: int,
    limits: Limits,
    states: Sequence[SlotState],
    *,
    stopping: bool,
    drained: bool = False,
) -> RejectReason | None:
    """Why a new request may not join the queue, or ``None`` if it may.

    A pool that an operator has drained takes nothing, whatever its slots could serve.

    A request that a free slot will take at once needs no place in the queue, but is counted in it
    for that moment; ``max_queued`` of 0 is therefore not a bound that admits anything.
    """
    if stopping:
        return RejectReason.SHUTTING_DOWN
    if drained or not can_ever_serve(states):
        return RejectReason.POOL_UNAVAILABLE
    if queued >= limits.max_queued:
        return RejectReason.QUEUE_FULL
    return None


def can_ever_serve(states: Sequence[SlotState]) -> bool:
    """Whether some slot will take work again without an operator's help."""
    return any(state not in (SlotState.PARKED, SlotState.STOPPED) for state in states)


def assign(waiting: Sequence[Waiting], slots: Sequence[SlotLoad]) -> list[Assignment]:
    """Give the longest-waiting requests to the least busy slots, as far as there is capacity."""
    loads = {load.slot: load.in_flight for load in slots if load.takes_work}
    capacities = {load.slot: load.capacity for load in slots if load.takes_work}
    decided: list[Assignment] = []
    for entry in waiting:
        free = [slot for slot in loads if loads[slot] < capacities[slot]]
        if not free:
            break
        # min() keeps the first of equals, and the slots come in the order of their indices.
        slot = min(free, key=lambda name: loads[name] / capacities[name])
        loads[slot] += 1
        decided.append(Assignment(entry.request, slot))
    return decided


def expired(waiting: Sequence[Waiting], limits: Limits, now: float) -> list[RequestId]:
    """The requests that have waited for their whole allowance."""
    return [entry.request for entry in waiting if now - entry.since >= limits.queue_timeout]


def next_expiry(waiting: Sequence[Waiting], limits: Limits) -> float | None:
    """When the first request in the queue will have waited for too long."""
    return min((entry.since + limits.queue_timeout for entry in waiting), default=None)
