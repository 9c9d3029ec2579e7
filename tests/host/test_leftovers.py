from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from supervisord_llm.host import leftovers, tree
from supervisord_llm.host.leftovers import WorkerRecords
from tests.host.crashed import MARK, ORPHAN, SLEEP, crashed, edit, found_pids, lives
from tests.native.launched import Launched, launched
from tests.native.sim import wait_until


def test_a_recorded_worker_that_lives_is_found_and_ended(
    records: WorkerRecords, folder: Path
) -> None:
    """Its record goes with it."""
    with crashed(records, SLEEP) as worker:
        found = records.find_leftovers()
        (leftover,) = found.leftovers
        assert (leftover.record.mark, leftover.leader_found) == (MARK, True)
        assert [facts.pid for facts in leftover.processes] == [worker.process.pid]
        assert records.end_leftovers(found.leftovers) == []
        assert worker.process.wait() == -signal.SIGKILL
    assert list(folder.iterdir()) == []


def test_a_worker_that_is_gone_leaves_nothing_to_find(records: WorkerRecords, folder: Path) -> None:
    """Its record is stale and goes."""
    with crashed(records, SLEEP) as worker:
        worker.end_leader()
        assert found_pids(records) == []
    assert list(folder.iterdir()) == []


def test_whoever_has_the_pid_by_now_is_never_touched(records: WorkerRecords, folder: Path) -> None:
    """Another start time means another process, with all that it started."""
    with crashed(records, ORPHAN.format(how="")) as worker:
        edit(folder, start_time=worker.leader.start_time - 1)
        assert found_pids(records) == []
        assert lives(worker.leader)
    assert list(folder.iterdir()) == []


def test_a_record_of_another_boot_is_stale(records: WorkerRecords, folder: Path) -> None:
    """Start times count from the machine's boot and mean nothing after the next."""
    with crashed(records, SLEEP) as worker:
        edit(folder, boot_id="00000000-0000-0000-0000-000000000000")
        assert found_pids(records) == []
        assert lives(worker.leader)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("how", ["", "setsid"])
def test_the_descendants_of_a_living_worker_are_ended_with_it(
    records: WorkerRecords, how: str
) -> None:
    """In its session or out of it, as long as the signs lead there."""
    script = f"{how} sh -c 'echo $$; exec sleep 300' & wait"
    with crashed(records, script) as worker:
        assert worker.orphan is not None
        found = records.find_leftovers()
        assert {worker.process.pid, worker.orphan.pid} <= {
            facts.pid for facts in found.leftovers[0].processes
        }
        assert records.end_leftovers(found.leftovers) == []
        assert not lives(worker.orphan)


def test_an_orphan_in_the_group_of_a_dead_worker_is_ended(records: WorkerRecords) -> None:
    """The group agrees, and so does the mark."""
    with crashed(records, ORPHAN.format(how="")) as worker:
        assert worker.orphan is not None
        worker.end_leader()
        found = records.find_leftovers()
        assert not found.leftovers[0].leader_found
        assert [facts.pid for facts in found.leftovers[0].processes] == [worker.orphan.pid]
        assert records.end_leftovers(found.leftovers) == []
        assert not lives(worker.orphan)


@pytest.mark.parametrize("mark", ["smollm.0/4", "other.0/3", ""])
def test_a_group_of_that_number_without_the_mark_is_somebody_elses(
    records: WorkerRecords, mark: str
) -> None:
    """Once a group is empty its number may be given again."""
    with crashed(records, ORPHAN.format(how=""), mark=mark) as worker:
        assert worker.orphan is not None
        worker.end_leader()
        assert found_pids(records) == []
        assert lives(worker.orphan)


def test_a_process_that_left_the_session_is_found_by_its_start_time(
    records: WorkerRecords,
) -> None:
    """It cleared its environment too, but it was seen while its worker lived."""
    with crashed(records, ORPHAN.format(how="env -i setsid")) as worker:
        assert worker.orphan is not None
        worker.record(records, relatives={worker.orphan.pid: worker.orphan.start_time})
        worker.end_leader()
        found = records.find_leftovers()
        assert [facts.pid for facts in found.leftovers[0].processes] == [worker.orphan.pid]
        assert records.end_leftovers(found.leftovers) == []
        assert not lives(worker.orphan)


def test_the_mark_alone_kills_nobody(records: WorkerRecords) -> None:
    """A process that left and was never seen is not ended on the strength of a copyable mark."""
    with crashed(records, ORPHAN.format(how="setsid")) as worker:
        assert worker.orphan is not None
        worker.end_leader()
        assert found_pids(records) == []
        assert lives(worker.orphan)


def test_a_worker_that_keeps_starting_processes_is_ended_with_all_of_them(
    records: WorkerRecords,
) -> None:
    """What was started between the look and the signal is found at the next look."""
    script = "echo $$; while :; do sleep 300 & sleep 0.001; done"
    with crashed(records, script) as worker:
        found = records.find_leftovers()
        assert records.end_leftovers(found.leftovers) == []
        group = [f for f in tree.scan().values() if f.pgrp == worker.process.pid and f.living]
        assert group == []


@pytest.mark.parametrize("how", ["env -i", "env -i setsid"])
def test_what_a_look_has_seen_stays_known_when_its_worker_ends_first(
    records: WorkerRecords, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Once the worker is dead, neither descent nor the cleared environment leads to it."""
    script = f"{how} sh -c 'echo $$; exec sleep 300' & wait"
    with crashed(records, script) as worker:
        assert worker.orphan is not None
        reach = tree.send_signal
        passed_over: set[int] = set()

        def reach_the_leader_first(pid: int, start: int, number: signal.Signals) -> bool:
            if pid != worker.process.pid and pid not in passed_over:
                passed_over.add(pid)
                return False
            reached = reach(pid, start, number)
            if pid == worker.process.pid:
                worker.process.wait()
            return reached

        monkeypatch.setattr(tree, "send_signal", reach_the_leader_first)
        assert records.end_leftovers(records.find_leftovers().leftovers) == []
        assert not lives(worker.orphan)


def test_what_a_worker_starts_at_its_very_end_is_found_by_its_group(
    records: WorkerRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look and the signal: the group was the worker's own a moment ago."""
    script = "echo $$; read line; env -i sh -c 'echo $$; exec sleep 300' & wait"
    with crashed(records, script) as worker:
        reach = tree.send_signal
        started: list[tree.ProcessFacts] = []

        def start_another_first(pid: int, start: int, number: signal.Signals) -> bool:
            if not started:
                assert worker.process.stdin is not None
                assert worker.process.stdout is not None
                worker.process.stdin.write(b"go\n")
                worker.process.stdin.flush()
                facts = tree.read(int(worker.process.stdout.readline()))
                assert facts is not None
                started.append(facts)
            reached = reach(pid, start, number)
            worker.process.wait()
            return reached

        monkeypatch.setattr(tree, "send_signal", start_another_first)
        assert records.end_leftovers(records.find_leftovers().leftovers) == []
        assert not lives(started[0])


def test_what_does_not_end_is_told_and_stays_recorded(
    records: WorkerRecords, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a process in uninterruptible sleep: the daemon goes on after the bound."""
    with crashed(records, SLEEP) as worker:
        found = records.find_leftovers()
        with monkeypatch.context() as patch:
            patch.setattr(tree, "send_signal", lambda *_: True)
            left = records.end_leftovers(found.leftovers, timeout=0.05)
        assert [facts.pid for each in left for facts in each.processes] == [worker.process.pid]
        assert [path.name for path in folder.iterdir()] == ["smollm.0.json"]
        assert found_pids(records) == [worker.process.pid]


def test_a_worker_that_did_not_lead_a_group_takes_nobody_with_it(
    records: WorkerRecords, folder: Path
) -> None:
    """Its group would be that of whoever started it: here, of the tests."""
    with crashed(records, SLEEP) as worker:
        edit(folder, group=os.getpgid(0))
        assert found_pids(records) == [worker.process.pid]


# Guardians ----------------------------------------------------------------------------------------


@contextlib.contextmanager
def guarded(
    records: WorkerRecords, script: str
) -> Iterator[tuple[Launched, tree.ProcessFacts, tree.ProcessFacts]]:
    """A recorded worker with its guardian, and the facts of both; all of it is ended afterwards."""
    with launched(command=["sh", "-c", script], env={"PATH": os.environ["PATH"]}) as made:
        worker, guardian = tree.read(made.started().pid), tree.read(made.guardian.pid)
        assert worker is not None
        assert guardian is not None
        records.write(slot="s.0", generation=1, leader=worker, relatives={}, guardian=guardian)
        try:
            yield made, worker, guardian
        finally:
            tree.send_signal(guardian.pid, guardian.start_time, signal.SIGCONT)


def test_a_guardian_at_work_is_waited_for(records: WorkerRecords, folder: Path) -> None:
    """Its daemon is dead: it has ended all of it before the next one looks."""
    with guarded(records, SLEEP) as (made, worker, _):
        os.kill(made.guardian.pid, signal.SIGSTOP)
        made.let_go()
        with subprocess.Popen(["sh", "-c", f"sleep 0.2; kill -CONT {made.guardian.pid}"]):
            assert records.find_leftovers() == leftovers.Found((), ())
        assert not lives(worker)
    assert list(folder.iterdir()) == []


def test_a_guardian_that_does_not_finish_is_ended_last(
    records: WorkerRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then whatever loses its parent is found below it, unseen and unmarked as it may be."""
    monkeypatch.setattr(leftovers, "GUARDIAN_SECONDS", 0.05)
    script = "env -i setsid -f sleep 300; exec sleep 300"
    with guarded(records, script) as (made, worker, guardian):
        wait_until(
            lambda: (
                [
                    facts.ppid
                    for facts in tree.descendants(guardian.pid, tree.scan()).values()
                    if facts.session == facts.pid and facts.pid != worker.pid
                ]
                == [guardian.pid]
            )
        )
        family = list(tree.descendants(guardian.pid, tree.scan()).values())
        os.kill(made.guardian.pid, signal.SIGSTOP)
        signalled: list[int] = []
        reach = tree.send_signal

        def note(pid: int, start: int, number: signal.Signals) -> bool:
            signalled.append(pid)
            return reach(pid, start, number)

        monkeypatch.setattr(tree, "send_signal", note)
        (leftover,) = records.find_leftovers().leftovers
        assert {facts.pid for facts in leftover.processes} == {facts.pid for facts in family}
        assert records.end_leftovers([leftover]) == []
        assert not any(lives(facts) for facts in [*family, guardian])
        assert signalled[-1] == guardian.pid
        assert signalled.count(guardian.pid) == 1


def test_whoever_has_a_guardians_pid_by_now_is_never_touched(
    records: WorkerRecords, folder: Path
) -> None:
    """Nor waited for, nor what it has started."""
    with guarded(records, SLEEP) as (_, worker, guardian):
        edit(folder, guardian_start_time=guardian.start_time - 1, start_time=worker.start_time - 1)
        started = time.monotonic()
        assert found_pids(records) == []
        assert time.monotonic() - started < leftovers.GUARDIAN_SECONDS / 2
        assert lives(worker)
        assert lives(guardian)
    assert list(folder.iterdir()) == []


def test_a_guardian_of_another_boot_is_not_waited_for(records: WorkerRecords, folder: Path) -> None:
    """Its pid and start time mean nothing any more."""
    with guarded(records, SLEEP) as (_, _, guardian):
        edit(folder, boot_id="00000000-0000-0000-0000-000000000000")
        started = time.monotonic()
        assert found_pids(records) == []
        assert time.monotonic() - started < leftovers.GUARDIAN_SECONDS / 2
        assert lives(guardian)


def test_a_record_of_an_earlier_version_is_read(records: WorkerRecords, folder: Path) -> None:
    """It names no guardian."""
    with crashed(records, SLEEP) as worker:
        (path,) = folder.iterdir()
        record = msgspec.json.decode(path.read_bytes())
        del record["guardian"], record["guardian_start_time"]
        path.write_bytes(msgspec.json.encode(record))
        assert found_pids(records) == [worker.process.pid]
