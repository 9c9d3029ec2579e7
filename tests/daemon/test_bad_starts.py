"""A daemon that cannot start says in one line why and what to do, and leaves nothing behind."""

from __future__ import annotations

import os
import pty
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from supervisord_llm.host import tree
from tests.api.raw import post
from tests.daemon.running import daemon, running
from tests.harness import SCRIPTS, SECONDS, write_config

NOBODY = 65534

AS_NOBODY = f"""
import contextlib, encodings.ascii, os, sys
import supervisord_llm.daemon
from supervisord_llm.cli.daemon import main
# What nobody might not be allowed to read is imported by then: a check is the start of a start.
path = sys.argv[1]
with open(os.devnull, "w") as void, contextlib.redirect_stdout(void):
    sys.argv = ["supervisord-llm", "check", "--config", path]
    main()
if os.geteuid() == 0:  # who may write everywhere
    os.setgroups([])
    os.setgid({NOBODY})
    os.setuid({NOBODY})
sys.argv = ["supervisord-llm", "run", "--config", path]
sys.exit(main())
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every user may look into, with a state directory that every user may use."""
    with tempfile.TemporaryDirectory() as name:
        made = Path(name)
        made.chmod(0o755)
        (made / "state").mkdir()
        (made / "state").chmod(0o777)
        yield made


def start(config: Path) -> subprocess.CompletedProcess[str]:
    """Run a daemon that is expected not to start, without root's privileges."""
    return subprocess.run(
        [sys.executable, "-c", AS_NOBODY, config],
        cwd="/",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def listen_on(folder: Path, path: Path) -> Path:
    """A configuration with another socket."""
    config = write_config(folder)
    config.write_text(config.read_text().replace(f"{folder}/control.sock", str(path)))
    return config


def locked(folder: Path) -> Path:
    """A socket's path in a folder that nobody may write to."""
    (folder / "locked").mkdir(mode=0o555)
    return folder / "locked" / "c.sock"


def occupied(folder: Path) -> Path:
    """A path that something else has."""
    (folder / "open").mkdir()
    (folder / "open").chmod(0o777)
    (folder / "open" / "c.sock").write_text("precious")
    return folder / "open" / "c.sock"


@pytest.mark.parametrize(
    ("where", "message"),
    [
        pytest.param(
            lambda folder: folder / "absent" / "c.sock",
            "cannot listen in {folder}/absent: there is no such folder; create it, or change "
            "listen.address",
            id="no folder",
        ),
        pytest.param(
            locked,
            "cannot listen in {folder}/locked: it is not writable by user id {uid}; change its "
            "owner or mode, or listen.address",
            id="not writable",
        ),
        pytest.param(
            occupied,
            "cannot listen on unix:{folder}/open/c.sock: something that is not a socket has that "
            "name; move it away, or change listen.address",
            id="a file",
        ),
    ],
)
def test_a_socket_path_that_cannot_be_had(
    folder: Path, where: Callable[[Path], Path], message: str
) -> None:
    """Exit 1, one line with the remedy; nothing was made, nothing was taken away."""
    config = listen_on(folder, where(folder))
    before = sorted(folder.glob("*")), sorted(folder.glob("[lo]*/*"))

    done = start(config)

    uid = NOBODY if os.geteuid() == 0 else os.geteuid()
    expected = f"supervisord-llm: {message.format(folder=folder, uid=uid)}\n"
    assert (1, "", expected) == (done.returncode, done.stdout, done.stderr)
    assert before == (sorted(folder.glob("*")), sorted(folder.glob("[lo]*/*")))


def test_a_socket_path_that_is_too_long(folder: Path) -> None:
    """That is a fault of the configuration, whatever the machine."""
    path = folder / ("x" * 120)
    config = listen_on(folder, path)

    done = subprocess.run(
        [SCRIPTS / "supervisord-llm", "run", "--config", config],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )

    assert 78 == done.returncode
    length = len(os.fsencode(path))
    assert f"the path has {length} bytes, and a Unix socket's may have 107; " in done.stderr
    assert [] == list(folder.glob("x*"))


def test_a_state_directory_that_cannot_be_written(folder: Path) -> None:
    """The same for the other place that a daemon needs."""
    (folder / "state").chmod(0o555)

    done = start(write_config(folder))

    expected = (
        f"supervisord-llm: cannot keep records of workers in {folder}/state/workers: Permission "
        "denied; give daemon.state_dir a folder that this user can write\n"
    )
    assert (1, expected) == (done.returncode, done.stderr)


def test_more_threads_than_cores_are_warned_of(tmp_path: Path) -> None:
    """By an event at the start, which changes nothing, and by ``check``."""
    cores = len(os.sched_getaffinity(0))
    config = write_config(tmp_path, workers=cores + 1)
    checked = subprocess.run(
        [SCRIPTS / "supervisord-llm", "check", "--config", config],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    with running(tmp_path, config) as it:
        [warning] = it.events("daemon.warning")
        assert cores + 1 == len(it.worker_pids())
    message = f"the workers of all pools compute with {cores + 1} threads on {cores} core"
    remedy = "lower workers, or give each slot cores of its own in limits.cpus"
    assert "threads" == warning["topic"]
    assert message in str(warning["message"])
    assert remedy == warning["remedy"]
    assert 0 == checked.returncode
    [line] = checked.stderr.splitlines()
    assert line.startswith(f"warning: {message}")
    assert line.endswith(f"; {remedy}")


def test_the_socket_of_a_killed_daemon_is_taken_over(tmp_path: Path) -> None:
    """The file that it left is no obstacle and is replaced by one that answers."""
    with daemon(tmp_path) as first:
        first.process.kill()
        first.process.wait(SECONDS)
        left = first.socket.stat().st_ino
    with daemon(tmp_path) as second:
        assert left != second.socket.stat().st_ino
        assert 200 == second.client.get("/livez").status_code
        assert [] == second.events("daemon.error")


def test_a_terminal_that_closes_stops_the_daemon_in_order(tmp_path: Path) -> None:
    """The hangup of a session's terminal is a first SIGTERM: exit 0, no worker, no socket left."""
    config = write_config(tmp_path, workers=2)
    pid, terminal = pty.fork()
    if pid == 0:
        program = SCRIPTS / "supervisord-llm"
        os.execv(program, [str(program), "run", "--config", str(config)])
    try:
        shown = b""
        while b"daemon.ready" not in shown:
            shown += os.read(terminal, 65536)
        workers = [facts for facts in tree.descendants(pid, tree.scan()).values() if facts.living]
        assert 4 == len(workers)  # each with its guardian
    finally:
        os.close(terminal)
        status = wait_exit(pid)
    assert 0 == os.waitstatus_to_exitcode(status)
    for worker in workers:
        now = tree.read(worker.pid)
        assert now is None or now.start_time != worker.start_time or not now.living
    assert not (tmp_path / "control.sock").exists()


def wait_exit(pid: int) -> int:
    """Wait for a process of ours, at most as long as a test waits; its status."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return status
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    return os.waitpid(pid, 0)[1]


def test_a_client_that_does_not_read_does_not_delay_the_shutdown(tmp_path: Path) -> None:
    """Its request is over long before; its connection, with an hour to read, is cut."""
    config = write_config(tmp_path)
    text = config.read_text().replace("[pool.sim]", 'send_timeout = "1h"\n[pool.sim]')
    config.write_text(text)
    with running(tmp_path, config) as it, socket.socket(socket.AF_UNIX) as client:
        client.connect(str(it.socket))
        body = b'{"pool": "sim", "prompt": "x sim.tokens=1000000", "max_new_tokens": 1000000}'
        client.sendall(post("/api/v1/generate", body))
        finished = it.wait("request.finished")
        it.process.send_signal(signal.SIGTERM)
        assert 0 == it.process.wait(SECONDS)
        assert "slow_consumer" == finished.get("error"), it.log.read_text()
        assert not it.socket.exists()
