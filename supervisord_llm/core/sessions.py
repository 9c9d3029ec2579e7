"""Which worker holds the context of which named session.

A context that a session has left behind, because its slot was out of service when the session went
on elsewhere, is still in that worker and still takes a place there. So a session may have several
placements; it is at the one that was used last. An old one is not wrong either: a worker compares
the tokens that it holds with those of the prompt, and an earlier part of the conversation is a warm
start as far as it goes. A reset or a close has to reach all of them.

There are never more placements than the workers hold contexts.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from supervisord_llm.core.words import SlotName

SessionId = str


class Placement(msgspec.Struct, frozen=True):
    """A worker holds the context of a session."""

    session: SessionId
    slot: SlotName
    generation: int
    used_at: float
    """When the session was last used there: a request was given to it, or ended."""


class State(msgspec.Struct, frozen=True):
    """All placements of a pool, in the order of their last use."""

    placements: tuple[Placement, ...] = ()


def place(state: State, session: SessionId) -> Placement | None:
    """Where a session is."""
    return next((each for each in reversed(state.placements) if each.session == session), None)


def places(state: State, session: SessionId) -> list[Placement]:
    """Everywhere that something of a session is left; the last is where it is."""
    return [each for each in state.placements if each.session == session]


def count(state: State, slot: SlotName) -> int:
    """How many sessions the worker of a slot holds."""
    return sum(each.slot == slot for each in state.placements)


def total(state: State) -> int:
    """How many sessions there are."""
    return len({each.session for each in state.placements})


def used(state: State, session: SessionId, slot: SlotName, generation: int, now: float) -> State:
    """A session is used on a slot.

    What an earlier generation of the slot held is gone with it.
    """
    others = tuple(
        each
        for each in state.placements
        if each.slot != slot or (each.generation == generation and each.session != session)
    )
    return State((*others, Placement(session, slot, generation, now)))


def dropped(state: State, slot: SlotName) -> State:
    """The worker of a slot is gone, and with it what it held."""
    return State(tuple(each for each in state.placements if each.slot != slot))


def closed(state: State, session: SessionId, slot: SlotName | None = None) -> State:
    """The worker of a slot, or every worker, holds a session no more."""
    return State(
        tuple(
            each
            for each in state.placements
            if each.session != session or slot not in {None, each.slot}
        )
    )


def victim(
    state: State,
    slot: SlotName,
    session: SessionId,
    capacity: int,
    busy: Collection[SessionId] = (),
) -> SessionId | None:
    """Which session a slot's worker must close before this one can come; ``None`` for none.

    It is the one that has not been used for longest. There is none to close if the worker holds the
    session already, has room, or has nothing but busy ones; in the last case it will refuse.

    Args:
        state: where everything is.
        slot: where the session is to go.
        session: the session that is to come.
        capacity: how many named sessions the worker can hold.
        busy: the sessions that have something on a worker or are waited for.
    """
    held = [each.session for each in state.placements if each.slot == slot]
    if session in held or len(held) < capacity:
        return None
    return next((each for each in held if each not in busy), None)


def expired(
    state: State, ttl: float, now: float, busy: Collection[SessionId] = ()
) -> list[Placement]:
    """What has not been used for ``ttl`` seconds and is to be closed, longest unused first."""
    return [
        each for each in state.placements if now >= each.used_at + ttl and each.session not in busy
    ]


def next_expiry(state: State, ttl: float, busy: Collection[SessionId] = ()) -> float | None:
    """When the next placement will not have been used for ``ttl`` seconds.

    A busy session is passed over; it is used once more when it ends.
    """
    return min(
        (each.used_at + ttl for each in state.placements if each.session not in busy), default=None
    )
