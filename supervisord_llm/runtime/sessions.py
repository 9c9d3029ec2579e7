"""The named sessions of one pool: which worker holds which, and whose turn each is.

What is asked of a session happens in the order in which it was asked: generations and operations of
one session stand in one line, and only its head may go to a worker. A session is only a context
that a worker remembers, so losing it costs time and nothing else: where its worker is gone, the
next request begins cold somewhere else, and a worker that is full forgets the one that was used
least recently.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Literal

import trio

from supervisord_llm.core import sessions
from supervisord_llm.core.words import SlotName
from supervisord_llm.runtime.clock import Clock
from supervisord_llm.runtime.slot import Slot
from supervisord_llm.runtime.timers import Timers
from supervisord_llm.runtime.turn import Turn

Operation = Literal["close", "reset"]

_LOOK_AGAIN_SECONDS = 1.0
"""When an idle session is to be closed and its worker has something to do."""


class _Asked:
    """An operation that somebody waits for."""

    def __init__(self, operation: Operation, session_id: str) -> None:
        self.operation = operation
        self.session_id = session_id
        self.begun = False
        self.existed = False
        self.left: set[SlotName] = set()
        """The slots whose workers have not answered yet."""
        self.asking: set[SlotName] = set()
        self.done = trio.Event()


class SessionDesk:
    """Sessions by name; methods that do not wait are to be called inside a turn."""

    def __init__(
        self,
        ttl: float,
        slots: Callable[[], Sequence[Slot]],
        *,
        clock: Clock,
        timers: Timers,
        turn: Turn,
        on_offer: Callable[[], None],
    ) -> None:
        """No session exists yet.

        Args:
            ttl: seconds after which a session that nobody used is closed.
            slots: the pool's slots.
            clock: for the times of use.
            timers: where the expiry of idle sessions is armed.
            turn: what an expiry happens in.
            on_offer: called when something that waited for its session may go.
        """
        self._ttl = ttl
        self._slots = slots
        self._clock = clock
        self._timers = timers
        self._turn = turn
        self._on_offer = on_offer
        self._held = sessions.State()
        self._lines: dict[str, deque[object]] = {}
        self._asked: list[_Asked] = []
        self._in_use: set[str] = set()
        """Those of which the head of the line is on a worker."""
        self._closing: set[tuple[str, SlotName]] = set()
        """What a worker is told to forget although nobody asked for it."""

    def keep_for(self, ttl: float) -> None:
        """Close from now on what nobody used for so many seconds."""
        self._ttl = ttl
        self._arm(self._clock.now())

    @property
    def count(self) -> int:
        """How many sessions the pool's workers hold."""
        return sessions.total(self._held)

    def count_of(self, slot: SlotName) -> int:
        """How many contexts a slot's worker holds."""
        return sessions.count(self._held, slot)

    def slot_of(self, session_id: str) -> SlotName | None:
        """The slot whose worker holds a session."""
        placement = sessions.place(self._held, session_id)
        return None if placement is None else placement.slot

    # Whose turn it is ---------------------------------------------------------

    def line_up(self, session_id: str, who: object) -> None:
        """Join the line of a session."""
        self._lines.setdefault(session_id, deque()).append(who)

    def is_next(self, session_id: str, who: object) -> bool:
        """Whether it is this one's turn, and nothing of the session is on a worker."""
        return self._lines[session_id][0] == who and session_id not in self._busy()

    def leave(self, session_id: str, who: object) -> None:
        """Leave the line, from whatever place."""
        line = self._lines[session_id]
        first = line[0] == who
        line.remove(who)
        if not line:
            del self._lines[session_id]
        if first:
            self.let_go(session_id)
        self._on_offer()

    def let_go(self, session_id: str) -> None:
        """Nothing of a session is on a worker any more."""
        self._in_use.discard(session_id)
        if (placement := sessions.place(self._held, session_id)) is not None:
            now = self._clock.now()
            self._held = sessions.used(
                self._held, session_id, placement.slot, placement.generation, now
            )
            self._arm(now)

    def _busy(self) -> set[str]:
        return self._in_use | {session for session, _ in self._closing}

    # Who holds what -----------------------------------------------------------

    def used(self, session_id: str, slot: Slot) -> None:
        """A request of a session goes to a slot."""
        now = self._clock.now()
        self._held = sessions.used(self._held, session_id, slot.name, slot.generation, now)
        self._in_use.add(session_id)

    def refused(self, session_id: str, slot: SlotName) -> None:
        """A worker did not take a session after all: the next request may go anywhere."""
        self._held = sessions.closed(self._held, session_id, slot)

    def lost(self, slot: SlotName) -> None:
        """A worker is gone, and its sessions with it."""
        self._held = sessions.dropped(self._held, slot)
        for asked in list(self._asked):
            asked.left.discard(slot)
            if asked.begun and not asked.left:
                self._forget(asked)

    def has_room(self, session_id: str, slot: Slot) -> bool:
        """Whether a slot's worker can take a session now; if not, one that is idle is closed."""
        # It has nothing to do, so nothing that it holds is in use there; of a session that goes on
        # elsewhere, what it left here may go.
        victim = sessions.victim(self._held, slot.name, session_id, slot.max_sessions)
        if victim is None:
            return True
        if slot.free:
            self._close(slot, victim)
        return False

    def _close(self, slot: Slot, session_id: str) -> None:
        self._closing.add((session_id, slot.name))

        def closed() -> None:
            self._closing.discard((session_id, slot.name))
            self._held = sessions.closed(self._held, session_id, slot.name)
            self._on_offer()
            self._arm(self._clock.now())  # the next one that is idle there, if there is time

        slot.operate("close", session_id, closed)

    def _arm(self, now: float) -> None:
        at = sessions.next_expiry(self._held, self._ttl, {*self._lines, *self._busy()})
        if at is not None:
            self._timers.arm(self, max(at, now), lambda _: self._turn(self._expire))

    def _expire(self) -> None:
        """Close what nobody used for long, on workers that are free; others are looked at later."""
        now = self._clock.now()
        free = {slot.name: slot for slot in self._slots() if slot.free}
        busy = {*self._lines, *self._busy()}
        for placement in sessions.expired(self._held, self._ttl, now, busy):
            if (slot := free.pop(placement.slot, None)) is not None:
                self._close(slot, placement.session)
        self._arm(now + _LOOK_AGAIN_SECONDS)

    # Operations ---------------------------------------------------------------

    async def ask(self, operation: Operation, session_id: str) -> bool:
        """Let the workers that hold a session close or reset it, after what was asked before.

        Returns:
            Whether there was such a session; if not, nothing was to be done.
        """
        asked = _Asked(operation, session_id)
        self._turn(lambda: self._join(asked))
        try:
            await asked.done.wait()
        finally:
            if not asked.begun and asked in self._asked:
                self._turn(lambda: self._forget(asked))
        return asked.existed

    def _join(self, asked: _Asked) -> None:
        self.line_up(asked.session_id, asked)
        self._asked.append(asked)
        self._on_offer()

    def work(self) -> None:
        """Begin the operations whose turn it is, each where its worker is free."""
        for asked in list(self._asked):
            if not asked.begun:
                if not self.is_next(asked.session_id, asked):
                    continue
                asked.left = {each.slot for each in sessions.places(self._held, asked.session_id)}
                asked.begun, asked.existed = True, bool(asked.left)
                if not asked.left:
                    self._forget(asked)
                    continue
                self._in_use.add(asked.session_id)
            for slot in self._slots():
                if slot.name in asked.left - asked.asking and slot.free:
                    asked.asking.add(slot.name)
                    slot.operate(asked.operation, asked.session_id, self._ended(asked, slot.name))

    def _ended(self, asked: _Asked, slot: SlotName) -> Callable[[], None]:
        def ended() -> None:
            if asked.operation == "close":
                self._held = sessions.closed(self._held, asked.session_id, slot)
            asked.left.discard(slot)
            if not asked.left and asked in self._asked:
                self._forget(asked)

        return ended

    def _forget(self, asked: _Asked) -> None:
        self._asked.remove(asked)
        asked.done.set()
        self.leave(asked.session_id, asked)
