from __future__ import annotations

import errno
import socket

import pytest
import trio

from supervisord_llm.api import server, tcp_listener
from supervisord_llm.api.listeners import Listener, open_listeners
from supervisord_llm.api.stream import GuardedStream
from supervisord_llm.api.tcp_listener import TcpListener
from supervisord_llm.config.schema import ListenConfig
from supervisord_llm.errors import AddressInUse, OperatorError
from supervisord_llm.events import HttpRefused
from tests.api.conftest import OpenDoor
from tests.api.raw import GENERATE, get, post, read_to_end, read_until, stream_lines

ANY = "tcp:127.0.0.1:0"


def listen(address: str) -> ListenConfig:
    """Return the configuration of a listener."""
    return ListenConfig(address=address, serve=("probe",))


def port_of(listener: Listener) -> int:
    """Return where it listens."""
    assert isinstance(listener, TcpListener)
    return listener.port


def test_any_port_is_told(no_fd_leak: None) -> None:
    """Port 0 is one that the kernel chooses; the listener knows which, and it is reachable."""
    with open_listeners([listen(ANY), listen(ANY)]) as listeners:
        ports = [port_of(each) for each in listeners]
        assert 2 == len(set(ports))
        assert [f"tcp:127.0.0.1:{port}" for port in ports] == [each.address for each in listeners]
        socket.create_connection(("127.0.0.1", ports[0])).close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", ports[0]))


def test_a_daemon_may_follow_another_at_once() -> None:
    """Connections that the former one has closed are no obstacle."""
    with open_listeners([listen(ANY)]) as [first]:
        port = port_of(first)
        with socket.create_connection(("127.0.0.1", port)):
            accepted = first.socket.accept()[0]
            accepted.close()
    with open_listeners([listen(f"tcp:127.0.0.1:{port}")]) as [second]:
        assert port == port_of(second)


def test_an_address_that_is_taken_is_named(no_fd_leak: None) -> None:
    """And nothing else that was opened before stays open."""
    with open_listeners([listen(ANY)]) as [first]:
        expected = f"cannot listen on {first.address}: another program does; stop that one"
        with (
            pytest.raises(AddressInUse, match=expected),
            open_listeners([listen(ANY), listen(first.address)]),
        ):
            pass


def test_an_address_of_another_machine_is_named(no_fd_leak: None) -> None:
    """192.0.2.0/24 is for documentation, so nobody has it."""
    with (
        pytest.raises(OperatorError, match="no interface of this machine has that address"),
        open_listeners([listen("tcp:192.0.2.1:0")]),
    ):
        pass


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.EACCES, "that port needs a privilege; choose one from 1024 on"),
        (errno.EAFNOSUPPORT, "this machine has no IPv6; write an IPv4 address"),
        (errno.EINVAL, "Invalid argument; change listen.address"),
    ],
)
def test_what_the_kernel_refuses_is_told_with_a_remedy(
    monkeypatch: pytest.MonkeyPatch, number: int, remedy: str
) -> None:
    """Root may take any port here, so the kernel's answer is forced."""

    def refuse(*_: object) -> socket.socket:
        raise OSError(number, "Invalid argument")

    monkeypatch.setattr(socket, "socket", refuse)
    with (
        pytest.raises(OperatorError, match=remedy),
        open_listeners([listen("tcp:127.0.0.1:80")]),
    ):
        pass


def test_ipv6_is_ipv6_alone() -> None:
    """[::] leaves 0.0.0.0 to a listener of its own, on every machine."""
    try:
        with open_listeners([listen("tcp:[::1]:0")]) as [listener]:
            assert f"tcp:[::1]:{port_of(listener)}" == listener.address
            only = listener.socket.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)
            assert 1 == only
    except OperatorError:
        pytest.skip("this machine has no IPv6")


async def test_a_generation_is_streamed(open_door: OpenDoor) -> None:
    """Token by token, as on a Unix socket."""
    async with open_door(address=ANY) as door, await door.connect() as stream:
        await stream.send_all(post("/api/v1/generate", GENERATE))
        request = await door.pool.next_request()
        await read_until(stream, b"accepted")
        door.pool.assign(request)
        request.output(["Hel"], door.daemon.clock.now())
        await read_until(stream, b'"text":"Hel"')
        door.pool.complete(request)
        lines = await stream_lines(stream, lambda line: line["event"] == "finished")
        assert "completed" == lines[-1]["outcome"]


async def test_nothing_is_held_back_and_a_lost_client_is_noticed(
    open_door: OpenDoor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Accepted sockets send small pieces at once, and probe a client that has fallen silent."""
    sockets = []

    class Noted(GuardedStream):
        def __init__(self, stream: trio.SocketStream, *, send_timeout: float) -> None:
            super().__init__(stream, send_timeout=send_timeout)
            sockets.append(stream.socket)

    monkeypatch.setattr(server, "GuardedStream", Noted)
    async with open_door(address=ANY) as door, await door.connect() as stream:
        await stream.send_all(get("/livez"))
        await read_until(stream, b"live\n")
        [accepted] = sockets
        options = [
            (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
            (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
            (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, tcp_listener.KEEPALIVE_IDLE),
            (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, tcp_listener.KEEPALIVE_INTERVAL),
            (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, tcp_listener.KEEPALIVE_PROBES),
        ]
        for level, option, expected in options:
            assert expected == accepted.getsockopt(level, option)


async def test_a_client_that_closes_its_sending_side_cancels(open_door: OpenDoor) -> None:
    """Over TCP as on a Unix socket; it is sent the end all the same."""
    async with open_door(address=ANY) as door, await door.connect() as stream:
        await stream.send_all(post("/api/v1/generate", GENERATE))
        request = await door.pool.next_request()
        await read_until(stream, b"accepted")
        await stream.send_eof()
        with trio.fail_after(5):
            await request.wait_finished()
        assert b'"outcome":"cancelled"' in await read_to_end(stream)


async def test_a_peer_is_told_by_its_address(open_door: OpenDoor) -> None:
    """An event names the address and port that the client sees as its own."""
    async with open_door(address=ANY) as door, await door.connect() as stream:
        host, port = stream.socket.getsockname()
        await stream.send_all(b"GARBAGE\r\n\r\n")
        await read_to_end(stream)
        refused = await door.daemon.wait_event(HttpRefused)
        assert f"tcp:{host}:{port}" == refused.peer


async def test_a_client_that_is_gone_before_it_is_asked_harms_nobody(open_door: OpenDoor) -> None:
    """A reset right after the connection leaves no name to ask for, and no event."""
    async with open_door(address=ANY) as door:
        for _ in range(20):
            stream = await door.connect()
            linger = b"\x01\0\0\0\0\0\0\0"  # on, for 0 seconds: closing sends a reset
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            await stream.aclose()
        async with await door.connect() as stream:
            await stream.send_all(get("/livez", "connection: close"))
            assert (await read_to_end(stream)).endswith(b"live\n")
        assert not door.daemon.events
