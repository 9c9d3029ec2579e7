"""The slots of one pool over time: performs what `supervisord_llm.core.fleet` plans.

The plan is made anew after each move of a slot and each wish of an operator, from what there is and
what there is to be; so no wish is lost when several come at once, and the last one wins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import assert_never

import trio

from supervisord_llm import events
from supervisord_llm.config.launch import SlotLaunch, choose_place
from supervisord_llm.config.schema import PoolConfig
from supervisord_llm.core import fleet
from supervisord_llm.core.words import PlannedReason, PoolName
from supervisord_llm.runtime.life import Tools
from supervisord_llm.runtime.slot import Slot
from supervisord_llm.runtime.slot_driver import Hooks

Launches = Callable[[int, int], SlotLaunch]
"""From a slot's index, and the place whose cores it has, to how it is started.

Raises ``ValueError`` where the configuration has no such place.
"""


class Fleet:
    """A pool's slots, and how many of them there are to be."""

    def __init__(
        self, pool: PoolName, config: PoolConfig, launches: Launches, tools: Tools, hooks: Hooks
    ) -> None:
        """Make the pool's first slots; nothing is started.

        Raises:
            ValueError: if a slot cannot be worked out.
        """
        self.config = config
        self.launches = launches
        self.workers = config.workers
        self.loaded = False
        self.unload_reason = PlannedReason.IDLE
        self.revision = 0
        self.slots: list[Slot] = []
        self._pool = pool
        self._tools = tools
        self._hooks = hooks
        self._stopping = False
        self._nursery: trio.Nursery | None = None
        self._due = False
        for index in range(config.workers + config.standby):
            self._make(index, index, None).active = index < config.workers

    def open(self, nursery: trio.Nursery) -> None:
        """Let the slots run in the pool's nursery."""
        self._nursery = nursery
        places = {slot.name: slot.launch.place for slot in self.slots}
        self._tools.records.hand_down(self._pool, places)
        for slot in self.slots:
            slot.open(nursery)
            slot.park_as_before()
        self.look()

    def _make(self, index: int, place: int, replaces: int | None) -> Slot:
        slot = Slot(self.launches(index, place), self.config, self._tools, self._hooks)
        slot.revision = self.revision
        slot.replaces = replaces
        slot.wanted = self.loaded
        self.slots.append(slot)
        self.slots.sort(key=lambda each: each.index)
        slot.tell.added()
        if self._nursery is not None:
            slot.open(self._nursery)
        return slot

    # Wishes -------------------------------------------------------------------

    def scale(self, workers: int) -> None:
        """Have so many slots, besides those on standby.

        Raises:
            ValueError: if the configuration has no place for so many.
        """
        for place in range(workers + self.config.standby):
            self.launches(place, place)
        self.workers = workers
        self.look()

    def reconfigure(self, config: PoolConfig, launches: Launches) -> None:
        """Have these settings: the live ones now, the others with each slot's next worker.

        `look` afterwards, or `renew` them all. An operator's number of slots holds unless the file
        says another than before, or has no place any more for so many.
        """
        if config.workers != self.config.workers or not _has_places(
            launches, self.workers + config.standby
        ):
            self.workers = config.workers
        self.config, self.launches = config, launches
        for slot in self.slots:
            slot.restart_by(config.restart)

    def renew(self) -> None:
        """Replace every worker, one after the other."""
        self.revision += 1
        self.look()

    def load(self) -> None:
        """Have workers."""
        self._mark(loaded=True)
        self.look()

    def unload(self, reason: PlannedReason) -> None:
        """Have none."""
        self.unload_reason = reason
        self._mark(loaded=False)
        self.look()

    def _mark(self, *, loaded: bool) -> None:
        self.loaded = loaded
        for slot in self.slots:
            slot.wanted = loaded

    def close(self) -> None:
        """Forget what is known of the slots of a pool that is no more."""
        for slot in self.slots:
            slot.tell.removed()
            self._tools.records.unpark(slot.name)

    def stop(self) -> None:
        """Stop everything for good; no plan is made any more."""
        self._stopping = True
        for slot in self.slots:
            slot.stop_for_good()

    @property
    def changing(self) -> bool:
        """Whether a planned change is under way."""
        return self._due or fleet.in_progress(self._views(), self._want())

    # The plan -----------------------------------------------------------------

    def look(self) -> None:
        """Make and perform plans, once what is being done is done."""
        if not self._due:
            self._due = True
            self._tools.turn(self._perform_plan)

    def _perform_plan(self) -> None:
        self._due = False
        if self._stopping or self._nursery is None:
            return
        actions = fleet.plan(self._views(), self._want())
        for action in actions:
            self._perform(action)
        if actions:
            self.look()  # what was done may lead to more
        else:
            self._tools.moves.unpark_all()

    def _want(self) -> fleet.Want:
        return fleet.Want(
            workers=self.workers,
            standby=self.config.standby,
            revision=self.revision,
            reload=self.config.reload,
            loaded=self.loaded,
            unload_reason=self.unload_reason,
        )

    def _views(self) -> list[fleet.SlotView]:
        return [self._view(slot) for slot in self.slots]

    def _view(self, slot: Slot) -> fleet.SlotView:
        return fleet.SlotView(
            index=slot.index,
            state=slot.state,
            revision=slot.worker_revision if slot.serving else slot.revision,
            in_flight=slot.in_flight,
            active=slot.active,
            stopping=slot.stopping,
            leaving=slot.leaving,
            held=slot.held,
            replaces=slot.replaces,
            recycle=slot.recycle is not None,
            kept=self._kept_at(slot),
        )

    def _kept_at(self, slot: Slot) -> int | None:
        """For which revision a slot keeps what it has.

        That its worker could not be recycled says nothing of the next one, which has the newest
        settings as well; a worker of older settings is kept, and begun anew, until the next reload.
        """
        if slot.revision == self.revision and slot.kept_generation != slot.generation:
            return None
        return slot.kept_at

    def _perform(self, action: fleet.Action) -> None:
        match action:
            case fleet.Add(index, like):
                before = None if like is None else self._at(like).launch.place
                self._make(index, self._place(self.slots, before), like)
            case fleet.Start(index):
                self._at(index).start()
            case fleet.Stop(index, reason):
                self._at(index).stop(reason)
            case fleet.Leave(index, reason):
                self._leave(self._at(index), reason)
            case fleet.Remove(index):
                self._remove(self._at(index))
            case fleet.Replace(index, reason):
                self._adopt(self._at(index))
                self._at(index).replace(reason)
            case fleet.Update(index):
                self._adopt(self._at(index))
            case fleet.Activate(index):
                self._activate(self._at(index), active=True)
                self._tools.turn(self._hooks.on_offer)
            case fleet.Rest(index):
                self._activate(self._at(index), active=False)
            case fleet.KeepOld(index, failed):
                self._keep(self._at(index), self._at(failed))
            case _:
                assert_never(action)

    def _activate(self, slot: Slot, *, active: bool) -> None:
        slot.active = active
        if slot.serving:
            slot.tell.active(slot.generation, active=active)

    def _leave(self, slot: Slot, reason: PlannedReason) -> None:
        slot.leaving = True
        for other in self.slots:
            if other.replaces == slot.index:
                other.replaces = None
        slot.stop(reason)

    def _at(self, index: int) -> Slot:
        return next(slot for slot in self.slots if slot.index == index)

    def _adopt(self, slot: Slot) -> None:
        others = [each for each in self.slots if each is not slot]
        place = self._place(others, slot.launch.place)
        slot.adopt(self.launches(slot.index, place), self.config, self.revision)

    def _place(self, others: Sequence[Slot], like: int | None) -> int:
        """Whose cores and devices a slot has: nobody else's, or those of one that leaves.

        Or of the one that it replaces, whose place is ``like``.
        """
        place = choose_place(self.config, [each.launch.place for each in others], like)
        if place < self.config.slots:
            return place
        staying = [each.launch.place for each in others if not each.leaving]
        return choose_place(self.config, staying, like)

    def _remove(self, slot: Slot) -> None:
        self.slots.remove(slot)
        slot.close()
        slot.tell.removed()
        self._tools.records.unpark(slot.name)
        self._tools.turn(self._hooks.on_down)

    def _keep(self, old: Slot, failed: Slot) -> None:
        old.kept_at, old.kept_generation = self.revision, old.generation
        self._tools.publish(
            events.DaemonWarning(
                topic="reload",
                message=f"the replacement of {old.name} did not come into service "
                f"({failed.in_words()}); {old.name} keeps serving as it is",
                remedy="see what the replacement said in `llmctl events`, mend it, then "
                f"`llmctl reload {self._pool}`",
                pool=self._pool,
                worker=old.name,
            )
        )


def _has_places(launches: Launches, count: int) -> bool:
    """Whether the configuration can start so many slots."""
    try:
        for place in range(count):
            launches(place, place)
    except ValueError:
        return False
    return True
