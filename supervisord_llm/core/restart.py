"""When a slot starts again: arithmetic over its history, nothing else.

A worker that was in service begins again at once the first time it fails, so that one hung kernel
costs one load and no more. From the second failure on (or from the first, if it never got ready)
the slot waits, each time twice as long, with jitter, so that slots that died together do not load
together. `healthy_after` seconds in service forget the failures. More than `max_restarts` of them
within `restart_window` park the slot.
"""

from __future__ import annotations

import msgspec


class Policy(msgspec.Struct, frozen=True):
    """How a pool's slots restart; durations in seconds."""

    backoff_initial: float
    backoff_max: float
    jitter: float
    """The share of the delay by which it varies, either way: 0.2 is plus or minus a fifth."""
    healthy_after: float
    max_restarts: int
    restart_window: float


class History(msgspec.Struct, frozen=True):
    """What a slot has been through."""

    failures: tuple[float, ...] = ()
    """When it failed, within the window, oldest first."""
    streak: int = 0
    """Failures since it last was healthy."""


class Start(msgspec.Struct, frozen=True):
    """Start the next generation now."""

    attempt: int


class Wait(msgspec.Struct, frozen=True):
    """Start the next generation after ``delay`` seconds."""

    attempt: int
    delay: float


class Park(msgspec.Struct, frozen=True):
    """Leave it down; it failed ``restarts`` times within the window."""

    restarts: int


Decision = Start | Wait | Park


def decide(
    history: History, now: float, policy: Policy, *, ready_since: float | None, roll: float
) -> tuple[History, Decision]:
    """What to do with a slot whose worker has just failed.

    Args:
        history: the slot's history before this failure.
        now: the time of the failure.
        policy: the pool's policy.
        ready_since: when the failed worker became ready; ``None`` if it never did.
        roll: a random number from 0 to 1 that places the delay within its jitter.
    """
    healthy = ready_since is not None and now - ready_since >= policy.healthy_after
    streak = 1 if healthy else history.streak + 1
    failures = (*_recent(history, now, policy), now)
    after = History(failures=failures, streak=streak)
    if len(failures) > policy.max_restarts:
        return after, Park(len(failures))
    doublings = streak - 1 if ready_since is None else streak - 2
    if doublings < 0:
        return after, Start(streak)
    delay = backoff(policy, doublings, roll)
    return after, Wait(streak, delay)


def decide_uncharged(history: History, now: float, policy: Policy) -> tuple[History, Start | Park]:
    """What to do with a slot whose worker has just ended in a way that does not count against it.

    It starts at once and its streak is what it was. But ends that were counted later (see `blame`)
    may be too many by now; a slot that loses each of its workers in such a way would otherwise
    never be parked.
    """
    after = History(failures=_recent(history, now, policy), streak=history.streak)
    if len(after.failures) > policy.max_restarts:
        return after, Park(len(after.failures))
    return after, Start(1)


def _recent(history: History, now: float, policy: Policy) -> tuple[float, ...]:
    return tuple(at for at in history.failures if now - at < policy.restart_window)


def blame(history: History, at: float) -> History:
    """The history with one failure more, which happened at ``at``; the streak is what it was.

    For a failure that was not counted when it happened: the slot has served since.
    """
    return msgspec.structs.replace(history, failures=tuple(sorted((*history.failures, at))))


def backoff(policy: Policy, doublings: int, roll: float) -> float:
    """The delay in seconds after ``doublings`` doublings, jittered by ``roll`` from 0 to 1."""
    # 2.0**1024 overflows; no sensible pair of bounds needs more than 64 doublings.
    plain = min(policy.backoff_max, policy.backoff_initial * 2.0 ** min(doublings, 64))
    jittered = plain * (1.0 + policy.jitter * (2.0 * roll - 1.0))
    return min(policy.backoff_max, jittered)
