from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisord_llm.host.systemd import (
    NotifySocket,
    PassedSocket,
    Service,
    stderr_is_journal,
    take,
)

OWN = str(os.getpid())


@pytest.fixture
def pair(no_fd_leak: None) -> Iterator[int]:
    """The lower one of two descriptors that follow each other, as passed ones do."""
    # The upper part of the table is free, whatever else the test process has open.
    first = fcntl.fcntl(0, fcntl.F_DUPFD, 200)
    second = fcntl.fcntl(0, fcntl.F_DUPFD, first + 1)
    assert second == first + 1
    yield first
    os.close(first)
    os.close(second)


def test_without_a_service_manager_there_is_nothing() -> None:
    """An ordinary start reports to nobody and gets nothing."""
    assert Service() == take({"PATH": "/bin"})
    assert Service().notify_socket() is None


def test_what_is_taken_is_gone_from_the_environment() -> None:
    """Whatever it says, and whoever it was meant for, nothing that is started sees it."""
    environ = {
        "PATH": "/bin",
        "NOTIFY_SOCKET": "/run/notify",
        "WATCHDOG_USEC": "1",
        "WATCHDOG_PID": "1",
        "LISTEN_PID": "1",
        "LISTEN_FDS": "1",
        "LISTEN_FDNAMES": "a",
    }
    assert Service(notify_address="/run/notify") == take(environ)
    assert {"PATH": "/bin"} == environ


@pytest.mark.parametrize("address", ["", "@", "run/notify", "vsock:2:1"])
def test_an_address_that_is_no_unix_socket_is_nobody(address: str) -> None:
    """The daemon runs, and reports to nobody."""
    assert Service() == take({"NOTIFY_SOCKET": address})


@pytest.mark.parametrize("abstract", [False, True])
def test_reports_reach_the_service_manager(
    tmp_path: Path, no_fd_leak: None, abstract: bool
) -> None:
    """By the path of a socket, or by a name without a path, which is written with an ``@``."""
    name = f"notify-{OWN}-{os.urandom(4).hex()}"
    address = f"@{name}" if abstract else str(tmp_path / "notify")
    notify = take({"NOTIFY_SOCKET": address}).notify_socket()
    assert notify is not None
    assert not notify.send("READY=1")  # nobody is there, and that is no error
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"\0{name}" if abstract else address)
        assert notify.send("READY=1\nSTATUS=ü \udcff")
        assert b"READY=1\nSTATUS=\xc3\xbc \\udcff" == manager.recv(100)
    notify.close()


def test_a_service_manager_that_does_not_listen_is_not_waited_for(tmp_path: Path) -> None:
    """The report is refused at once; the caller may repeat it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        notify = NotifySocket(str(tmp_path / "notify"))
        sent = 0
        while notify.send("WATCHDOG=1") and sent < 100_000:
            sent += 1
        assert 0 < sent < 100_000
        manager.recv(100)
        assert notify.send("WATCHDOG=1")
        notify.close()


@pytest.mark.parametrize(
    ("environ", "seconds"),
    [
        ({"WATCHDOG_USEC": "20000000"}, 20.0),
        ({"WATCHDOG_USEC": "500000", "WATCHDOG_PID": OWN}, 0.5),
        ({"WATCHDOG_USEC": "500000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "-1"}, None),
        ({"WATCHDOG_PID": OWN}, None),
    ],
)
def test_the_watchdog_is_a_time_and_may_be_somebody_elses(
    environ: dict[str, str], seconds: float | None
) -> None:
    """Microseconds become seconds; another process's watchdog is not ours to feed."""
    assert Service(watchdog=seconds) == take(environ)


@pytest.mark.parametrize(
    ("names", "expected"),
    [("control:inference", ("control", "inference")), ("a", ("a", "")), (None, ("", ""))],
)
def test_passed_sockets_have_names(pair: int, names: str | None, expected: tuple[str, str]) -> None:
    """In the order of the descriptors, empty where none was told."""
    environ = {"LISTEN_PID": OWN, "LISTEN_FDS": "2"}
    if names is not None:
        environ["LISTEN_FDNAMES"] = names
    sockets = (PassedSocket(expected[0], pair), PassedSocket(expected[1], pair + 1))
    assert sockets == take(environ, first_fd=pair).sockets


def test_passed_sockets_are_not_inherited(pair: int) -> None:
    """A service manager hands them over open for everybody; workers must not have them."""
    os.set_inheritable(pair, True)  # noqa: FBT003 - its only form
    take({"LISTEN_PID": OWN, "LISTEN_FDS": "1"}, first_fd=pair)
    assert not os.get_inheritable(pair)


@pytest.mark.parametrize(
    "environ",
    [
        {"LISTEN_FDS": "2"},
        {"LISTEN_FDS": "2", "LISTEN_PID": "1"},
        {"LISTEN_FDS": "two", "LISTEN_PID": OWN},
        {"LISTEN_FDS": "-2", "LISTEN_PID": OWN},
    ],
)
def test_sockets_that_are_not_meant_for_this_process_are_left_alone(
    pair: int, environ: dict[str, str]
) -> None:
    """The number may have been inherited, and the descriptors then be anything."""
    assert () == take(environ, first_fd=pair).sockets


def test_fewer_sockets_than_were_said_are_those_that_there_are(pair: int) -> None:
    """However many were said: the first that is not open is the end."""
    environ = {"LISTEN_PID": OWN, "LISTEN_FDS": "999999999999"}
    found = [passed.fd for passed in take(environ, first_fd=pair).sockets]
    assert [pair, pair + 1] == found


def test_the_journals_stream_is_known_by_its_numbers(no_fd_leak: None) -> None:
    """Device and inode of the descriptor are what the variable says; else it was redirected."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        found = os.fstat(ours.fileno())
        environ = {"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"}
        assert stderr_is_journal(environ, ours.fileno())
        assert not stderr_is_journal(environ, theirs.fileno())
        assert not stderr_is_journal({}, ours.fileno())
        fd = ours.fileno()
    assert not stderr_is_journal(environ, fd)
