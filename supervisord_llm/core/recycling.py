"""When a worker has served for long enough: limits of its age, its requests and its memory.

Many engines leak a little. A worker that is replaced in time, with a drain and not by the kernel,
costs nobody anything. Workers that were started together would reach a limit together, so each one
has its own, a random share earlier than the configured one; only memory is not jittered, since
workers do not leak in step and the limit is the machine's.
"""

from __future__ import annotations

import msgspec


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker may reach before it is replaced; ``None``, or 0, is no limit."""

    max_age: float | None = None
    """Seconds since it was started."""
    max_requests: int = 0
    """Requests that it has ended."""
    memory_soft: int | None = None
    """Bytes that it holds, with its descendants."""


def due(
    limits: Limits,
    *,
    started_at: float,
    served: int,
    held_bytes: int | None,
    now: float,
    jitter: float,
    roll: float,
) -> str | None:
    """Which limit a worker has reached, in words; ``None`` if it has reached none.

    Args:
        limits: the pool's.
        started_at: when the worker was started, on the clock of ``now``, in seconds.
        served: how many requests it has ended.
        held_bytes: the memory that it holds; ``None`` if that is not known.
        now: the present time.
        jitter: the share from 0 to 1 by which a worker's own limit may be lower than the pool's.
        roll: a random number from 0 to 1, the same for all of a worker's life.
    """
    if limits.memory_soft and held_bytes is not None and held_bytes >= limits.memory_soft:
        return f"it holds {_mebibytes(held_bytes)} (memory_soft {_mebibytes(limits.memory_soft)})"
    if limits.max_requests and served >= own_requests(limits.max_requests, jitter, roll):
        return f"it has served {served} requests (max_requests {limits.max_requests})"
    at = next_look(limits, started_at=started_at, jitter=jitter, roll=roll)
    if at is not None and now >= at:
        return f"it is {now - started_at:.0f} s old (max_age {limits.max_age:.0f} s)"
    return None


def next_look(limits: Limits, *, started_at: float, jitter: float, roll: float) -> float | None:
    """When a worker reaches its age, if nothing else happens before; ``None`` if it never does.

    The other limits are reached by what is noticed anyway: a request's end, a look at its memory.
    """
    if not limits.max_age:
        return None
    return started_at + limits.max_age * (1.0 - jitter * roll)


def own_requests(max_requests: int, jitter: float, roll: float) -> int:
    """A worker's own limit of requests, at least one."""
    return max(1, round(max_requests * (1.0 - jitter * roll)))


def _mebibytes(size: int) -> str:
    return f"{size / 2**20:.0f} MiB"
