"""Whose model is loaded: pools that load on demand, and groups of pools that share one device.

A pool that loads on demand is loaded when a request waits for it and unloaded when none has come
for its ``idle_ttl``. Of an exclusive group at most one pool is loaded at a time, and the next one
only when nothing is left of the one before: two models on one device are what the group forbids.

Switching costs a load each time, so requests for the loaded model go first: the others wait until
it has had nothing to do for a moment, in which a client that has just been answered may ask again.
That is bounded. A pool gives way, once its running work has ended, when
another one's oldest request has waited for `PATIENCE_STEPS` steps of ageing, counted from the
moment when this pool began to serve, so that under constant demand for two models each serves for
that long before the next switch.

Like the rest of the core this only decides. It looks at who waits and never at who asks, so
observing a pool loads nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from supervisord_llm.core.words import PlannedReason, PoolName

PATIENCE_STEPS = 6
"""After so many of a pool's ageing steps its waiting requests outweigh those of the loaded pool."""
BREATH_SECONDS = 0.2
"""So long a pool without work keeps its device from others: whoever was answered may ask again."""
LINGER_SECONDS = 2.0
"""A load that nobody waits for any more is dropped after this; a client may well try again."""


class Resident(msgspec.Struct, frozen=True, kw_only=True):
    """What there is to know of a pool; times are seconds on the daemon's monotonic clock."""

    pool: PoolName
    group: str
    """The device that it shares; empty for one of its own."""
    eager: bool
    """Whether it is to be loaded whenever the device is free for it."""
    idle_ttl: float
    age_step: float
    wanted: bool
    """The last decision: it is loaded or loads."""
    present: bool
    """Something of its workers is still, or already, there."""
    can_serve: bool
    """It is not beyond help: not all of its slots are parked or stopped by an operator."""
    serving_since: float | None
    """When its first worker became ready after the last load."""
    in_flight: int
    waiting_since: float | None
    """When its oldest waiting request came."""
    idle_since: float
    """When the last request that it had, waiting or running, was over."""


class Residence(msgspec.Struct, frozen=True):
    """What is to become of a pool."""

    loaded: bool
    reason: PlannedReason = PlannedReason.IDLE
    """Why it is unloaded, if it is."""


class Plan(msgspec.Struct, frozen=True):
    """The decisions by pool, and when to look again if nothing happens before."""

    pools: Mapping[PoolName, Residence]
    look_at: float | None


def plan(residents: Sequence[Resident], now: float) -> Plan:
    """Decide which pools are loaded, for all those that load on demand or share a device."""
    decided: dict[PoolName, Residence] = {}
    looks: list[float] = []
    groups: dict[str, list[Resident]] = {}
    for resident in residents:
        if resident.group:
            groups.setdefault(resident.group, []).append(resident)
        else:
            decided[resident.pool] = _alone(resident, now, looks)
    for members in groups.values():
        decided |= _share(members, now, looks)
    return Plan(decided, min(looks, default=None))


def _alone(resident: Resident, now: float, looks: list[float]) -> Residence:
    """A pool with a device of its own."""
    if resident.eager or _has_work(resident):
        return Residence(loaded=True)
    if not resident.wanted:
        return Residence(loaded=False)
    return _until(_unload_at(resident), now, looks)


def _share(
    members: Sequence[Resident], now: float, looks: list[float]
) -> dict[PoolName, Residence]:
    """At most one of a group."""
    decided = {
        each.pool: Residence(loaded=False, reason=PlannedReason.EXCLUSIVE) for each in members
    }
    holder = next((each for each in members if each.wanted), None)
    if holder is not None:
        decided[holder.pool] = _hold(holder, members, now, looks)
        return decided
    if any(each.present for each in members):
        return decided  # the device is not free yet
    if (heir := _heir(members)) is not None:
        decided[heir.pool] = Residence(loaded=True)
    return decided


def _heir(members: Sequence[Resident]) -> Resident | None:
    """Who is loaded next on a free device: who has waited longest, else the eager one."""
    waiting = [each for each in members if each.waiting_since is not None and each.can_serve]
    if waiting:
        return min(waiting, key=lambda each: (each.waiting_since or 0.0, each.pool))
    return next((each for each in members if each.eager and each.can_serve), None)


def _hold(
    holder: Resident, members: Sequence[Resident], now: float, looks: list[float]
) -> Residence:
    """Whether the loaded pool of a group stays."""
    rivals = [
        each
        for each in members
        if each is not holder and each.waiting_since is not None and each.can_serve
    ]
    give_way = Residence(loaded=False, reason=PlannedReason.EXCLUSIVE)
    if rivals:
        if not holder.can_serve:
            return give_way
        if holder.serving_since is None:
            # A load that somebody waits for is finished first: dropped half-way it served nobody.
            return Residence(loaded=True) if _has_work(holder) else give_way
        until = min(
            max(each.waiting_since or 0.0, holder.serving_since) + PATIENCE_STEPS * each.age_step
            for each in rivals
        )
        if not _has_work(holder):
            until = min(until, holder.idle_since + BREATH_SECONDS)
        if now >= until:
            return give_way
        looks.append(until)
        return Residence(loaded=True)
    if holder.eager or _has_work(holder):
        return Residence(loaded=True)
    if any(each.eager and each.can_serve for each in members):
        # The device's usual model comes back when the guest has not been asked for in a while.
        return _until(_unload_at(holder), now, looks, PlannedReason.EXCLUSIVE)
    return _until(_unload_at(holder), now, looks)


def _has_work(resident: Resident) -> bool:
    return resident.in_flight > 0 or resident.waiting_since is not None


def _unload_at(resident: Resident) -> float:
    """When a pool without work is unloaded; one that nobody waits for while it loads, sooner."""
    if resident.serving_since is None:
        return resident.idle_since + min(LINGER_SECONDS, resident.idle_ttl)
    return max(resident.idle_since, resident.serving_since) + resident.idle_ttl


def _until(
    at: float, now: float, looks: list[float], reason: PlannedReason = PlannedReason.IDLE
) -> Residence:
    if now >= at:
        return Residence(loaded=False, reason=reason)
    looks.append(at)
    return Residence(loaded=True)
