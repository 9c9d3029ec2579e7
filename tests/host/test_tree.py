from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisord_llm.host import prctl, tree
from supervisord_llm.host.tree import ProcessFacts

MARK = "smollm.0/3"
NOBODY = 2**22 + 1
"""A pid that the kernel never gives."""

Spawn = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    """Start processes that are ended and reaped after the test."""
    with contextlib.ExitStack() as ends:

        def start(
            *command: str, mark: str | None = None, **options: bool
        ) -> subprocess.Popen[bytes]:
            environment = dict(os.environ)
            if mark is not None:
                environment[tree.SLOT_VARIABLE] = mark
            process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, **options)  # type: ignore[call-overload]
            assert isinstance(process, subprocess.Popen)
            ends.enter_context(process)
            ends.callback(process.kill)
            return process

        yield start


@pytest.fixture
def subreaper() -> Iterator[None]:
    """The test process adopts orphans for as long as the test runs, and ends them."""
    prctl.set_child_subreaper()
    before = set(tree.descendants(os.getpid(), tree.scan()))
    yield
    ctypes.CDLL(None).prctl(36, 0, 0, 0, 0)
    for pid, facts in tree.descendants(os.getpid(), tree.scan()).items():
        if facts.ppid == os.getpid() and pid not in before:
            tree.send_signal(pid, facts.start_time, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def facts_of(
    pid: int,
    *,
    ppid: int = 1,
    pgrp: int = 0,
    session: int = 0,
    start_time: int = 1000,
    state: str = "S",
) -> ProcessFacts:
    """A made-up process, which leads a group and session of its own unless said otherwise."""
    return ProcessFacts(pid, ppid, pgrp or pid, session or pid, start_time, state)


def table(*processes: ProcessFacts) -> dict[int, ProcessFacts]:
    """A made-up scan."""
    return {facts.pid: facts for facts in processes}


def announced_pid(process: subprocess.Popen[bytes]) -> int:
    """The number that a process wrote as its first line: it is there once this returns."""
    assert process.stdout is not None
    return int(process.stdout.readline())


def start_time(pid: int) -> int:
    """When a living process started."""
    facts = tree.read(pid)
    assert facts is not None
    return facts.start_time


# Reading ------------------------------------------------------------------------------------------


@given(
    name=st.binary(max_size=15), numbers=st.lists(st.integers(0, 2**31), min_size=49, max_size=49)
)
def test_a_name_with_anything_in_it_does_not_shift_the_fields(
    name: bytes, numbers: list[int]
) -> None:
    """A process may call itself ``a) R 1 (b``."""
    tail = b" ".join(b"%d" % number for number in numbers)
    found = tree.parse_stat(b"77 (" + name + b") S " + tail + b"\n")
    assert found == ProcessFacts(77, numbers[0], numbers[1], numbers[2], numbers[18], "S")


def test_a_process_with_a_hostile_name_is_read(tmp_path: Path, spawn: Spawn) -> None:
    """The same with the kernel's own file."""
    program = shutil.copy("/bin/sleep", tmp_path / "a) R 1 (b c")
    process = spawn(str(program), "300", start_new_session=True)
    found = tree.read(process.pid)
    assert found is not None
    assert (found.pid, found.ppid) == (process.pid, os.getpid())
    assert (found.pgrp, found.session) == (process.pid, process.pid)


@pytest.mark.parametrize("content", [b"", b"1 2 3", b"1 (sh) S 1 2 3"])
def test_what_is_no_stat_file_is_refused(content: bytes) -> None:
    """A format that is not understood must not be guessed at."""
    with pytest.raises(ValueError, match="as the content of /proc/PID/stat"):
        tree.parse_stat(content)


def test_a_process_that_is_not_there_is_none() -> None:
    """It may end between two looks at it; that is no error."""
    assert tree.read(NOBODY) is None


def test_a_scan_has_this_process_in_its_place() -> None:
    """Parent, group and session are what the kernel says in its calls, too."""
    found = tree.scan()[os.getpid()]
    expected = (os.getpid(), os.getppid(), os.getpgid(0), os.getsid(0))
    assert (found.pid, found.ppid, found.pgrp, found.session) == expected
    assert found.living


def test_a_zombie_is_told_apart(spawn: Spawn) -> None:
    """It is in the scan, since its pid is taken, but it does not live."""
    process = spawn("true")
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    found = tree.scan()[process.pid]
    assert (found.state, found.living) == ("Z", False)


# Belonging ----------------------------------------------------------------------------------------


def test_descendants_are_found_at_any_depth_and_without_the_root() -> None:
    """Children, their children, and nobody else's."""
    processes = table(
        facts_of(10),
        facts_of(11, ppid=10),
        facts_of(12, ppid=11),
        facts_of(13, ppid=12, state="Z"),
        facts_of(20),
        facts_of(21, ppid=20),
    )
    assert set(tree.descendants(10, processes)) == {11, 12, 13}


@given(
    parents=st.dictionaries(st.integers(1, 12), st.integers(0, 12), max_size=12),
    root=st.integers(1, 12),
)
def test_a_scan_that_contradicts_itself_is_walked_all_the_same(
    parents: dict[int, int], root: int
) -> None:
    """It is no snapshot, so that pids that changed hands may seem to form a circle."""
    processes = table(*(facts_of(pid, ppid=ppid) for pid, ppid in parents.items()))
    for pid in tree.descendants(root, processes):
        assert processes[pid].ppid == root or processes[pid].ppid in processes


RELATED = [
    ("a descendant", facts_of(11, ppid=10)),
    ("one in its group", facts_of(11, ppid=1, pgrp=10, session=5)),
    ("one in its session", facts_of(11, ppid=1, session=10)),
    ("one seen before", facts_of(11, ppid=1, start_time=4711)),
]


@pytest.mark.parametrize(
    "related", [facts for _, facts in RELATED], ids=[name for name, _ in RELATED]
)
def test_each_sign_makes_a_relative_with_all_its_descendants(related: ProcessFacts) -> None:
    """Descent, group, session, or the start time under which it was seen."""
    processes = table(
        facts_of(10), related, facts_of(12, ppid=11), facts_of(13, ppid=12), facts_of(99)
    )
    found = tree.relatives(10, known={11: 4711}, mark=MARK, daemon=NOBODY, processes=processes)
    assert [facts.pid for facts in found] == [11, 12, 13]


def test_a_pid_that_was_seen_before_under_another_start_time_is_somebody_else() -> None:
    """The kernel gives pids again."""
    processes = table(facts_of(10), facts_of(11, start_time=4712))
    found = tree.relatives(10, known={11: 4711}, mark=MARK, daemon=NOBODY, processes=processes)
    assert not found


def test_neither_the_leader_nor_the_daemon_nor_a_zombie_is_a_relative() -> None:
    """What is found may be killed: the leader has its own way to go, and the dead are dead."""
    processes = table(
        facts_of(10),
        facts_of(11, ppid=10, state="Z"),
        facts_of(12, ppid=10, state="X"),
        facts_of(20, pgrp=10),
    )
    found = tree.relatives(10, known={10: 1000}, mark=MARK, daemon=20, processes=processes)
    assert not found


def test_without_its_leader_only_what_was_seen_before_counts() -> None:
    """Group and session ids of a reaped leader may be somebody else's by now."""
    processes = table(facts_of(11, pgrp=10), facts_of(12, start_time=4711), facts_of(13, ppid=12))
    for leader in (None, 10):
        found = tree.relatives(
            leader, known={12: 4711}, mark=MARK, daemon=NOBODY, processes=processes
        )
        assert [facts.pid for facts in found] == [12, 13]


def test_what_a_guardian_has_adopted_is_a_relative_and_the_guardian_is_none() -> None:
    """Without a mark, a session or a start time in common; the guardian bears the mark itself."""
    processes = table(
        facts_of(20), facts_of(9, ppid=20), facts_of(10, ppid=9), facts_of(11, ppid=9),
        facts_of(12, ppid=11), facts_of(13, ppid=20),
    )  # fmt: skip
    marks = {9: MARK, 10: MARK}
    for leader in (10, None):
        found = tree.relatives(
            leader,
            known={},
            mark=MARK,
            daemon=20,
            guardian=9,
            processes=processes,
            read_mark=marks.get,
        )
        assert [facts.pid for facts in found] == [11, 12] if leader else [10, 11, 12]


def test_a_guardian_that_is_gone_leads_to_nobody() -> None:
    """Its pid is in no scan."""
    processes = table(facts_of(10, ppid=1), facts_of(11, ppid=1))
    found = tree.relatives(10, known={}, mark=MARK, daemon=NOBODY, guardian=9, processes=processes)
    assert found == []


def test_the_mark_alone_makes_nobody_a_relative(spawn: Spawn) -> None:
    """It can be copied; it is told of separately, as a hint."""
    shell = spawn(
        "sh", "-c", f"env {tree.SLOT_VARIABLE}={MARK} setsid sh -c 'echo $$; exec sleep 300'; :"
    )
    leader = spawn("sleep", "300", start_new_session=True)
    copied = announced_pid(shell)
    found = tree.relatives(leader.pid, known={}, mark=MARK, daemon=os.getpid())
    assert not found
    assert copied in tree.marked(MARK)
    tree.send_signal(copied, start_time(copied), signal.SIGKILL)
    shell.wait()


ORPHAN = "pid=$(setsid sh -c 'echo $$; exec sleep 300 >/dev/null' &); echo $pid; exec sleep 300"
"""A worker that starts a process which leaves its session and loses its parent, then names it."""


def test_an_adopted_orphan_with_the_mark_is_a_relative(subreaper: None, spawn: Spawn) -> None:
    """It left descent, group and session behind, but nobody else could have become its parent."""
    leader = spawn("sh", "-c", ORPHAN, mark=MARK, start_new_session=True)
    orphan = announced_pid(leader)
    facts = tree.read(orphan)
    assert facts is not None
    assert (facts.ppid, facts.session) == (os.getpid(), orphan)
    found = tree.relatives(leader.pid, known={}, mark=MARK, daemon=os.getpid())
    assert [each.pid for each in found] == [orphan]
    other = tree.relatives(leader.pid, known={}, mark="smollm.0/4", daemon=os.getpid())
    assert not other


def test_an_orphan_without_the_mark_is_known_by_its_start_time(
    subreaper: None, spawn: Spawn
) -> None:
    """Even a process that cleared its environment is found if it was seen in time."""
    command = ORPHAN.replace("setsid", "env -i setsid")
    leader = spawn("sh", "-c", command, mark=MARK, start_new_session=True)
    orphan = announced_pid(leader)
    unseen = tree.relatives(leader.pid, known={}, mark=MARK, daemon=os.getpid())
    assert not unseen
    known = {orphan: start_time(orphan)}
    found = tree.relatives(leader.pid, known=known, mark=MARK, daemon=os.getpid())
    assert [each.pid for each in found] == [orphan]


def test_a_mark_names_a_worker_or_all_workers_of_a_slot(spawn: Spawn) -> None:
    """``smollm.0`` is not the beginning of ``smollm.01``."""
    marks = ("smollm.0/3", "smollm.0/4", "smollm.01/3")
    pids = [spawn("sleep", "300", mark=mark).pid for mark in marks]
    processes = {pid: facts for pid, facts in tree.scan().items() if pid in pids}
    assert set(tree.marked("smollm.0/3", processes)) == {pids[0]}
    assert set(tree.marked("smollm.0", processes)) == {pids[0], pids[1]}
    assert tree.mark_of(pids[2]) == "smollm.01/3"


def test_whoever_has_no_mark_or_cannot_be_looked_at_has_none(spawn: Spawn) -> None:
    """A zombie has no environment any more, nor has a process that is not there."""
    process = spawn("true", mark=MARK)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert tree.mark_of(process.pid) is None
    assert tree.mark_of(NOBODY) is None
    assert tree.mark_of(spawn("sleep", "300").pid) is None


# Signals and reaping ------------------------------------------------------------------------------


def test_a_signal_reaches_the_process_with_that_start_time(no_fd_leak: None, spawn: Spawn) -> None:
    """And nobody who merely has its pid."""
    process = spawn("sleep", "300")
    started = start_time(process.pid)
    assert not tree.send_signal(process.pid, started + 1, signal.SIGKILL)
    assert process.poll() is None
    assert tree.send_signal(process.pid, started, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL


def test_the_dead_are_not_reached(no_fd_leak: None, spawn: Spawn) -> None:
    """Neither a zombie nor a process that is gone."""
    process = spawn("true")
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    started = start_time(process.pid)
    assert not tree.send_signal(process.pid, started, signal.SIGKILL)
    process.wait()
    assert not tree.send_signal(process.pid, started, signal.SIGKILL)
    assert not tree.send_signal(NOBODY, 0, signal.SIGKILL)


def test_only_the_named_dead_are_reaped(spawn: Spawn) -> None:
    """The status of another belongs to whoever waits for it; the living are left alone."""
    named, other = (spawn("sh", "-c", f"exit {code}") for code in (3, 4))
    living = spawn("sleep", "300")
    for process in (named, other):
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert tree.reap_adopted([named.pid, living.pid, os.getppid(), NOBODY]) == {named.pid}
    assert tree.read(named.pid) is None
    assert other.wait() == 4
    assert living.poll() is None


def test_dead_orphans_are_found_apart_from_dead_workers() -> None:
    """Zombies whose parent is the daemon, without those that somebody waits for."""
    processes = table(
        facts_of(11, ppid=10, state="Z"),
        facts_of(12, ppid=10, state="Z"),
        facts_of(13, ppid=10),
        facts_of(14, ppid=12, state="Z"),
    )
    assert tree.adopted_zombies(10, workers=[12], processes=processes) == {11}


def test_a_subreaper_adopts_orphans() -> None:
    """In a process of its own, and what it adopted it can reap."""
    script = (
        "import os, subprocess\n"
        "from supervisord_llm.host import prctl, tree\n"
        "prctl.set_child_subreaper()\n"
        "subprocess.run(['sh', '-c', 'sleep 300 &'], check=True)\n"
        "found = [f for f in tree.descendants(os.getpid(), tree.scan()).values() if f.living]\n"
        "assert [f.ppid for f in found] == [os.getpid()], found\n"
        "for f in found:\n"
        "    assert tree.send_signal(f.pid, f.start_time, 9)\n"
        "    os.waitid(os.P_PID, f.pid, os.WEXITED | os.WNOWAIT)\n"
        "zombies = tree.adopted_zombies(os.getpid(), workers=[])\n"
        "assert zombies == {f.pid for f in found}\n"
        "assert tree.reap_adopted(zombies) == zombies\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
