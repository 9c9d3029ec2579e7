"""Writes down which workers live, for the daemon's next start; a full disk costs a warning."""

from __future__ import annotations

from supervisord_llm import events
from supervisord_llm.host.leftovers import WorkerRecords
from supervisord_llm.runtime.process import WorkerProcess
from supervisord_llm.runtime.request import Publish


class RecordKeeper:
    """The slots' face of `supervisord_llm.host.leftovers`."""

    def __init__(self, records: WorkerRecords, publish: Publish) -> None:
        """Keep records in a folder that is held by this daemon."""
        self._records = records
        self._publish = publish

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

    def _warn(self, slot: str, message: str) -> None:
        self._publish(
            events.DaemonWarning(
                topic="state_dir",
                message=message,
                remedy="make room in daemon.state_dir and let the daemon write there; until then "
                "leftovers of a crash may not be found at the next start",
                worker=slot,
            )
        )
