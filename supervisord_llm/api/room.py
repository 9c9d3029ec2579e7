"""Who may be connected to a listener at once, and who makes room for a newcomer.

A listener that is full of connections without a request, forgotten ones or those of an attacker who
drips bytes into heads that never end, must stay usable. So such a one is closed for a newcomer, the
one that has been without a request for longest; refusing the newcomer was not taken, because then
the first to come could keep everybody else out. A connection with a request is left alone.
"""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class Room(Generic[T]):
    """The connections of one listener; O(1) for each of its methods."""

    def __init__(self, size: int) -> None:
        """Make room for ``size`` connections, at least one."""
        self._size = size
        self._busy: set[T] = set()
        self._idle: dict[T, None] = {}
        """In the order in which they became idle."""

    def __len__(self) -> int:
        return len(self._busy) + len(self._idle)

    def members(self) -> list[T]:
        """Everyone who is here."""
        return [*self._busy, *self._idle]

    def admit(self, newcomer: T) -> tuple[bool, T | None]:
        """Let a connection in, which has no request yet.

        Returns:
            Whether it is in, and who had to leave for it, if anybody had to; the caller closes that
            one, which is no member any more.
        """
        displaced: T | None = None
        if len(self) >= self._size:
            if not self._idle:
                return False, None
            displaced = next(iter(self._idle))
            del self._idle[displaced]
        self._idle[newcomer] = None
        return True, displaced

    def mark(self, member: T, *, idle: bool) -> None:
        """Note that a request of a connection has begun, or that its reply has ended.

        Of one that is no member, nothing is noted: it is being closed.
        """
        if idle and member in self._busy:
            self._busy.remove(member)
            self._idle[member] = None
        elif not idle and member in self._idle:
            del self._idle[member]
            self._busy.add(member)

    def leave(self, member: T) -> None:
        """Forget a connection; idempotent."""
        self._busy.discard(member)
        self._idle.pop(member, None)
