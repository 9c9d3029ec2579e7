"""The launcher after its start: it tells of the worker's end, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from supervisord_llm.host import tree
from tests.native.launched import launched
from tests.native.sim import program, wait_until

SECONDS = 2.0
"""How soon everything must be gone; it takes milliseconds."""
SLEEP = ["sleep", "300"]

STUBBORN = "trap '' TERM HUP INT; "
"""A shell, and what it starts, that no signal ends but SIGKILL."""
FAMILY = (
    STUBBORN + "sleep 300 & setsid sleep 300 & env -i setsid -f sleep 300; "
    "env -i setsid -f sh -c \"trap '' TERM; setsid -f sleep 300; exec sleep 300\"; "
)
"""Begins processes that stay and leave in every way."""
SLEEPERS = 5


def family(guardian: int) -> list[tree.ProcessFacts]:
    """What lives below a guardian, once all that `FAMILY` begins has left its parents.

    Four sessions besides the shell's, and three orphans.
    """

    def look() -> list[tree.ProcessFacts]:
        found = tree.descendants(guardian, tree.scan()).values()
        return [facts for facts in found if facts.living]

    def settled() -> bool:
        sleepers = [facts for facts in look() if _command(facts.pid) == "sleep"]
        orphans = [facts for facts in sleepers if facts.ppid == guardian]
        return (
            len(sleepers) == SLEEPERS
            and len({facts.session for facts in sleepers}) == SLEEPERS
            and len(orphans) >= 3
        )

    wait_until(settled)
    return look()


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def lives(facts: tree.ProcessFacts) -> bool:
    """Whether that very process still runs."""
    now = tree.read(facts.pid)
    return now is not None and now.start_time == facts.start_time and now.living


def gone_soon(left: list[tree.ProcessFacts]) -> None:
    """Wait for the end of all of these, but not long."""
    deadline = time.monotonic() + SECONDS
    while [facts for facts in left if lives(facts)]:
        assert time.monotonic() < deadline, [facts for facts in left if lives(facts)]
        time.sleep(0.005)


# The worker's end ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "line"),
    [
        ("exit 0", "exited 0"),
        ("exit 255", "exited 255"),
        ("kill -KILL $$", "signalled 9 0"),
        ("kill -40 $$", "signalled 40 0"),
    ],
)
def test_it_tells_how_the_worker_ended(script: str, line: str) -> None:
    """With its number, be it a status or a signal."""
    with launched(command=["sh", "-c", script]) as made:
        made.started()
        assert made.line() == line
        assert made.finish() == 0


def test_it_tells_of_a_core_dump(tmp_path: Path) -> None:
    """Where the system lets a process dump one."""
    pattern = Path("/proc/sys/kernel/core_pattern").read_text()
    if "/" in pattern or pattern.startswith("|"):
        pytest.skip(f"cores go elsewhere: {pattern.strip()}")
    script = f"cd {tmp_path}; kill -ABRT $$"
    with launched("--rlimit", "core=unlimited", command=["sh", "-c", script]) as made:
        made.started()
        assert made.line() == "signalled 6 1"


def test_an_ended_worker_keeps_its_pid_until_it_is_let_go() -> None:
    """A zombie: a signal to its group can reach nobody else."""
    with launched(command=["true"]) as made:
        worker = made.started()
        assert made.line() == "exited 0"
        assert worker.status() == psutil.STATUS_ZOMBIE
        assert made.finish() == 0
        assert not worker.is_running()


def test_it_tells_of_an_end_that_it_brings_about() -> None:
    """To whoever lets go before the worker has ended."""
    with launched(command=SLEEP) as made:
        made.started()
        assert made.finish() == 0
        assert (made.line(), made.line()) == ("signalled 9 0", "")


def test_orphans_do_not_pile_up() -> None:
    """It reaps what it adopts while the worker runs, and after that."""
    script = "for i in 1 2 3 4 5; do setsid -f true; done; {then}"
    with launched(command=["sh", "-c", script.format(then="sleep 300")]) as made:
        worker = made.started().pid
        wait_until(lambda: (facts := tree.read(worker)) is not None and facts.state == "S")
        wait_until(lambda: not tree.adopted_zombies(made.guardian.pid, workers=[worker]))
    with launched(command=["sh", "-c", "setsid -f sleep 0.05; exit 0"]) as made:
        worker = made.started().pid
        assert made.line() == "exited 0"
        wait_until(lambda: set(tree.descendants(made.guardian.pid, tree.scan())) == {worker})


# No orphans ---------------------------------------------------------------------------------------


def test_nothing_is_left_once_it_is_let_go() -> None:
    """Whatever left for another session, cleared its environment or ignores signals."""
    with launched(command=["sh", "-c", FAMILY + "wait"]) as made:
        left = family(made.guardian.pid)
        assert len(left) == SLEEPERS + 1
        started = time.monotonic()
        assert made.finish() == 0
        assert time.monotonic() - started < SECONDS
        assert [facts for facts in left if lives(facts)] == []


def test_nothing_is_left_of_an_ended_worker() -> None:
    """What it left behind ends once the guardian is let go, not before."""
    with launched(command=["sh", "-c", FAMILY + "exit 3"]) as made:
        made.started()
        assert made.line() == "exited 3"
        left = family(made.guardian.pid)
        assert len(left) == SLEEPERS
        assert made.finish() == 0
        assert [facts for facts in left if lives(facts)] == []


def test_a_family_that_does_not_stop_growing_ends() -> None:
    """A process that starts its successor and ends, over and over: faster than /proc is read."""
    script = (
        "import os\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    while True:\n"
        "        if os.fork():\n"
        "            os._exit(0)\n"
        "os.wait()\n"
    )
    with launched(command=[sys.executable, "-S", "-E", "-c", script]) as made:
        worker = made.started()
        assert made.line() == "exited 0"
        assert made.finish() == 0
        assert not worker.is_running()


@pytest.mark.parametrize("number", ["TERM", "INT", "HUP", "QUIT", "USR1", "PIPE", "ALRM", "40"])
def test_no_signal_keeps_it_from_its_duty(number: str) -> None:
    """It is told to end by its life pipe alone."""
    value = int(number) if number.isdigit() else getattr(signal, f"SIG{number}")
    with launched(command=SLEEP) as made:
        worker = made.started()
        os.kill(made.guardian.pid, value)
        os.kill(worker.pid, signal.SIGKILL)
        assert made.line() == "signalled 9 0"
        assert made.guardian.poll() is None
        assert made.finish() == 0


def test_the_worker_dies_with_its_guardian() -> None:
    """SIGKILL of the guardian is SIGKILL of the worker; the status ends without a word."""
    with launched(command=["sh", "-c", STUBBORN + "while :; do sleep 1; done"]) as made:
        worker = made.started()
        facts = tree.read(worker.pid)
        assert facts is not None
        made.guardian.kill()
        gone_soon([facts])
        assert made.line() == ""


DAEMON = """
import os, subprocess, sys, time
life, _ = os.pipe()
_, status = os.pipe()
guardian = subprocess.Popen(
    [sys.argv[1], "--parent", str(os.getpid()), "--life", str(life), "--status", str(status),
     "--", "sh", "-c", sys.argv[2]],
    pass_fds=[life, status], start_new_session=True,
)
print(guardian.pid, flush=True)
while True:  # under load
    sum(range(100000))
"""


@pytest.mark.parametrize("stop_first", [False, True])
def test_a_killed_daemon_leaves_nothing(stop_first: bool) -> None:
    """Within two seconds of its SIGKILL, be the workers running or stopped."""
    daemon = subprocess.Popen(
        [sys.executable, "-S", "-c", DAEMON, program("sllm-launch"), FAMILY + "wait"],
        stdout=subprocess.PIPE,
    )
    with daemon:
        try:
            assert daemon.stdout is not None
            guardian = tree.read(int(daemon.stdout.readline()))
            assert guardian is not None
            left = [guardian, *family(guardian.pid)]
            if stop_first:
                for facts in left[1:]:
                    tree.send_signal(facts.pid, facts.start_time, signal.SIGSTOP)
        finally:
            daemon.kill()
        gone_soon(left)


# What is whose ------------------------------------------------------------------------------------


def test_the_ends_of_the_workers_pipes_are_its_own() -> None:
    """The guardian holds none of them: a pipe ends with the worker."""
    with launched(command=["sh", "-c", "exec 1>&- 2>&-; exec sleep 300"]) as made:
        made.started()
        assert made.read(made.guardian.stdout) == ""
        links = {
            int(link.name): str(link.readlink())
            for link in Path(f"/proc/{made.guardian.pid}/fd").iterdir()
        }
        assert [links.pop(number) for number in (0, 1, 2)] == ["/dev/null"] * 3
        assert sorted(target.partition(":")[0] for target in links.values()) == [
            *("anon_inode", "pipe", "pipe")
        ]


def test_what_is_set_for_the_worker_is_not_set_for_the_guardian() -> None:
    """It must be the last to end when memory does, and quick to answer."""
    score = Path("/proc/self/oom_score_adj").read_text()
    options = ["--oom-score-adj", "900", "--nice", "7", "--rlimit", "nofile=50"]
    with launched(*options, command=SLEEP) as made:
        worker = made.started()
        pids = (made.guardian.pid, worker.pid)
        wait_until(lambda: worker.name() == "sleep")
        assert [os.getpriority(os.PRIO_PROCESS, pid) for pid in pids] == [
            os.getpriority(os.PRIO_PROCESS, 0),
            7,
        ]
        scores = [Path(f"/proc/{pid}/oom_score_adj").read_text() for pid in pids]
        assert scores == [score, "900\n"]
        assert psutil.Process(made.guardian.pid).name() == "sllm-guardian"


# Its cgroup ---------------------------------------------------------------------------------------


def test_the_worker_joins_its_cgroup_and_is_killed_with_it(tmp_path: Path) -> None:
    """0 stands for whoever writes it: the worker, before its start is told."""
    for name in ("cgroup.procs", "cgroup.kill"):
        (tmp_path / name).touch()
    with launched("--cgroup", str(tmp_path), command=SLEEP) as made:
        made.started()
        assert (tmp_path / "cgroup.procs").read_text() == "0"
        assert (tmp_path / "cgroup.kill").read_text() == ""
        assert made.finish() == 0
        assert (tmp_path / "cgroup.kill").read_text() == "1"


def test_a_cgroup_that_cannot_be_joined_is_a_warning(tmp_path: Path) -> None:
    """The command runs all the same, and nothing is killed through it."""
    folder = tmp_path / "gone"
    with launched("--cgroup", str(folder), command=["echo", "ran"]) as made:
        made.started()
        assert made.read(made.guardian.stdout) == "ran\n"
        assert made.read(made.guardian.stderr) == (
            f"sllm-launch: cannot join the cgroup {folder}: No such file or directory; "
            "going on without it\n"
        )
        assert made.line() == "exited 0"
        assert made.finish() == 0
