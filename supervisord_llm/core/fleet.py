"""Which slots a pool has, and what each is to do next: scaling, standby, and change without loss.

The planner is level-triggered. It is shown every slot as it is and what is wanted, and says what to
do now; it remembers nothing, so it does not matter which event led here, how many were missed, or
how often it is asked. What it says is done at once, and seen in the slots when it is asked again.

A worker that serves is *outdated* when the pool's settings are newer than it or when it has reached
a limit of its own. With ``surge`` one slot more is made, a *surge* slot that inherits the place of
the outdated one, and only when it serves does the old one drain and leave. If it fails before that
it is given up, and the old one keeps serving until the next reload. With ``restart`` the old one is
drained and started anew in its place; if that parks, the others keep serving. Either way one at a
time, and a slot that does not serve has nothing to lose and is started anew at once.

    outdated ── Add, Start ──► surge loads ──ready──► Leave(old) ── gone ──► Remove(old)
                                    └───── fails ───► KeepOld, Leave(surge)

Of a pool with standby slots exactly ``workers`` are active; the others are as warm and take no
work. That is decided anew with each move, so a standby slot takes over in the turn in which an
active one stops serving, and before a planned change takes one away.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Literal

import msgspec

from supervisord_llm.core.words import PlannedReason, SlotState

SERVING = frozenset({SlotState.READY, SlotState.BUSY, SlotState.CANCELLING})
"""The states in which a slot serves: a cancellation within its grace is normal service."""

_FAILED = frozenset({SlotState.QUARANTINED, SlotState.BACKOFF, SlotState.PARKED})
_DOWN = frozenset({SlotState.STOPPED, SlotState.PARKED})
_LEAST_USEFUL = (
    frozenset({SlotState.STOPPED, SlotState.PARKED, SlotState.BACKOFF}),
    frozenset({SlotState.DRAINING, SlotState.QUARANTINED}),
    frozenset({SlotState.STARTING}),
)


class SlotView(msgspec.Struct, frozen=True, kw_only=True):
    """What there is to know of a slot."""

    index: int
    state: SlotState
    revision: int
    """Of the settings that its worker was started with; once that worker will not serve any more,
    of those that the next one will be started with."""
    in_flight: int = 0
    active: bool = True
    """Whether it may take work; not if it stands by. A new slot is active."""
    stopping: bool = False
    """Whether it will be stopped once its worker is gone, see `slot.Next.STOP`."""
    leaving: bool = False
    """Whether it is to be removed once it is down."""
    held: bool = False
    """Whether an operator stopped it, so that it stays down until an operator resumes it."""
    replaces: int | None = None
    """The slot in whose stead it was made; of no slot any more once that one leaves."""
    recycle: bool = False
    """Whether its worker has reached a limit, see `recycling`; of no account once it is on its way
    out."""
    kept: int | None = None
    """The wanted revision at the time when its replacement failed: until there is another, it is
    not replaced again, though it may have reached a limit."""


class Want(msgspec.Struct, frozen=True, kw_only=True):
    """What the pool is to be."""

    workers: int
    standby: int = 0
    revision: int
    """Of the settings; each reload makes it one more, whether or not the settings changed."""
    reload: Literal["surge", "restart"] = "surge"
    loaded: bool = True
    """Whether there are to be workers at all; not while its model is unloaded or it is drained."""
    unload_reason: PlannedReason = PlannedReason.IDLE

    @property
    def slots(self) -> int:
        """How many slots there are to be."""
        return self.workers + self.standby


class Add(msgspec.Struct, frozen=True):
    """Make a stopped slot with this index and the newest settings.

    ``like`` is the slot that it replaces, whose place it inherits.
    """

    index: int
    like: int | None = None


class Start(msgspec.Struct, frozen=True):
    """Bring a stopped slot up, or take back that it is to be stopped."""

    index: int


class Stop(msgspec.Struct, frozen=True):
    """Drain it; it stays as a stopped slot."""

    index: int
    reason: PlannedReason


class Leave(msgspec.Struct, frozen=True):
    """Drain it, then remove it; whichever slot replaces it now replaces nobody."""

    index: int
    reason: PlannedReason


class Remove(msgspec.Struct, frozen=True):
    """It is down and to leave: forget it."""

    index: int


class Replace(msgspec.Struct, frozen=True):
    """Give it the newest settings, drain it and start the next generation in its place."""

    index: int
    reason: PlannedReason


class Update(msgspec.Struct, frozen=True):
    """Give it the newest settings for its next generation; nothing starts or ends by that."""

    index: int


class Activate(msgspec.Struct, frozen=True):
    """It may take work from now on."""

    index: int


class Rest(msgspec.Struct, frozen=True):
    """It stands by: it finishes what it has and takes no new work."""

    index: int


class KeepOld(msgspec.Struct, frozen=True):
    """Note as ``kept`` of slot ``index`` for which revision its replacement ``failed``.

    That is the surge slot, or with ``restart`` another slot that was replaced before.
    """

    index: int
    failed: int


Action = Add | Start | Stop | Leave | Remove | Replace | Update | Activate | Rest | KeepOld


def outdated(view: SlotView, want: Want) -> bool:
    """Whether a slot's worker, or its next one, is to be replaced."""
    if view.kept == want.revision:
        return False
    if view.revision < want.revision:
        return True
    return view.recycle and view.state in SERVING


def in_progress(slots: Sequence[SlotView], want: Want) -> bool:
    """Whether a planned change is still under way, for an operator who waits for its end."""
    changing = any(view.leaving or outdated(view, want) for view in slots)
    return changing or _surge_among(slots) is not None


def plan(slots: Sequence[SlotView], want: Want) -> tuple[Action, ...]:
    """What to do now, in this order; nothing if the pool is as wanted or on its way there.

    To be asked again until it says nothing, since one thing that is done may lead to the next.
    """
    return _Planner(slots, want).plan()


class _Planner:
    """One planning: the slots that are still in question, and what was decided so far."""

    def __init__(self, slots: Sequence[SlotView], want: Want) -> None:
        self._slots = sorted(slots, key=lambda view: view.index)
        self._want = want
        self._actions: list[Action] = []

    def plan(self) -> tuple[Action, ...]:
        pair = self._surge()
        self._see_leavers_out()
        self._settle_surge()
        self._shrink()
        if self._want.loaded:
            for view in self._members():
                self._bring_up(view, waits=pair is not None and view is pair[1])
            self._grow()
            self._replace_one()
        else:
            for view in self._members():
                self._take_down(view)
        # First, so that whoever takes over has done so when its predecessor stops taking work.
        return (*self._choose_active(), *self._actions)

    def _members(self) -> list[SlotView]:
        """The slots that stay."""
        left = {action.index for action in self._actions if isinstance(action, Leave)}
        return [view for view in self._slots if not view.leaving and view.index not in left]

    def _surge(self) -> tuple[SlotView, SlotView] | None:
        """The slot that is to replace another one, and the one that waits for it."""
        return _surge_among(self._members())

    def _leave(self, view: SlotView, reason: PlannedReason) -> None:
        self._actions.append(Leave(view.index, reason))

    def _reason(self, view: SlotView) -> PlannedReason:
        return PlannedReason.RECYCLE if self._is_newest(view) else PlannedReason.RELOAD

    # One thing after the other ------------------------------------------------

    def _see_leavers_out(self) -> None:
        for view in self._slots:
            if view.leaving and view.state in _DOWN:
                self._actions.append(Remove(view.index))
            elif view.leaving and not view.stopping:
                # It was resumed since, but has no place to come back to.
                self._leave(view, PlannedReason.SCALE_DOWN)

    def _settle_surge(self) -> None:
        pair = self._surge()
        if pair is None:
            return
        surge, old = pair
        reason = self._reason(old)
        if not self._want.loaded:
            self._leave(surge, self._want.unload_reason)
        elif old.held:
            self._leave(surge, reason)
        elif surge.state in SERVING:
            self._leave(old, reason)
        elif outdated(surge, self._want) or not outdated(old, self._want):
            self._leave(surge, reason)
        elif surge.held or surge.state in _FAILED:
            self._actions.append(KeepOld(old.index, surge.index))
            self._leave(surge, reason)

    def _shrink(self) -> None:
        """Take away the least useful slots that are too many."""
        surge, old = self._surge() or (None, None)
        lasting = [view for view in self._members() if view is not surge]
        excess = max(0, len(lasting) - self._want.slots)
        for view in sorted(lasting, key=self._usefulness)[:excess]:
            if surge is not None and view is old:
                self._leave(surge, PlannedReason.SCALE_DOWN)
            self._leave(view, PlannedReason.SCALE_DOWN)

    def _usefulness(self, view: SlotView) -> tuple[int, bool, bool, int]:
        for rank, states in enumerate(_LEAST_USEFUL):
            if view.state in states:
                return rank, False, False, -view.index
        current = not outdated(view, self._want)
        return len(_LEAST_USEFUL), view.active, current, -view.index

    def _bring_up(self, view: SlotView, *, waits: bool) -> None:
        """Start what is down, and start anew what is outdated and does not serve.

        Not what waits for a surge slot: should that fail, the old settings are what is left.
        """
        stale = outdated(view, self._want) and not waits
        if view.held:
            self._update_stopped(view)
        elif view.state is SlotState.STOPPED:
            self._update_stopped(view)
            self._actions.append(Start(view.index))
        elif view.stopping:
            self._actions.append(Start(view.index))
        elif stale and view.state is SlotState.DRAINING:
            self._actions.append(Update(view.index))
        elif stale and view.state not in SERVING:
            self._actions.append(Replace(view.index, self._reason(view)))

    def _take_down(self, view: SlotView) -> None:
        if view.state is SlotState.STOPPED:
            self._update_stopped(view)
        elif view.state is SlotState.PARKED:
            if outdated(view, self._want):
                # It was parked for settings that are no more.
                self._actions.append(Stop(view.index, PlannedReason.RELOAD))
        elif not view.stopping:
            self._actions.append(Stop(view.index, self._want.unload_reason))

    def _update_stopped(self, view: SlotView) -> None:
        if view.state is SlotState.STOPPED and outdated(view, self._want):
            self._actions.append(Update(view.index))

    def _grow(self) -> None:
        lasting = len(self._members()) - (self._surge() is not None)
        for _ in range(self._want.slots - lasting):
            self._add()

    def _add(self, like: int | None = None) -> None:
        taken = {view.index for view in self._slots}
        taken |= {action.index for action in self._actions if isinstance(action, Add)}
        index = next(index for index in count() if index not in taken)
        self._actions += [Add(index, like), Start(index)]

    def _replace_one(self) -> None:
        """Begin to replace one of the slots that serve although they are outdated."""
        members = self._members()
        serving = [view for view in members if view.state in SERVING]
        due = [view for view in serving if outdated(view, self._want)]
        # Whoever still leaves occupies what a surge slot needs.
        if not due or self._surge() is not None or len(members) < len(self._slots):
            return
        chosen = min(due, key=lambda view: (view.active, view.index))
        # A parked slot that is outdated is about to be tried again.
        parked = [view for view in members if _is_parked(view) and not outdated(view, self._want)]
        failed = [view for view in parked if self._is_newest(view)]
        if self._want.reload == "surge":
            self._add(like=chosen.index)
        elif failed and not self._is_newest(chosen):
            # What parked one with these settings would take the others down as well.
            self._actions.append(KeepOld(chosen.index, failed[0].index))
        elif all(view in serving or view.held or view in parked for view in members):
            self._actions.append(Replace(chosen.index, self._reason(chosen)))

    def _is_newest(self, view: SlotView) -> bool:
        return view.revision == self._want.revision

    # Standby ------------------------------------------------------------------

    def _choose_active(self) -> list[Action]:
        """Let exactly ``workers`` slots take work, and every one while fewer serve than that."""
        replaced = {action.index for action in self._actions if isinstance(action, Replace)}
        members = [view for view in self._members() if not view.held and view.index not in replaced]
        serving = [view for view in members if view.state in SERVING]
        if len(serving) < self._want.workers:
            chosen = members
        else:
            chosen = sorted(serving, key=self._reluctance)[: self._want.workers]
        active = {view.index for view in chosen}
        activated: list[Action] = [
            Activate(view.index) for view in members if view.index in active and not view.active
        ]
        rested: list[Action] = [
            Rest(view.index) for view in members if view.active and view.index not in active
        ]
        return [*activated, *rested]

    def _reluctance(self, view: SlotView) -> tuple[bool, bool, bool]:
        """Who takes work first: who does already, has some, and will stay longest."""
        return not view.active, view.in_flight == 0, outdated(view, self._want)


def _surge_among(slots: Sequence[SlotView]) -> tuple[SlotView, SlotView] | None:
    by_index = {view.index: view for view in slots if not view.leaving}
    for view in by_index.values():
        if view.replaces is not None and (old := by_index.get(view.replaces)) is not None:
            return view, old
    return None


def _is_parked(view: SlotView) -> bool:
    return view.state is SlotState.PARKED
