"""A daemon whose sockets are held by a service manager."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

import httpx
import pytest

from supervisord_llm.host import tree
from tests.daemon.running import PROGRAM, Running
from tests.harness import SECONDS, write_config

HANDING_OVER = """
import fcntl, os, sys
fds = [int(text) for text in sys.argv[1].split(",")]
# Out of the way first: one may stand where another has to go.
high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 100) for fd in fds]
for index, fd in enumerate(high):
    os.dup2(fd, 3 + index)
    os.close(fd)
os.environ |= {
    "LISTEN_PID": str(os.getpid()), "LISTEN_FDS": str(len(fds)), "LISTEN_FDNAMES": sys.argv[2]
}
os.execv(sys.argv[3], sys.argv[3:])
"""
"""Becomes the program of its third argument, with these descriptors from 3 on and these names."""


def start(
    config: Path, sockets: Sequence[socket.socket], names: str, stderr: int | IO[bytes]
) -> subprocess.Popen[bytes]:
    """Start a daemon with sockets."""
    fds = [sock.fileno() for sock in sockets]
    handing_over = [sys.executable, "-c", HANDING_OVER, ",".join(map(str, fds)), names]
    return subprocess.Popen(
        [*handing_over, str(PROGRAM), "run", "--config", str(config)],
        stderr=stderr,
        pass_fds=fds,
    )


@contextmanager
def activated(
    folder: Path, config: Path, sockets: Sequence[socket.socket], names: str
) -> Iterator[Running]:
    """Run a daemon with sockets, from its start, which is not waited for."""
    log = folder / "log"
    with log.open("wb") as stderr:
        process = start(config, sockets, names, stderr)
    made = Running(folder, process, log)
    try:
        yield made
    finally:
        made.client.close()
        process.terminate()
        process.wait(SECONDS)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Closes sockets at the end."""
    with ExitStack() as made:
        yield made


def listening(stack: ExitStack, path: Path) -> socket.socket:
    """A socket as a service manager has it, open for as long as the test runs."""
    sock = stack.enter_context(socket.socket(socket.AF_UNIX))
    sock.bind(str(path))
    path.chmod(0o640)
    sock.listen()
    return sock


def two_listeners(folder: Path) -> Path:
    """A configuration with a control socket found by address, and another found by name."""
    config = write_config(folder)
    more = f'[[listen]]\naddress = "unix:{folder}/own.sock"\nname = "second"\nserve = ["probe"]\n'
    config.write_text(config.read_text().replace("[pool.sim]", f"{more}[pool.sim]"))
    return config


def test_passed_sockets_are_served_and_outlive_the_daemon(tmp_path: Path, stack: ExitStack) -> None:
    """Who connects before or between daemons waits, and is served by the next one."""
    sockets = [listening(stack, tmp_path / name) for name in ("control.sock", "second.sock")]
    config = two_listeners(tmp_path)
    early = stack.enter_context(socket.socket(socket.AF_UNIX))
    early.settimeout(SECONDS)
    early.connect(str(tmp_path / "second.sock"))
    early.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    with activated(tmp_path, config, sockets, "unit.socket:second") as running:
        assert early.recv(100).startswith(b"HTTP/1.1 200 ")
        running.wait("daemon.ready")
        assert running.client.get("/livez").status_code == 200
        told = [event["address"] for event in running.events("daemon.listening")]
        assert told == [f"unix:{tmp_path}/control.sock", f"unix:{tmp_path}/second.sock"]
        assert running.events("daemon.warning") == []
        [worker] = running.worker_pids()
        inodes = {f"socket:[{_inode(sock)}]" for sock in sockets}
        for pid in (worker, *tree.descendants(running.process.pid, tree.scan())):
            links = {str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir()}
            assert not links & inodes
        assert not (tmp_path / "own.sock").exists()
    assert running.process.returncode == 0
    for name in ("control.sock", "second.sock"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o640
    late = httpx.Client(transport=httpx.HTTPTransport(uds=str(tmp_path / "control.sock")))
    with late, activated(tmp_path, config, sockets, "unit.socket:second"):
        assert late.get("http://daemon/livez", timeout=SECONDS).status_code == 200


def _inode(sock: socket.socket) -> str:
    return str(Path(f"/proc/self/fd/{sock.fileno()}").readlink())[8:-1]


def test_a_socket_that_is_missing_is_made_and_warned_of(tmp_path: Path, stack: ExitStack) -> None:
    """The daemon serves all that is configured."""
    sockets = [listening(stack, tmp_path / "control.sock")]
    with activated(tmp_path, two_listeners(tmp_path), sockets, "unit.socket") as running:
        running.wait("daemon.ready")
        [warning] = running.events("daemon.warning")
        assert ("listen", True) == (warning["topic"], "second" in str(warning["message"]))
        assert (tmp_path / "own.sock").is_socket()
    assert not (tmp_path / "own.sock").exists()


def test_a_socket_too_many_is_an_error_of_the_configuration(
    tmp_path: Path, stack: ExitStack
) -> None:
    """Exit status 78, so that it is not tried again and again; every problem is named."""
    sockets = [listening(stack, tmp_path / name) for name in ("control.sock", "b", "c")]
    process = start(write_config(tmp_path), sockets, "x:other:", subprocess.PIPE)
    _, stderr = process.communicate(timeout=SECONDS)
    assert process.returncode == 78
    assert b"2 problems" in stderr
    for name in ("other", ""):
        expected = (
            f'  cannot use the socket "{name}" that the service manager passed: no [[listen]]'
        )
        assert expected.encode() in stderr
