from __future__ import annotations

import os
import resource
import shutil
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from tests.native.launched import launch, launched
from tests.native.sim import program

PYTHON = [sys.executable, "-S", "-E", "-c"]


def tells(expression: str, *options: str) -> str:
    """What Python says of itself behind the launcher."""
    done = launch(*options, command=[*PYTHON, f"import os, resource, signal; print({expression})"])
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


def test_the_command_runs_with_its_arguments() -> None:
    """Its output, its exit status."""
    assert launch(command=["sh", "-c", "echo $1; exit 7", "sh", "a b"]).stdout == "a b\n"
    assert launch(command=["sh", "-c", "exit 7"]).returncode == 7


def test_it_leads_a_session_of_its_own() -> None:
    """A leader of session and group."""
    assert tells("os.getsid(0) == os.getpgid(0) == os.getpid()") == "True"


@pytest.mark.parametrize("new_session", [True, False])
def test_the_guardian_leads_another(new_session: bool) -> None:
    """Its own, whether it was started as a session's leader, as by the daemon, or not."""
    with launched(command=["sleep", "300"], new_session=new_session) as made:
        worker = made.started().pid
        guardian = made.guardian.pid
        assert (os.getsid(guardian), os.getpgid(guardian)) == (guardian, guardian)
        assert (os.getsid(worker), os.getpgid(worker)) == (worker, worker)


def test_another_parent_is_status_125_and_nothing_runs() -> None:
    """Otherwise a parent that died in between would leave a worker that nothing ends."""
    done = launch(command=["echo", "ran"], parent=1)
    assert (done.returncode, done.stdout) == (125, "")
    assert str(os.getpid()) in done.stderr


def test_signals_are_as_in_a_new_process() -> None:
    """Nothing ignored or blocked, whatever the parent does (Python ignores SIGPIPE itself)."""
    script = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGUSR1])\n"
        "os.execv(sys.argv[1], sys.argv[1:])\n"
    )
    through = [sys.executable, "-c", script]
    status = launch(command=["cat", "/proc/self/status"], through=through).stdout
    facts = dict(line.split(":", 1) for line in status.splitlines())
    assert int(facts["SigIgn"], 16) == 0
    assert int(facts["SigBlk"], 16) == 0


def test_privileges_cannot_be_gained() -> None:
    """No-new-privileges is set."""
    status = launch(command=["cat", "/proc/self/status"]).stdout
    assert "NoNewPrivs:\t1" in status


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None,
    reason="needs root and setpriv to hand a capability on",
)
@pytest.mark.parametrize("behind_the_launcher", [True, False])
def test_ambient_capabilities_are_given_up(behind_the_launcher: bool) -> None:
    """A worker has none of those that a daemon without root's rights was started with."""
    given = ["--inh-caps=+net_bind_service", "--ambient-caps=+net_bind_service"]
    user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *given]
    look = ["cat", "/proc/self/status"]
    if behind_the_launcher:
        status = launch(command=look, through=user).stdout
    else:
        status = subprocess.run([*user, *look], capture_output=True, text=True, check=True).stdout
    facts = dict(line.split(":\t", 1) for line in status.splitlines())
    assert facts["Uid"].split()[0] == "65534"
    held = {int(facts[kind], 16) for kind in ("CapPrm", "CapEff", "CapAmb")}
    assert held == ({0} if behind_the_launcher else {1 << 10})  # CAP_NET_BIND_SERVICE


def test_limits_are_set() -> None:
    """Soft alone leaves hard; with both, both are set."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = "resource.getrlimit(resource.RLIMIT_{})"
    assert tells(limit.format("CORE"), "--rlimit", "core=0:0") == "(0, 0)"
    assert tells(limit.format("NOFILE"), "--rlimit", "nofile=99") == f"(99, {hard})"
    both = ["--rlimit", "nofile=88:99", "--rlimit", "fsize=1000:unlimited"]
    assert tells(limit.format("NOFILE"), *both) == "(88, 99)"
    assert tells(limit.format("FSIZE"), *both).startswith("(1000, ")


def test_priority_processors_and_umask_are_set() -> None:
    """Each as the option says."""
    assert tells("os.getpriority(os.PRIO_PROCESS, 0)", "--nice", "5") == "5"
    assert tells("oct(os.umask(0))", "--umask", "027") == "0o27"
    cpu = min(os.sched_getaffinity(0))
    assert tells("os.sched_getaffinity(0)", "--cpus", f"{cpu}") == f"{{{cpu}}}"
    assert tells("os.sched_getaffinity(0)", "--cpus", f"{cpu}-{cpu},{cpu}") == f"{{{cpu}}}"
    score = "open('/proc/self/oom_score_adj').read().strip()"
    assert tells(score, "--oom-score-adj", "700") == "700"


def test_processors_that_do_not_exist_are_a_warning() -> None:
    """The command runs all the same."""
    done = launch("--cpus", "1023", command=["echo", "ran"])
    assert (done.returncode, done.stdout) == (0, "ran\n")
    assert "cannot choose the processors" in done.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may lower a nice value")
def test_a_nice_value_that_is_refused_is_a_warning() -> None:
    """The command runs all the same."""
    done = launch("--nice", "-20", command=["echo", "ran"])
    assert (done.returncode, done.stdout) == (0, "ran\n")
    assert "cannot set the nice value to -20" in done.stderr


def test_descriptors_pass_through() -> None:
    """What the parent passes is there, the launcher's own pipes are not, and nothing else is."""
    read_end, write_end = os.pipe()
    try:
        script = (
            f"import os; os.write({write_end}, b'through'); print(*os.listdir('/proc/self/fd'))"
        )
        listed = launch(command=[*PYTHON, script], pass_fds=[write_end]).stdout.split()
        assert os.read(read_end, 100) == b"through"
    finally:
        os.close(read_end)
        os.close(write_end)
    # One more is the list itself.
    assert {0, 1, 2, write_end} < {int(number) for number in listed}
    assert len(listed) == 5


def test_a_command_that_is_not_there_is_127(tmp_path: Path) -> None:
    """And 126 if it is there and cannot be executed, as in shells."""
    missing = launch(command=["no-such-command"])
    assert missing.returncode == 127
    assert missing.stderr == (
        "sllm-launch: cannot execute 'no-such-command': No such file or directory\n"
    )
    refused = launch(command=[str(tmp_path)])
    assert refused.returncode == 126
    assert refused.stderr == f"sllm-launch: cannot execute '{tmp_path}': Permission denied\n"


@pytest.mark.parametrize(
    "options",
    [
        ["--nice", "20"],
        ["--nice", "x"],
        ["--nice", " 1"],
        ["--oom-score-adj", "1001"],
        ["--cpus", ""],
        ["--cpus", "1-"],
        ["--cpus", "3-1"],
        ["--cpus", "0,"],
        ["--cpus", "99999"],
        ["--rlimit", "core"],
        ["--rlimit", "core=x"],
        ["--rlimit", "core=2:1"],
        ["--rlimit", "core=1:2:3"],
        ["--rlimit", "score=1"],
        ["--rlimit", "nofile=-1"],
        ["--umask", "8"],
        ["--umask", "1000"],
        ["--parent", "0"],
        ["--parent", "1x"],
        ["--life", "2"],
        ["--life", "99999"],
        ["--status", "x"],
        ["--speed", "9"],
        ["--nice"],
        ["word"],
        [word for _ in range(17) for word in ("--rlimit", "core=0")],
    ],
)
def test_a_mistake_in_the_options_is_125_and_nothing_runs(options: list[str]) -> None:
    """One line that names the option."""
    done = launch(*options, command=["echo", "ran"])
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr.startswith("sllm-launch: ")
    assert done.stderr.count("\n") == 1
    assert options[0] in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--", "true"],
        ["--parent", "1", "--", "true"],
    ],
)
def test_without_a_parent_pipes_or_a_command_it_is_125(words: list[str]) -> None:
    """All are required."""
    done = subprocess.run([program("sllm-launch"), *words], capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (125, b"")
    assert done.stderr.startswith(b"sllm-launch: no ")


def test_a_hard_limit_that_cannot_be_set_is_125() -> None:
    """A worker without the limit that was asked for is not started."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    done = launch("--rlimit", f"nofile={hard + 2**40}:{hard + 2**40}", command=["echo", "ran"])
    assert (done.returncode, done.stdout) == (125, "")
    assert "nofile" in done.stderr


def test_help_explains_and_ends() -> None:
    """--help is for stdout and status 0."""
    done = subprocess.run(
        [program("sllm-launch"), "--help"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("usage: sllm-launch --parent PID")


def test_it_is_one_static_file() -> None:
    """Its ELF program headers name no interpreter, so nothing is linked when it starts."""
    found = subprocess.run(["c++", "-print-file-name=libc.a"], capture_output=True, check=False)
    if found.returncode != 0 or not Path(found.stdout.decode().strip()).is_absolute():
        pytest.skip("the C library has no static form here")
    binary = Path(program("sllm-launch")).read_bytes()
    offset, size, count = struct.unpack_from("<Q14xHH", binary, 32)
    kinds = {struct.unpack_from("<I", binary, offset + at * size)[0] for at in range(count)}
    load, interpreter = 1, 3
    assert load in kinds
    assert interpreter not in kinds


def test_the_worker_is_killable_at_once() -> None:
    """No handler of the launcher is left."""
    with launched(command=["sleep", "300"]) as made:
        made.started().terminate()
        assert made.line() == f"signalled {signal.SIGTERM:d} 0"
