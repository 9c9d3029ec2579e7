"""What an earlier daemon left running, found by what it wrote down.

A worker's guardian ends all of it when the daemon dies. When the guardian dies too, the worker
does, but what it started may not: a process that left for a session of its own hears of nothing. So
each worker is recorded in the state directory, with its guardian and the start times of its
processes, and the next daemon ends what still lives before it starts anything; a guardian that is
at it is given a moment to finish. A record names a process by pid, start time and the machine's
boot, so whoever has that pid by now is never touched; and a process of a recorded group whose
leader is gone must also carry the worker's mark, because that group id may be somebody else's by
now.

Nothing is synced to disk: the records matter when the daemon crashed, and after a crash of the
machine there is nothing to find. A file that was torn by one is told of and removed.

The alternative, to search for the mark alone, was not taken: anybody can copy it.
"""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from supervisord_llm.errors import OperatorError
from supervisord_llm.host import state_files, tree

END_SECONDS = 5.0
"""How long `WorkerRecords.end_leftovers` may take; the daemon does not serve yet."""
GUARDIAN_SECONDS = 2.0
"""How long the guardians of a dead daemon are waited for; they take milliseconds."""

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_ROUND_SECONDS = 0.005
_ROUND_MAX_SECONDS = 0.1


class WorkerRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A worker as it is written down, one file for each slot."""

    slot: str
    generation: int
    pid: int
    start_time: int
    """Clock ticks from the machine's boot."""
    group: int
    """The id of its process group and session."""
    boot_id: str
    """The machine's boot, so that start times can be compared."""
    relatives: dict[int, int] = {}
    """Start times by pid of the other processes that were seen to belong to it."""
    guardian: int | None = None
    """The pid of its guardian; earlier versions had none."""
    guardian_start_time: int | None = None

    @property
    def mark(self) -> str:
        """What the environment of its processes says."""
        return f"{self.slot}/{self.generation}"


class Leftover(msgspec.Struct, frozen=True):
    """A recorded worker of which something still lives."""

    record: WorkerRecord
    leader_found: bool
    """The recorded process itself was found, so its group and session were still its own."""
    processes: tuple[tree.ProcessFacts, ...]
    """Without the guardian, unless that is all that is left."""


class Found(msgspec.Struct, frozen=True):
    """What the records of an earlier daemon led to."""

    leftovers: tuple[Leftover, ...]
    problems: tuple[str, ...]
    """Records that could not be read, one sentence each with what was done about it."""


class WorkerRecords:
    """The records of one daemon's workers; a context manager that holds their folder."""

    def __init__(self, state_dir: Path) -> None:
        """Name the daemon's state directory; entering makes what is missing."""
        self._folder = state_dir / "workers"
        self._lock: int | None = None
        self._boot_id = _BOOT_ID.read_text("ascii").strip()

    def __enter__(self) -> Self:
        """Take the folder for this daemon alone.

        Raises:
            OperatorError: if another daemon has it, it cannot be made, or others may write to it.
        """
        try:
            self._folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._folder.mkdir(exist_ok=True, mode=0o700)
            self._lock = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise OperatorError(
                f"cannot keep records of workers in {self._folder}: {error.strerror}; "
                "give daemon.state_dir a folder that this user can write"
            ) from error
        try:
            state_files.refuse_foreign(self._lock, self._folder, "records of workers")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._unlock()
            raise OperatorError(
                f"cannot keep records of workers in {self._folder}: another daemon does; "
                "stop that one, or give each a daemon.state_dir of its own"
            ) from error
        except OperatorError:
            self._unlock()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Let another daemon have the folder."""
        self._unlock()

    def write(
        self,
        *,
        slot: str,
        generation: int,
        leader: tree.ProcessFacts,
        relatives: Mapping[int, int],
        guardian: tree.ProcessFacts | None = None,
    ) -> None:
        """Record a slot's worker, in place of what was recorded for that slot.

        Args:
            slot: the slot's name.
            generation: the worker's number.
            leader: its process.
            relatives: start times by pid of its other processes, as far as they were seen.
            guardian: the process that ends all of it when the daemon dies.

        Raises:
            OSError: if it cannot be written; what was recorded before is unharmed.
        """
        record = WorkerRecord(
            slot=slot,
            generation=generation,
            pid=leader.pid,
            start_time=leader.start_time,
            group=leader.pgrp,
            boot_id=self._boot_id,
            relatives=dict(relatives),
            guardian=None if guardian is None else guardian.pid,
            guardian_start_time=None if guardian is None else guardian.start_time,
        )
        state_files.write(self._path(slot), msgspec.json.encode(record))

    def forget(self, slot: str) -> None:
        """Remove a slot's record: its worker is reaped and nothing of it is left.

        Raises:
            OSError: if it cannot be removed.
        """
        self._path(slot).unlink(missing_ok=True)

    def find_leftovers(self) -> Found:
        """Look for what an earlier daemon left, and remove the records of what is gone.

        Blocks the calling thread for at most `GUARDIAN_SECONDS` while guardians are still at work.
        """
        records, problems = state_files.read_all(
            self._folder, WorkerRecord, "look for processes of that slot by hand"
        )
        leftovers = []
        self._await_guardians(records.values())
        processes = tree.scan()
        for path, record in records.items():
            leftover = self._leftover(record, processes)
            if leftover is None:
                path.unlink(missing_ok=True)
            else:
                leftovers.append(leftover)
        return Found(tuple(leftovers), tuple(problems))

    def end_leftovers(
        self, leftovers: Sequence[Leftover], *, timeout: float = END_SECONDS
    ) -> list[Leftover]:
        """Kill what was found and wait until it is gone; for the time before the daemon serves.

        Blocks the calling thread for at most ``timeout`` seconds and one look at the processes.

        Returns:
            What still lives, with its living processes; the records of the others are removed.
        """
        deadline = time.monotonic() + timeout
        pause = _ROUND_SECONDS
        left = list(leftovers)
        while left := list(_living(left, tree.scan())):
            for leftover in left:
                # The guardian comes last: as long as it lives, whatever loses its parent is its.
                for facts in leftover.processes:
                    tree.send_signal(facts.pid, facts.start_time, signal.SIGKILL)
            if time.monotonic() >= deadline:
                break
            time.sleep(pause)
            pause = min(2 * pause, _ROUND_MAX_SECONDS)
        living = {leftover.record.slot for leftover in left}
        for leftover in leftovers:
            if leftover.record.slot not in living:
                self.forget(leftover.record.slot)
        return left

    def _await_guardians(self, records: Iterable[WorkerRecord]) -> None:
        deadline = time.monotonic() + GUARDIAN_SECONDS
        for record in records:
            pause = _ROUND_SECONDS
            while (
                record.boot_id == self._boot_id
                and record.guardian is not None
                and (facts := tree.read(record.guardian)) is not None
                and facts.start_time == record.guardian_start_time
                and facts.living
                and time.monotonic() < deadline
            ):
                time.sleep(pause)
                pause = min(2 * pause, _ROUND_MAX_SECONDS)

    def _leftover(self, record: WorkerRecord, processes: tree.Scan) -> Leftover | None:
        if record.boot_id != self._boot_id:
            return None
        leader = processes.get(record.pid)
        found = leader is not None and leader.start_time == record.start_time
        belonging = _belonging(record, processes, leader_found=found)
        return Leftover(record, found, belonging) if belonging else None

    def _path(self, slot: str) -> Path:
        return state_files.path_of(self._folder, slot)

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _living(leftovers: Iterable[Leftover], processes: tree.Scan) -> Iterable[Leftover]:
    for leftover in leftovers:
        # Children that were started since count too. The leader may be gone by now, but its group
        # was its own a moment ago.
        seen = {facts.pid: facts.start_time for facts in leftover.processes}
        record = msgspec.structs.replace(
            leftover.record, relatives=leftover.record.relatives | seen
        )
        found = leftover.leader_found
        if belonging := _belonging(record, processes, leader_found=found):
            yield msgspec.structs.replace(leftover, record=record, processes=belonging)


def _belonging(
    record: WorkerRecord, processes: tree.Scan, *, leader_found: bool
) -> tuple[tree.ProcessFacts, ...]:
    known = {record.pid: record.start_time, **record.relatives}
    # A worker leads its group; any other group would be that of whoever started it. And while a
    # group lives its number is no new process's pid: where that has been given again, it is gone.
    leader = processes.get(record.pid)
    ours = leader is None or leader.start_time == record.start_time
    for pid, facts in processes.items():
        in_group = (
            ours and record.group == record.pid and record.group in {facts.pgrp, facts.session}
        )
        if in_group and (leader_found or tree.mark_of(pid) == record.mark):
            known[pid] = facts.start_time
    guardian = processes.get(-1 if record.guardian is None else record.guardian)
    if guardian is not None and guardian.start_time != record.guardian_start_time:
        guardian = None
    # As a known process the leader is found like the others, and only with its start time.
    found = tree.relatives(
        None,
        known=known,
        mark=record.mark,
        daemon=None,
        guardian=None if guardian is None else guardian.pid,
        processes=processes,
    )
    if not found and guardian is not None and guardian.living:
        found = [guardian]
    return tuple(found)
