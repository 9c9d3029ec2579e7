"""What is used of Hypercorn below its public surface, which is why its version is pinned.

If an upgrade breaks one of these, ``supervisord_llm/api/connection.py`` is the place to look.
"""

from __future__ import annotations

import inspect
from importlib.metadata import version

import h11
from hypercorn.protocol import ProtocolWrapper
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.protocol.http_stream import HTTPStream
from hypercorn.trio.task_group import TaskGroup
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import TrioSingleTask, WorkerContext

from tests.api.conftest import Door
from tests.api.raw import get, read_until


def parameters(function: object) -> list[str]:
    """Return the names of a function's parameters, in order."""
    assert callable(function)
    return [name for name in inspect.signature(function).parameters if name != "self"]


def test_the_version_is_the_one_that_was_read() -> None:
    """Another version needs another look at the names below."""
    assert "0.18.0" == version("hypercorn")


def test_the_connection_class_has_the_expected_shape() -> None:
    """The constructor, and the methods that are called or replaced."""
    assert ["app", "config", "context", "state", "stream"] == parameters(TCPServer.__init__)
    for name in ("run", "protocol_send", "_read_data", "_idle_timeout", "_initiate_server_close"):
        assert inspect.iscoroutinefunction(getattr(TCPServer, name))
    assert ["task_group", "action"] == parameters(TrioSingleTask.restart)
    assert [] == parameters(TrioSingleTask.stop)
    assert {"_nursery": None}.items() <= vars(TaskGroup()).items()
    assert ["max_requests"] == parameters(WorkerContext.__init__)


def test_the_protocol_is_made_as_expected() -> None:
    """Positional arguments in this order; HTTP/1.1 is chosen by the last one."""
    expected = [
        "app",
        "config",
        "context",
        "task_group",
        "state",
        "ssl",
        "client",
        "server",
        "send",
        "alpn_protocol",
    ]
    assert expected == parameters(ProtocolWrapper.__init__)
    source = inspect.getsource(H11Protocol)
    for name in ("self.connection.next_event()", "self.connection.receive_data(", "h11.PAUSED"):
        assert name in source


def test_the_parser_is_replaced_by_ours_through_public_names() -> None:
    """h11 documents these."""
    for name in ("next_event", "receive_data", "trailing_data", "our_state"):
        assert hasattr(h11.Connection, name)


async def test_the_server_claims_an_asgi_version_that_would_be_told_of_a_disconnect(
    door: Door,
) -> None:
    """Replies here never depend on it, but Starlette's own streaming reply would."""
    assert '"spec_version": "2.1"' in inspect.getsource(HTTPStream)
    async with await door.connect() as stream:
        await stream.send_all(get("/livez"))
        await read_until(stream, b"live")
