"""Writes down which workers live and which slots are parked, for the daemon's next start.

A full disk costs a warning and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping

from supervisord_llm import events
from supervisord_llm.host.leftovers import WorkerRecords
from supervisord_llm.host.parking import ParkingRecord, ParkingRecords
from supervisord_llm.runtime.process import WorkerProcess
from supervisord_llm.runtime.request import Publish


def _pool_of(slot: str) -> str:
    return slot.rpartition(".")[0]


class RecordKeeper:
    """The slots' face of `supervisord_llm.host.leftovers` and `supervisord_llm.host.parking`."""

    def __init__(self, records: WorkerRecords, parking: ParkingRecords, publish: Publish) -> None:
        """Keep records in a state directory that is held by this daemon."""
        self._records = records
        self._parking = parking
        self._publish = publish
        found = parking.read_all()
        self._parked = dict(found.slots)
        for problem in found.problems:
            self._warn(None, problem)

    def remember(self, process: WorkerProcess) -> None:
        """Record a worker, and which processes are known to belong to it."""
        generation = process.generation
        try:
            self._records.write(
                slot=generation.slot,
                generation=generation.number,
                leader=process.facts,
                relatives=process.known,
                guardian=process.guardian,
            )
        except OSError as error:
            self._warn(generation.slot, f"cannot record {generation}: {error.strerror}")

    def forget(self, slot: str) -> None:
        """Nothing of a slot's worker is left."""
        try:
            self._records.forget(slot)
        except OSError as error:
            self._warn(slot, f"cannot remove the record of {slot}: {error.strerror}")

    def hand_down(self, pool: str, places: Mapping[str, int]) -> None:
        """Let a pool's slots inherit the records of those that had their places before.

        A slot that took another one's place, as by a reload, had another name. Of several records
        for a place the newest counts.
        """
        before = {name: each for name, each in self._parked.items() if _pool_of(name) == pool}
        after: dict[str, ParkingRecord] = {}
        for slot, place in places.items():
            found = [
                each
                for name, each in before.items()
                if (each.place == place if each.place is not None else name == slot)
            ]
            if found:
                after[slot] = max(found, key=lambda each: each.at)
        for name, record in before.items():
            if after.get(name) is not record and (
                name in places or record.place in places.values()
            ):
                self.unpark(name)
        for slot, record in after.items():
            if before.get(slot) is not record:
                self.park(slot, record)

    def parked(self, slot: str, digest: str) -> ParkingRecord | None:
        """How an earlier daemon left a slot parked; not if its launch is another one by now."""
        record = self._parked.get(slot)
        return record if record is not None and record.launch_digest == digest else None

    def park(self, slot: str, record: ParkingRecord) -> None:
        """A slot is parked."""
        self._parked[slot] = record
        try:
            self._parking.write(slot, record)
        except OSError as error:
            self._warn(slot, f"cannot record that {slot} is parked: {error.strerror}")

    def unpark(self, slot: str) -> None:
        """A slot is not parked any more, or is no slot any more."""
        if self._parked.pop(slot, None) is None:
            return
        try:
            self._parking.forget(slot)
        except OSError as error:
            self._warn(slot, f"cannot record that {slot} is not parked: {error.strerror}")

    def _warn(self, slot: str | None, message: str) -> None:
        self._publish(
            events.DaemonWarning(
                topic="state_dir",
                message=message,
                remedy="make room in daemon.state_dir and let the daemon write there; until then "
                "leftovers of a crash may not be found at the next start",
                worker=slot,
            )
        )
