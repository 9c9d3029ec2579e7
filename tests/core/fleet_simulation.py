"""A pool's slots without processes: does what the planner says, with the real machine of a slot.

This is also how the actions are meant, as far as the core can say it: what each one changes of a
slot's facts, and which events it is to the slot.
"""

from __future__ import annotations

import msgspec

from supervisord_llm.core import fleet, restart, slot
from supervisord_llm.core.effects import Elapsed
from supervisord_llm.core.fleet import SERVING, Action, SlotView, Want
from supervisord_llm.core.slot import Next
from supervisord_llm.core.words import PlannedReason, QuarantineReason, SlotState

POLICY = restart.Policy(
    backoff_initial=1.0,
    backoff_max=8.0,
    jitter=0.0,
    healthy_after=1e9,
    max_restarts=3,
    restart_window=1e9,
)
ROUNDS = 20
"""After so many plans without an event in between, the planner does not know what it wants."""


class Slot:
    """A slot's machine, and what the pool notes of it."""

    def __init__(self, index: int, revision: int, like: int | None = None) -> None:
        self.index = index
        self.machine = slot.State(policy=POLICY)
        self.settings = revision
        """The revision of those that the next worker is started with."""
        self.worker = revision
        """The revision of those that the present worker was started with."""
        self.replaces = like
        self.active = True
        self.leaving = self.held = self.recycle = False
        self.kept: int | None = None

    @property
    def serving(self) -> bool:
        """Whether it serves and may go on to."""
        return self.machine.kind in SERVING

    @property
    def view(self) -> SlotView:
        """What the planner is shown."""
        return SlotView(
            index=self.index,
            state=self.machine.kind,
            revision=self.worker if self.serving else self.settings,
            in_flight=self.machine.in_flight,
            active=self.active,
            stopping=self.machine.next is Next.STOP,
            leaving=self.leaving,
            held=self.held,
            replaces=self.replaces,
            recycle=self.recycle,
            kept=self.kept,
        )


class Pool:
    """Slots, what is wanted of them, and all that was done."""

    def __init__(self, want: Want) -> None:
        self.want = want
        self.now = 0.0
        self.slots: dict[int, Slot] = {}
        self.done: list[Action] = []
        """What the last `settle` did."""
        self.plan()

    # Planning -----------------------------------------------------------------

    def plan(self) -> None:
        """Do what the planner says until it says nothing."""
        self.done = []
        for _ in range(ROUNDS):
            actions = fleet.plan([each.view for each in self.slots.values()], self.want)
            if not actions:
                return
            for action in actions:
                self.check(action)
                self.perform(action)
            self.done += actions
        raise AssertionError(f"it never comes to rest: {self.done[-10:]}")

    def check(self, action: Action) -> None:
        """Whether an action is one that may be taken; for a test to say."""

    def perform(self, action: Action) -> None:
        """Do one thing."""
        match action:
            case fleet.Add(index, like):
                assert index not in self.slots
                self.slots[index] = Slot(index, self.want.revision, like)
            case fleet.Remove(index):
                removed = self.slots.pop(index)
                assert removed.machine.kind in (SlotState.STOPPED, SlotState.PARKED)
            case fleet.Start(index):
                self.happens(index, slot.StartAsked(self.now))
            case fleet.Stop(index, reason):
                self.drain(index, Next.STOP, reason)
            case fleet.Leave(index, reason):
                self.slots[index].leaving = True
                for each in self.slots.values():
                    each.replaces = None if each.replaces == index else each.replaces
                self.drain(index, Next.STOP, reason)
            case fleet.Replace(index, reason):
                self.slots[index].settings = self.want.revision
                self.drain(index, Next.START, reason)
            case fleet.Update(index):
                self.slots[index].settings = self.want.revision
            case fleet.Activate(index):
                self.slots[index].active = True
            case fleet.Rest(index):
                self.slots[index].active = False
            case fleet.KeepOld(index):
                self.slots[index].kept = self.want.revision

    def drain(self, index: int, then: Next, reason: PlannedReason) -> None:
        """Ask a slot to finish."""
        self.happens(index, slot.DrainAsked(self.now, then, reason))

    def happens(self, index: int, event: object) -> None:
        """Show a slot an event."""
        each = self.slots[index]
        each.machine, effects = slot.step(each.machine, event)
        if any(isinstance(effect, slot.Spawn) for effect in effects):
            each.worker, each.recycle = each.settings, False

    # What the world does, each followed by a plan -----------------------------

    def wish(self, **changes: object) -> None:
        """Want something else."""
        self.want = msgspec.structs.replace(self.want, **changes)
        self.plan()

    def reload(self) -> None:
        """Want every worker replaced."""
        self.wish(revision=self.want.revision + 1)

    def ready(self, *indexes: int) -> None:
        """The models of these slots are loaded."""
        for index in indexes:
            self.happens(index, slot.ReadyHeard(self.now, 2))
            self.plan()

    def takes(self, index: int) -> None:
        """A request goes to a slot."""
        assert self.slots[index].active
        self.happens(index, slot.Assigned(self.now))
        self.plan()

    def ends(self, index: int) -> None:
        """A request ends."""
        self.happens(index, slot.Released(self.now, was_cancelling=False))
        self.plan()

    def fails(self, index: int) -> None:
        """A slot's worker is found unfit."""
        self.happens(index, slot.Condemned(self.now, QuarantineReason.TOKEN_STALL))
        self.plan()

    def gone(self, index: int) -> None:
        """A slot's worker, on its way out, is reaped."""
        self.happens(index, slot.Gone(self.now, 0.5))
        self.plan()

    def wakes(self, index: int) -> None:
        """A slot's backoff ends."""
        self.now = max(self.now, self.slots[index].machine.next_start_at or self.now)
        self.happens(index, Elapsed(slot.Timer.BACKOFF, SlotState.BACKOFF, self.now))
        self.plan()

    def hold(self, index: int) -> None:
        """An operator drains a slot."""
        self.slots[index].held = True
        self.drain(index, Next.STOP, PlannedReason.DRAIN)
        self.plan()

    def resume(self, index: int) -> None:
        """An operator brings a slot back."""
        self.slots[index].held = False
        self.happens(index, slot.StartAsked(self.now))
        self.plan()

    def recycle(self, index: int) -> None:
        """A slot's worker has reached a limit."""
        self.slots[index].recycle = True
        self.plan()

    # Facts --------------------------------------------------------------------

    @property
    def staying(self) -> list[Slot]:
        """The slots that are not about to go."""
        return [each for each in self.slots.values() if not each.leaving]

    @property
    def serving(self) -> int:
        """How many slots serve."""
        return sum(each.serving for each in self.slots.values())

    def states(self) -> dict[int, str]:
        """Every slot's state by its index."""
        return {index: str(each.machine.kind) for index, each in sorted(self.slots.items())}

    def active(self) -> list[int]:
        """The slots that take work."""
        return sorted(each.index for each in self.staying if each.active and each.serving)


def pool(workers: int, *, ready: bool = True, **wants: object) -> Pool:
    """A pool of so many workers, all of which serve."""
    made = Pool(Want(**{"workers": workers, "revision": 1, **wants}))  # type: ignore[arg-type]
    if ready:
        made.ready(*made.slots)
    return made


def park(of: Pool, index: int) -> None:
    """Let a slot fail until it is parked."""
    while of.states()[index] != "parked":
        if of.states()[index] == "backoff":
            of.wakes(index)
        of.fails(index)
        of.gone(index)


def back_off(of: Pool, index: int) -> None:
    """Let a slot fail until it waits for its next start."""
    while of.states()[index] != "backoff":
        of.fails(index)
        of.gone(index)
