from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from supervisord_llm.api.inherited import Passed, PassedListener, adopt
from supervisord_llm.api.listeners import open_listeners
from supervisord_llm.api.tcp_listener import TcpListener
from supervisord_llm.config.schema import ListenConfig
from supervisord_llm.host.systemd import PassedSocket


class Manager:
    """Makes sockets as a service manager does, and hands over copies of them."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self._stack = stack

    def unix(self, path: str, name: str = "") -> PassedSocket:
        """A Unix socket with a path, which is below the folder unless it is absolute."""
        return self.bound(socket.AF_UNIX, str(self.folder / path), name)

    def tcp(self, host: str, name: str = "") -> tuple[PassedSocket, int]:
        """A TCP socket, and its port."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = self._socket(family)
        sock.bind((host, 0))
        sock.listen()
        return PassedSocket(name, os.dup(sock.fileno())), sock.getsockname()[1]

    def bound(self, family: socket.AddressFamily, address: str, name: str = "") -> PassedSocket:
        """A socket that listens."""
        sock = self._socket(family)
        sock.bind(address)
        sock.listen()
        return PassedSocket(name, os.dup(sock.fileno()))

    def _socket(self, family: socket.AddressFamily) -> socket.socket:
        return self._stack.enter_context(socket.socket(family))


@pytest.fixture
def manager(tmp_path: Path, no_fd_leak: None) -> Iterator[Manager]:
    """A service manager."""
    with ExitStack() as stack:
        yield Manager(tmp_path, stack)


def at(path: Path, name: str = "", **more: object) -> ListenConfig:
    """A listener on a Unix socket."""
    return ListenConfig(address=f"unix:{path}", name=name, **more)  # type: ignore[arg-type]


def only_problem(found: Passed) -> str:
    """The one reason why the daemon cannot start."""
    assert {} == found.listeners
    [problem] = found.problems
    return problem


def test_a_socket_is_found_by_its_name_or_its_address(tmp_path: Path, manager: Manager) -> None:
    """The name goes first; wherever a named Unix socket is, that is the unit's business."""
    configs = [
        at(tmp_path / "a", "control"),
        at(tmp_path / "b"),
        at(tmp_path / "c", "own"),
        at(tmp_path / "d"),
    ]
    passed = [
        manager.unix("c", "some.socket"),
        manager.unix("b", "some.socket"),
        manager.unix("elsewhere", "control"),
    ]
    found = adopt(configs, passed)
    assert ([], []) == (found.problems, found.warnings)
    assert [0, 1, 2] == sorted(found.listeners)
    expected = [f"unix:{tmp_path}/{name}" for name in ("elsewhere", "b", "c")]
    assert expected == [found.listeners[index].address for index in range(3)]
    assert all(found.listeners[index].config is configs[index] for index in range(3))
    found.close()


def test_the_others_are_made_by_the_daemon(tmp_path: Path, manager: Manager) -> None:
    """In the order of the configuration; a passed socket's file stays, and it listens on."""
    configs = [at(tmp_path / "own"), at(tmp_path / "passed")]
    found = adopt(configs, [manager.unix("passed")])
    with open_listeners(configs, passed=found.listeners) as listeners:
        assert [config.address for config in configs] == [each.address for each in listeners]
        assert isinstance(listeners[1], PassedListener)
        assert not listeners[1].socket.getblocking()
    assert ["passed"] == [entry.name for entry in tmp_path.iterdir()]
    with socket.socket(socket.AF_UNIX) as client:
        assert 0 == client.connect_ex(str(tmp_path / "passed"))


def test_passed_sockets_are_closed_if_another_cannot_be_made(
    tmp_path: Path, manager: Manager
) -> None:
    """Nothing is left open by a start that fails."""
    configs = [at(tmp_path / "absent" / "own"), at(tmp_path / "passed")]
    found = adopt(configs, [manager.unix("passed")])
    with (
        pytest.raises(Exception, match="there is no such folder"),
        open_listeners(configs, passed=found.listeners),
    ):
        pass
    assert -1 == found.listeners[1].socket.fileno()


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_tcp_sockets_are_passed_too(manager: Manager, host: str) -> None:
    """By their address, which is what the keys were judged by."""
    passed, port = manager.tcp(host)
    shown = f"[{host}]" if ":" in host else host
    config = ListenConfig(address=f"tcp:{shown}:{port}", serve=("probe",))
    found = adopt([config], [passed])
    assert isinstance(found.listeners[0], TcpListener)
    assert config.address == found.listeners[0].address
    sock = found.listeners[0].socket
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)  # for clients that vanish
    found.close()


def test_a_name_that_was_not_passed_is_a_warning(tmp_path: Path, manager: Manager) -> None:
    """The daemon makes that socket itself; without any that were passed, that is as usual."""
    configs = [at(tmp_path / "a", "control"), at(tmp_path / "b", "inference"), at(tmp_path / "c")]
    found = adopt(configs, [manager.unix("a", "control")])
    [warning] = found.warnings
    assert warning.message.startswith(
        'the service manager passed no socket for listen[1], whose name is "inference"'
    )
    found.close()
    assert Passed({}, [], []) == adopt(configs, [])


def test_a_socket_that_nobody_serves_is_refused(tmp_path: Path, manager: Manager) -> None:
    """Whoever connects to it would wait for ever."""
    problem = only_problem(adopt([at(tmp_path / "a", "control")], [manager.unix("b", "other")]))
    assert (
        'cannot use the socket "other" that the service manager passed: no [[listen]] has its name '
        f"or its address, unix:{tmp_path}/b; add one, or stop passing it"
    ) == problem


def test_two_sockets_for_one_listener_are_refused(tmp_path: Path, manager: Manager) -> None:
    """One would be served and one not."""
    passed = [manager.unix("a", "control"), manager.unix("b", "control")]
    found = adopt([at(tmp_path / "a", "control")], passed)
    [problem] = found.problems
    assert "listen[0] has a socket already" in problem
    found.close()


def test_the_control_socket_cannot_become_one_for_the_network(
    tmp_path: Path, manager: Manager
) -> None:
    """A unit that passes TCP under its name is refused, as the configuration would be."""
    passed, _ = manager.tcp("127.0.0.1", "control")
    problem = only_problem(adopt([at(tmp_path / "a", "control")], [passed]))
    assert "that of listen[0] is of another kind; correct it" in problem


def test_a_loopback_listener_cannot_become_one_for_others(manager: Manager) -> None:
    """The configuration lets everybody in because only this machine can connect."""
    passed, port = manager.tcp("0.0.0.0", "web")
    config = ListenConfig(
        address=f"tcp:127.0.0.1:{port}",
        name="web",
        serve=("inference",),
        allow_without_key=True,
    )
    problem = only_problem(adopt([config], [passed]))
    assert f"its address is tcp:0.0.0.0:{port}, and that of listen[0] is another" in problem


def test_a_socket_without_permissions_is_refused(tmp_path: Path, manager: Manager) -> None:
    """One without a path can be used by everybody on the machine."""
    name = f"\0{tmp_path}"
    passed = manager.bound(socket.AF_UNIX, name, "control")
    problem = only_problem(adopt([at(tmp_path / "a", "control")], [passed]))
    assert "use the path of a socket, or TCP" in problem


def test_what_does_not_listen_is_refused(tmp_path: Path, manager: Manager) -> None:
    """A datagram socket, a connection (``Accept=yes``), a pipe."""
    config = at(tmp_path / "a", "control")
    ours, theirs = socket.socketpair()
    datagram = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    with ours, theirs, datagram:
        for sock in (ours, datagram):
            found = adopt([config], [PassedSocket("control", os.dup(sock.fileno()))])
            assert "nobody can connect to it" in only_problem(found)
    read, write = os.pipe()
    os.close(write)
    assert "it is no socket" in only_problem(adopt([config], [PassedSocket("control", read)]))
