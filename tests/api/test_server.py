from __future__ import annotations

import logging
import socket
import sys
from pathlib import Path

import pytest
import trio
import trio.testing

from supervisord_llm.api import server
from supervisord_llm.api.connection import Connection
from supervisord_llm.api.listeners import open_listeners
from supervisord_llm.api.server import serve
from supervisord_llm.config.schema import ListenConfig
from supervisord_llm.events import DaemonError, DaemonWarning
from tests.api.conftest import Door, OpenDoor
from tests.api.raw import GENERATE, get, post, read_to_end, read_until


async def test_the_end_closes_idle_connections_and_unlinks(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A keep-alive connection does not hold up a shutdown: it is not given time, but closed."""
    monkeypatch.setattr(server, "FAREWELL", 3600.0)
    async with await door.connect() as stream:
        await stream.send_all(get("/livez"))
        await read_until(stream, b"live\n")
        door.close()
        assert b"" == await read_to_end(stream)
    await wait_gone(door)


async def test_the_end_cuts_what_does_not_end_by_itself(door: Door) -> None:
    """A generation that the daemon did not drain is cancelled with its connection."""
    async with await door.connect() as stream:
        await stream.send_all(post("/api/v1/generate", GENERATE))
        request = await door.pool.next_request()
        await read_until(stream, b"accepted")
        door.close()
        await read_to_end(stream)
    with trio.fail_after(5):
        await request.wait_finished()
    await wait_gone(door)


async def test_the_end_does_not_wait_for_a_client_that_does_not_read(
    open_door: OpenDoor,
) -> None:
    """The server's send is shielded from cancellation; cutting the stream wakes it."""
    async with open_door(send_timeout=3600.0) as door:
        client = socket.socket(socket.AF_UNIX)
        with client:
            client.connect(str(door.path))
            client.sendall(post("/api/v1/generate", GENERATE))
            request = await door.pool.next_request()
            door.pool.assign(request)
            request.output(["x" * 5_000_000], door.daemon.clock.now())
            await trio.testing.wait_all_tasks_blocked(0.05)
            door.close()
            await wait_gone(door)
            with trio.fail_after(5):
                await request.wait_finished()


async def test_a_new_connection_is_refused_after_the_end(door: Door) -> None:
    """Nothing accepts once the server was cancelled."""
    door.close()
    await wait_gone(door)
    with pytest.raises(OSError, match="No such file"):
        await door.connect()


async def test_two_listeners_serve_and_end_together(tmp_path: object, door: Door) -> None:
    """Each listener has its own groups; one scope ends both."""
    configs = [
        ListenConfig(address=f"unix:{tmp_path}/a.sock", serve=("control",)),
        ListenConfig(address=f"unix:{tmp_path}/b.sock", serve=("probe",)),
    ]
    with open_listeners(configs) as listeners:
        async with trio.open_nursery() as nursery:
            await nursery.start(serve, door.daemon.front(), listeners)
            for name, path, status in [("a", "/livez", b"404"), ("b", "/livez", b"200")]:
                async with await trio.open_unix_socket(f"{tmp_path}/{name}.sock") as stream:
                    await stream.send_all(get(path, "connection: close"))
                    assert status == (await read_to_end(stream)).split()[1]
            nursery.cancel_scope.cancel()


async def test_a_connections_bug_is_contained(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception below the application is an event; the next connection is served."""

    async def broken(_: object) -> None:
        raise RuntimeError("oops")

    with monkeypatch.context() as patch:
        patch.setattr(Connection, "run", broken)
        async with await door.connect() as stream:
            assert b"" == await read_to_end(stream)
    event = await door.daemon.wait_event(DaemonError)
    assert "RuntimeError('oops')" == event.error
    assert 200 == (await door.http.get("/livez")).status_code


async def test_a_failing_accept_is_one_warning(
    door: Door, capsys: pytest.CaptureFixture[str]
) -> None:
    """No descriptors left: trio tries again ten times a second, the operator is told once."""
    error = OSError(24, "Too many open files")
    for _ in range(5):
        try:
            raise error
        except OSError:
            logging.getLogger("trio.serve_listeners").exception("accept failed")
    event = await door.daemon.wait_event(DaemonWarning)
    assert ("accept", True) == (event.topic, "Too many open files" in event.message)
    assert 1 == len(door.daemon.events)
    assert "" == capsys.readouterr().err


async def test_connections_leave_no_descriptor(no_fd_leak: None, open_door: OpenDoor) -> None:
    """However a connection ends, its socket is closed, and closed before the server's end."""
    async with open_door(idle_timeout=30.0) as door:
        before = count_descriptors()
        for number in range(90):
            async with await door.connect() as stream:
                match number % 3:
                    case 0:
                        await stream.send_all(get("/livez"))
                    case 1:
                        await stream.send_all(post("/api/v1/generate", GENERATE))
                        await door.pool.next_request()
                    case _:
                        await stream.send_all(b"garbage\r\n\r\n")
        with trio.fail_after(5):
            while count_descriptors() > before:
                await trio.testing.wait_all_tasks_blocked()


async def test_a_reply_that_ends_after_its_client_leaves_no_descriptor(
    no_fd_leak: None, open_door: OpenDoor
) -> None:
    """The end of the reply does not start the idle clock again for a client that has left."""
    async with open_door(idle_timeout=30.0) as door:
        before = count_descriptors()
        async with await door.connect() as stream:
            await stream.send_all(post("/api/v1/generate", GENERATE))
            request = await door.pool.next_request()
            door.pool.assign(request)
            for _ in range(10):
                request.output(["x" * 100_000], door.daemon.clock.now())
            door.pool.complete(request)
            await trio.testing.wait_all_tasks_blocked()
        with trio.fail_after(5):
            while count_descriptors() > before:
                await trio.testing.wait_all_tasks_blocked()


async def test_nothing_is_written_to_stderr(door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    """The server library's own logs stay silent, for good requests and bad ones."""
    await door.http.get("/livez")
    door.pool.failure = RuntimeError("bug")
    await door.http.post("/api/v1/generate", content=GENERATE)
    async with await door.connect() as stream:
        await stream.send_all(b"garbage\r\n\r\n")
        await read_to_end(stream)
    sys.stderr.flush()
    captured = capsys.readouterr()
    assert ("", "") == (captured.out, captured.err)


async def wait_gone(door: Door) -> None:
    """Wait until the server's tasks have ended; the socket is unlinked by then."""
    with trio.fail_after(5):
        await door.ended.wait()
    assert not door.path.exists()


def count_descriptors() -> int:
    """How many descriptors this process has open."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())
