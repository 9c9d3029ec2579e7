"""Workers of a daemon that crashed, and their records."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec

from supervisord_llm.host import tree
from supervisord_llm.host.leftovers import WorkerRecord, WorkerRecords

MARK = "smollm.0/3"
SLEEP = "exec sleep 300"
ORPHAN = "pid=$({how} sh -c 'echo $$; exec sleep 300 >/dev/null' &); echo $pid; exec sleep 300"
"""A worker that starts a process in some way, lets it lose its parent, and names it."""


class Crashed:
    """A worker of a daemon that crashed, and what its record says."""

    def __init__(self, records: WorkerRecords, script: str, *, mark: str = MARK) -> None:
        self.process = subprocess.Popen(
            ["sh", "-c", script],
            env={**os.environ, tree.SLOT_VARIABLE: mark},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        leader = tree.read(self.process.pid)
        assert leader is not None
        self.leader = leader
        self.orphan: tree.ProcessFacts | None = None
        if script != SLEEP:
            assert self.process.stdout is not None
            self.orphan = tree.read(int(self.process.stdout.readline()))
            assert self.orphan is not None
        self.record(records, relatives={})

    def record(self, records: WorkerRecords, *, relatives: dict[int, int]) -> None:
        """Write it down, as a daemon that has seen these relatives."""
        records.write(slot="smollm.0", generation=3, leader=self.leader, relatives=relatives)

    def end_leader(self) -> None:
        """The worker itself died with its daemon."""
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        """End all of it."""
        with self.process:
            self.process.kill()
        if self.orphan is not None:
            tree.send_signal(self.orphan.pid, self.orphan.start_time, signal.SIGKILL)


def edit(folder: Path, **changes: object) -> None:
    """Change what the one record says."""
    (path,) = folder.glob("*.json")
    record = msgspec.json.decode(path.read_bytes(), type=WorkerRecord)
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(record, **changes)))


def found_pids(records: WorkerRecords) -> list[int]:
    """The processes that are found, and no problems."""
    found = records.find_leftovers()
    assert not found.problems
    return [facts.pid for leftover in found.leftovers for facts in leftover.processes]


def lives(facts: tree.ProcessFacts) -> bool:
    """Whether that very process still runs."""
    now = tree.read(facts.pid)
    return now is not None and now.start_time == facts.start_time and now.living


@contextlib.contextmanager
def crashed(records: WorkerRecords, script: str, *, mark: str = MARK) -> Iterator[Crashed]:
    """A recorded worker, ended afterwards whatever became of it."""
    worker = Crashed(records, script, mark=mark)
    try:
        yield worker
    finally:
        worker.end()
