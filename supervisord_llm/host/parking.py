"""Which slots are parked and why, kept over a restart of the daemon.

A slot that crash-looped stays down until an operator resumes it; a daemon that forgot that would
begin the crash loop anew at each start. What is kept says with which command it was: a slot whose
launch has been changed since deserves another try, and the caller decides on that.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from supervisord_llm.errors import OperatorError
from supervisord_llm.host import state_files


class ParkingRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A parked slot as it is written down, one file for each."""

    reason: str | None
    """Why its last worker was judged unfit; ``None`` if none was, as where none could be started.
    """
    exit: str | None
    """How its last worker ended, e.g. ``exit:3``; ``None`` if none was ever started."""
    restarts: int
    """How many were counted when it was parked."""
    at: float
    """When it was parked, in seconds of Unix time."""
    last_lines: tuple[str, ...]
    """The last lines that its last worker wrote to stderr."""
    place: int | None = None
    """Its place among its pool's slots, which a slot that is put in its stead inherits; ``None`` if
    that is not known, and then it is told by its name."""
    launch_digest: str
    """What `supervisord_llm.config.launch.SlotLaunch.digest` was for its last worker."""


class Parked(msgspec.Struct, frozen=True):
    """What an earlier daemon wrote down."""

    slots: dict[str, ParkingRecord]
    """By the slot's name, in the order of the names."""
    problems: tuple[str, ...]
    """Records that could not be read, one sentence each with what was done about it."""


class ParkingRecords:
    """The records of one daemon's parked slots.

    Whoever holds the state directory's `supervisord_llm.host.leftovers.WorkerRecords` has these to
    itself as well.
    """

    def __init__(self, state_dir: Path) -> None:
        """Use the daemon's state directory; makes what is missing.

        Raises:
            OperatorError: if a folder cannot be made there, or others may write to it.
        """
        self._folder = state_dir / "parked"
        try:
            self._folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._folder.mkdir(exist_ok=True, mode=0o700)
            descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise OperatorError(
                f"cannot keep records of parked slots in {self._folder}: {error.strerror}; "
                "give daemon.state_dir a folder that this user can write"
            ) from error
        try:
            state_files.refuse_foreign(descriptor, self._folder, "records of parked slots")
        finally:
            os.close(descriptor)

    def write(self, slot: str, record: ParkingRecord) -> None:
        """Record a parked slot, in place of what was recorded for it.

        Raises:
            OSError: if it cannot be written; what was recorded before is unharmed.
        """
        state_files.write(state_files.path_of(self._folder, slot), msgspec.json.encode(record))

    def forget(self, slot: str) -> None:
        """Remove a slot's record, if there is one: it is not parked any more, or no slot.

        Raises:
            OSError: if it cannot be removed.
        """
        state_files.path_of(self._folder, slot).unlink(missing_ok=True)

    def read_all(self) -> Parked:
        """What is recorded. A file that holds no record is removed: its slot simply starts."""
        records, problems = state_files.read_all(
            self._folder, ParkingRecord, "its slot starts as if it had not been parked"
        )
        slots = {state_files.slot_of(path): record for path, record in records.items()}
        return Parked(slots, tuple(problems))
