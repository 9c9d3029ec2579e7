"""Whether the kernel killed a worker for want of memory, from imitated counters and records."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisord_llm.host.cgroup_files import own_group, read_words, write
from supervisord_llm.host.cgroups import WorkerGroup
from supervisord_llm.host.oom import CREDIBLE_SECONDS, KernelLog, OomWatch
from tests.host.cgroupfs import Cgroupfs, cgroupfs, real_group

__all__ = ["cgroupfs", "real_group"]

pytestmark = pytest.mark.usefixtures("no_fd_leak")

PID = 4711
DETAILS = ", UID 0, total-vm:8kB, anon-rss:4kB, file-rss:0kB, shmem-rss:0kB, oom_score_adj:500"
GLOBAL = f"3,812,99,-;Out of memory: Killed process {PID} (sllm-llama){DETAILS}\n"
IN_GROUP = f"3,813,99,-;Memory cgroup out of memory: Killed process {PID} (python3){DETAILS}\n"


class Machine:
    """A folder in the place of /proc, a clock, and what the kernel says."""

    def __init__(self, proc: Path) -> None:
        """Nothing was killed yet."""
        self.proc = proc
        self.now = 1000.0
        self.kills(0)
        self._log, self._records = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._log.settimeout(0)

    def kills(self, count: int) -> None:
        """So many were killed since the machine's start."""
        (self.proc / "vmstat").write_text(f"pgfault 12\noom_kill {count}\noom_kill_x 99\n")

    def says(self, *records: str | bytes) -> None:
        """Records appear in the kernel's log."""
        for record in records:
            self._records.send(record if isinstance(record, bytes) else record.encode())

    def log(self) -> KernelLog:
        """The log, which the test must close."""
        return KernelLog(os.dup(self._log.fileno()))

    def watch(self, log: KernelLog | None = None) -> OomWatch:
        """Watch from now on."""
        return OomWatch(lambda: self.now, log=log, proc=self.proc)

    def close(self) -> None:
        """Give back the sockets."""
        self._log.close()
        self._records.close()


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """One on which nothing was killed yet."""
    made = Machine(tmp_path)
    yield made
    made.close()


@pytest.fixture
def logging(machine: Machine) -> Iterator[OomWatch]:
    """A watch that may read the kernel's log."""
    watch = machine.watch(machine.log())
    yield watch
    watch.close()


# The log -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "record", [GLOBAL, IN_GROUP, f"3,1,2,-,caller=T9;Killed process {PID} (x)"]
)
def test_a_kill_that_the_log_names_is_proof(
    machine: Machine, logging: OomWatch, record: str
) -> None:
    """Even if this daemon sent a SIGKILL too."""
    machine.kills(1)
    machine.says("6,1,2,-;usb 1-1: new device\n SUBSYSTEM=usb\n", record)
    assert logging.verdict(PID, sent=True)
    assert not logging.verdict(PID), "one line is about one death"


@pytest.mark.parametrize(
    "record",
    [
        f"11,812,99,-;Out of memory: Killed process {PID} (worker)",  # from a user's program
        f"6,1,2,-;worker[1]: Out of memory: Killed process {PID} (x)",
        f"3,1,2,-;Out of memory: Killed process {PID}1 (x)",
        f"3,1,2,-;details follow\n Out of memory: Killed process {PID} (x)",
        f"Out of memory: Killed process {PID} (x)",
        b"3,1,2,-;Out of memory: Killed process \xff (x)",
        b"\xff",
    ],
)
def test_a_line_that_is_not_the_kernels_word_is_no_proof(
    machine: Machine, logging: OomWatch, record: str | bytes
) -> None:
    """Anybody who may write to the log may write such a line."""
    machine.says(record)
    assert not logging.verdict(PID)


def test_a_kill_of_another_process_is_not_the_workers(machine: Machine, logging: OomWatch) -> None:
    """The log explains what was counted, so nothing is left for this death."""
    machine.kills(1)
    machine.says(GLOBAL.replace(str(PID), "815"))
    assert not logging.verdict(PID)


def test_a_kill_is_believed_before_its_line_is_there(machine: Machine, logging: OomWatch) -> None:
    """The kernel counts, kills, and only then writes; the line explains no other death."""
    machine.kills(1)
    assert logging.verdict(PID)
    machine.kills(2)
    machine.says(GLOBAL, GLOBAL.replace(str(PID), "815"))
    assert not logging.verdict(816)


def test_a_log_that_was_overwritten_is_read_on(
    machine: Machine, logging: OomWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel says once that records are lost, and goes on after them."""
    read, lost = os.read, [BrokenPipeError(32, "Broken pipe")]

    def overwritten(descriptor: int, size: int) -> bytes:
        if lost:
            raise lost.pop()
        return read(descriptor, size)

    monkeypatch.setattr(os, "read", overwritten)
    machine.says(GLOBAL)
    assert logging.verdict(PID)


def test_a_flood_in_the_log_holds_nobody_up(
    machine: Machine, logging: OomWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look reads so many records and no more; the rest is for the next look."""
    monkeypatch.setattr("supervisord_llm.host.oom._MOST_RECORDS", 3)
    machine.says(*["6,1,2,-;noise"] * 4, GLOBAL)
    assert not logging.verdict(PID)
    assert logging.verdict(PID)


def test_the_log_is_read_from_now_on(tmp_path: Path) -> None:
    """What was killed before, under the same pid, was somebody else."""
    path = tmp_path / "kmsg"
    path.write_text(GLOBAL)
    this = Path("/proc/self/ns/pid")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("supervisord_llm.host.oom._FIRST_PID_NAMESPACE", this.stat().st_ino)
        log = KernelLog.open(path, this)
        assert log is not None
        assert [] == log.victims()
        with path.open("a") as file:
            file.write(GLOBAL)
        assert [PID] == log.victims()
        log.close()
        assert KernelLog.open(tmp_path / "absent", this) is None
        os.mkfifo(tmp_path / "fifo")
        assert KernelLog.open(tmp_path / "fifo", this) is None, "what cannot be wound to its end"


def test_a_log_of_another_pid_namespace_is_not_read(tmp_path: Path) -> None:
    """It is about other processes with the same pids."""
    path = tmp_path / "kmsg"
    path.write_text("")
    assert KernelLog.open(path, Path("/proc/self/ns/net")) is None


def test_the_log_of_this_machine_can_be_looked_at() -> None:
    """Looking does not wait for a record."""
    log = KernelLog.open()
    if log is None:
        pytest.skip("the kernel's log may not be read here, or this is a container")
    assert os.getpid() not in log.victims()
    log.close()


# Counters alone -------------------------------------------------------------------


def test_without_a_log_a_fresh_kill_is_the_workers(machine: Machine) -> None:
    """Unless this daemon sent the signal: then it is more likely its own."""
    watch = machine.watch()
    assert not watch.verdict(PID), "nothing was killed"
    machine.kills(1)
    assert not watch.verdict(PID, sent=True)
    assert watch.verdict(PID)
    assert not watch.verdict(PID + 1), "one kill explains one death"


def test_an_old_kill_explains_nothing(machine: Machine) -> None:
    """It was somebody else's; what was killed before the watch is not even counted."""
    machine.kills(7)
    watch = machine.watch()
    assert not watch.verdict(PID)
    machine.kills(8)
    watch.look()
    machine.now += CREDIBLE_SECONDS
    machine.kills(9)
    watch.look()
    machine.now += 0.1
    assert watch.verdict(PID)
    assert not watch.verdict(PID + 1), "of two kills one was too old"
    machine.kills(10)
    watch.look()
    machine.now += CREDIBLE_SECONDS + 0.1
    assert not watch.verdict(PID + 2)


def test_a_name_from_the_log_is_forgotten_in_time(machine: Machine, logging: OomWatch) -> None:
    """The pid may be another worker's later."""
    machine.says(GLOBAL)
    logging.look()
    machine.now += CREDIBLE_SECONDS + 0.1
    assert not logging.verdict(PID)


def test_a_kernel_that_does_not_count_is_no_error(machine: Machine) -> None:
    """Then nothing is ever known, until it counts."""
    (machine.proc / "vmstat").unlink()
    watch = machine.watch()
    assert not watch.verdict(PID)
    assert () == watch.sources
    machine.kills(5)
    assert not watch.verdict(PID), "what came into sight was not killed just now"
    machine.kills(6)
    assert watch.verdict(PID)


def test_what_is_looked_at_can_be_told(machine: Machine, logging: OomWatch) -> None:
    """The surest comes first."""
    assert ("kernel log", str(machine.proc / "vmstat")) == logging.sources
    assert (str(machine.proc / "vmstat"),) == machine.watch().sources


# Groups ---------------------------------------------------------------------------


def test_a_workers_own_group_is_believed_either_way(machine: Machine, tmp_path: Path) -> None:
    """It counts the worker's processes and nobody else's."""
    group = WorkerGroup(tmp_path, None)
    watch = machine.watch()
    (tmp_path / "memory.events").write_text("oom 1\noom_kill 0\n")
    machine.kills(1)
    assert not watch.verdict(PID, group=group)
    (tmp_path / "memory.events").write_text("oom 1\noom_kill 1\n")
    assert watch.verdict(PID, group=group, sent=True)


def test_a_group_that_does_not_count_changes_nothing(machine: Machine, tmp_path: Path) -> None:
    """Where the memory controller is missing."""
    watch = machine.watch()
    machine.kills(1)
    assert watch.verdict(PID, group=WorkerGroup(tmp_path / "worker", None))


@pytest.mark.parametrize("version", [1, 2])
def test_the_counter_of_the_daemons_group_leaves_out_the_machine(
    cgroupfs: Cgroupfs, version: int
) -> None:
    """Of version 1, or the nearest of version 2 that counts."""
    (cgroupfs.proc / "self").symlink_to(cgroupfs.proc)
    (cgroupfs.proc / "vmstat").write_text("oom_kill 0\n")
    if version == 1:
        (cgroupfs.proc / "cgroup").write_text("4:memory:/job\n0::/\n")
        (cgroupfs.proc / "mountinfo").write_text(
            f"9 1 0:2 / {cgroupfs.point} rw - cgroup cgroup rw,memory\n"
        )
        counts = cgroupfs.root / "job" / "memory.oom_control"
        counts.parent.mkdir()
    else:
        counts = cgroupfs.group.parent / "memory.events"
    counts.write_text("under_oom 0\noom_kill 3\n")
    watch = OomWatch(lambda: 0.0, proc=cgroupfs.proc)
    assert (str(counts),) == watch.sources
    (cgroupfs.proc / "vmstat").write_text("oom_kill 1\n")
    assert not watch.verdict(PID)
    counts.write_text("under_oom 0\noom_kill 4\n")
    assert watch.verdict(PID)


def test_without_a_group_that_counts_the_machines_counter_is_taken(cgroupfs: Cgroupfs) -> None:
    """A group without the memory controller says nothing about kills."""
    (cgroupfs.proc / "self").symlink_to(cgroupfs.proc)
    (cgroupfs.proc / "vmstat").write_text("oom_kill 0\n")
    watch = OomWatch(lambda: 0.0, proc=cgroupfs.proc)
    assert (str(cgroupfs.proc / "vmstat"),) == watch.sources
    watch.close()


GREEDY = """
import sys
open(sys.argv[1] + "/cgroup.procs", "w").write("0")
held = [bytearray(b"x") * 2**24 for _ in range(64)]
"""


def test_a_real_kill_in_a_workers_group_is_told(real_group: Path) -> None:
    """A process in a group with a limit takes a gibibyte."""
    top = own_group(None, path="/")
    assert top is not None
    if "memory" not in read_words(real_group / "cgroup.controllers"):
        pytest.skip("the memory controller is not with cgroup v2 here, or is not handed down")
    write(real_group / "memory.max", str(128 * 2**20))
    group = WorkerGroup(real_group, 128 * 2**20)
    if (real_group / "memory.swap.max").exists():
        write(real_group / "memory.swap.max", "0")
    watch = OomWatch(lambda: 0.0, log=KernelLog.open())
    ran = subprocess.run([sys.executable, "-c", GREEDY, str(real_group)], check=False, timeout=60)
    assert (-9, True) == (ran.returncode, watch.verdict(PID, group=group))
    assert group.oom_kills() == 1
    watch.close()
