"""How soon it is worth trying again: the rate at which a pool is seen to serve.

What is measured is the time between the ends of requests while there was something to do; time
without work says nothing of how fast it goes, and would make the first minute after a quiet night
look slow. A worker that has stopped ending requests shows as well: the time since the last end
counts, though nothing has ended it yet.
"""

from __future__ import annotations

import math

import msgspec

_KEPT = 32
"""How many ends are remembered."""
_MEMORY_SECONDS = 300.0
"""How long an end is remembered."""
_LEAST_SECONDS = 1
_MOST_SECONDS = 300
_MOST_UNSEEN_SECONDS = 5
"""The most that is told before anything has been seen."""


class End(msgspec.Struct, frozen=True):
    """A request left its worker."""

    at: float
    took: float
    """Seconds since the end before it, or since there was something to do."""


class State(msgspec.Struct, frozen=True):
    """What has been seen of a pool."""

    ends: tuple[End, ...] = ()
    """The last ones, oldest first."""
    since: float | None = None
    """The last end, or when there began to be something to do; ``None`` while there is nothing."""


def began(state: State, now: float) -> State:
    """A request was accepted; it matters only if there was none."""
    return msgspec.structs.replace(state, since=now) if state.since is None else state


def ended(state: State, now: float, *, left: int) -> State:
    """A request left its worker, by whatever end.

    Args:
        state: what has been seen.
        now: when it did.
        left: how many requests the pool still has, queued ones included.
    """
    took = 0.0 if state.since is None else now - state.since
    ends = (*_remembered(state, now), End(now, took))[-_KEPT:]
    return State(ends=ends, since=now if left else None)


def idle(state: State) -> State:
    """Nothing is left to do although nothing ended: what waited was withdrawn or given up."""
    return msgspec.structs.replace(state, since=None)


def retry_after(state: State, slots_starting_in: float | None, now: float) -> float:
    """How many seconds, whole ones from 1 to 300, until a full queue has a place again.

    A place is free as soon as one request ends. Before one has ended, the answer is between 1 and 5
    seconds, more the longer there has been something to do.

    Args:
        state: what has been seen.
        slots_starting_in: in how many seconds a slot comes into service, if none is; it is added.
        now: the time.
    """
    seconds = _between_ends(state, now) + max(0.0, slots_starting_in or 0.0)
    return float(min(_MOST_SECONDS, max(_LEAST_SECONDS, math.ceil(seconds))))


def _between_ends(state: State, now: float) -> float:
    open_for = 0.0 if state.since is None else now - state.since
    if not (ends := _remembered(state, now)):
        return min(_MOST_UNSEEN_SECONDS, open_for)
    total = sum(end.took for end in ends)
    mean = total / len(ends)
    # An end that is overdue is counted as if it came now; before that it says nothing.
    return mean if open_for <= mean else (total + open_for) / len(ends)


def _remembered(state: State, now: float) -> tuple[End, ...]:
    return tuple(end for end in state.ends if now - end.at < _MEMORY_SECONDS)
