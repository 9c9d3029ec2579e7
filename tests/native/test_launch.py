from __future__ import annotations

import os
import resource
import signal
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from tests.native.sim import PATIENCE, program, wait_until

PYTHON = [sys.executable, "-S", "-E", "-c"]


def launch(
    *options: str, command: Sequence[str] = ("true",), parent: int | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command through the launcher, to its end."""
    parents = ["--parent", str(os.getpid() if parent is None else parent)]
    return subprocess.run(
        [program("sllm-launch"), *parents, *options, "--", *command],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def tells(expression: str, *options: str) -> str:
    """What Python says of itself behind the launcher."""
    done = launch(*options, command=[*PYTHON, f"import os, resource, signal; print({expression})"])
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


def test_the_command_takes_the_launchers_place() -> None:
    """Same process, its arguments, its exit status."""
    assert launch(command=["sh", "-c", "echo $1; exit 7", "sh", "a b"]).stdout == "a b\n"
    assert launch(command=["sh", "-c", "exit 7"]).returncode == 7


def test_it_leads_a_session_of_its_own() -> None:
    """A leader of session and group."""
    assert tells("os.getsid(0) == os.getpgid(0) == os.getpid()") == "True"


def test_a_session_leader_stays_one() -> None:
    """The daemon starts it as one."""
    done = subprocess.run(
        [
            *(program("sllm-launch"), "--parent", str(os.getpid()), "--"),
            *(*PYTHON, "import os; print(os.getsid(0) == os.getpid())"),
        ],
        start_new_session=True,
        capture_output=True,
        check=True,
    )
    assert done.stdout == b"True\n"


def test_another_parent_is_status_125_and_nothing_runs() -> None:
    """Otherwise a parent that died in between would leave a worker that nothing ends."""
    done = launch(command=["echo", "ran"], parent=1)
    assert (done.returncode, done.stdout) == (125, "")
    assert str(os.getpid()) in done.stderr


def test_it_dies_with_its_parent() -> None:
    """SIGKILL of the parent is SIGKILL of the worker."""
    script = (
        "import os, subprocess, sys, time\n"
        f"command = [{program('sllm-launch')!r}, '--parent', str(os.getpid()), '--']\n"
        "worker = subprocess.Popen([*command, 'sleep', '300'])\n"
        "print(worker.pid, flush=True)\n"
        "time.sleep(300)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        worker = psutil.Process(int(parent.stdout.readline()))
        wait_until(lambda: worker.name() == "sleep")
        parent.kill()
        wait_until(lambda: not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE)


def test_signals_are_as_in_a_new_process() -> None:
    """Nothing ignored or blocked, whatever the parent does (Python ignores SIGPIPE itself)."""
    script = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGUSR1])\n"
        "os.execv(sys.argv[1], sys.argv[1:])\n"
    )
    launcher = [program("sllm-launch"), "--parent", str(os.getpid()), "--"]
    done = subprocess.run(
        [sys.executable, "-c", script, *launcher, "cat", "/proc/self/status"],
        capture_output=True,
        text=True,
        check=True,
    )
    facts = dict(line.split(":", 1) for line in done.stdout.splitlines())
    assert int(facts["SigIgn"], 16) == 0
    assert int(facts["SigBlk"], 16) == 0


def test_privileges_cannot_be_gained() -> None:
    """No-new-privileges is set."""
    status = launch(command=["cat", "/proc/self/status"]).stdout
    assert "NoNewPrivs:\t1" in status


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
    """What the parent passes is there; nothing else is opened or closed."""
    read_end, write_end = os.pipe()
    try:
        subprocess.run(
            [
                *(program("sllm-launch"), "--parent", str(os.getpid()), "--"),
                *(*PYTHON, f"import os; os.write({write_end}, b'through')"),
            ],
            pass_fds=[write_end],
            check=True,
        )
        assert os.read(read_end, 100) == b"through"
    finally:
        os.close(read_end)
        os.close(write_end)


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


@pytest.mark.parametrize("words", [[], ["--parent", "1"], ["--parent", "1", "--"], ["--", "true"]])
def test_without_a_parent_or_a_command_it_is_125(words: list[str]) -> None:
    """Both are required."""
    done = subprocess.run([program("sllm-launch"), *words], capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (125, b"")


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
    with subprocess.Popen(
        [program("sllm-launch"), "--parent", str(os.getpid()), "--", "sleep", "300"]
    ) as process:
        wait_until(lambda: psutil.Process(process.pid).name() == "sleep")
        process.terminate()
        assert process.wait(PATIENCE) == -signal.SIGTERM
