"""The daemon's own mistakes: they raise, so that no worker is blamed for them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from supervisord_llm.core.words import WIRE_ID_MAX
from supervisord_llm.errors import InternalError
from supervisord_llm.wire.messages import PROBE_SESSION, Malformed
from supervisord_llm.wire.serial import SerialConnection
from tests.wire.connections import DONE, HI, generating, idle, line, loading, probing, resetting


@pytest.mark.parametrize("connect", [loading, generating, probing, resetting])
def test_an_operation_needs_a_free_worker(connect: Callable[[], SerialConnection]) -> None:
    """Neither a generation nor a probe goes to a worker that is loading or has one."""
    connection = connect()

    with pytest.raises(InternalError, match="not ready for another operation"):
        connection.send_generate(HI, 8)
    with pytest.raises(InternalError, match="not ready for another operation"):
        connection.send_probe()
    with pytest.raises(InternalError, match="not ready for another operation"):
        connection.send_close("s1")


@pytest.mark.parametrize("name", ["", PROBE_SESSION, "a\x1bb", "x" * 1025])
def test_an_operation_needs_the_name_of_a_session(name: str) -> None:
    """Above all not the one that is closed as a probe, whose answer is taken for another thing."""
    connection = idle()
    for op, send in (
        ("open", connection.send_open),
        ("close", connection.send_close),
        ("reset", connection.send_reset),
    ):
        with pytest.raises(InternalError, match=f"cannot {op} a session named"):
            send(name)
    connection.send_generate(HI, 8)


def test_a_worker_is_free_after_each_terminal() -> None:
    """Ids go up to the last that a frame can carry."""
    connection = generating()
    connection.receive(line(DONE))
    connection.send_probe()
    connection.receive(b'{"error":"a"}\n')
    connection.send_open("s1")
    connection.receive(b'{"error":"a"}\n')
    connection.send_reset("s1")
    connection.receive(b'{"reset":true}\n')

    connection.send_generate(HI, WIRE_ID_MAX)


@pytest.mark.parametrize("wire_id", [-1, 0, 6, 7, WIRE_ID_MAX + 1])
def test_a_wire_id_is_never_used_again(wire_id: int) -> None:
    """A worker takes an id that does not grow for a stale one."""
    connection = generating()
    connection.receive(line(DONE))

    with pytest.raises(InternalError, match=f"the wire id {wire_id} does not follow 7"):
        connection.send_generate(HI, wire_id)


def test_a_ping_needs_the_extension() -> None:
    """A worker that did not offer it would take the ping for a generation."""
    with pytest.raises(InternalError, match="cannot ping"):
        idle(b'{"ready":true}\n').send_ping(1)


def test_a_nonce_is_outstanding_once() -> None:
    """Two pings with one nonce could not be told apart; once answered it is free."""
    connection = idle()
    connection.send_ping(1)
    with pytest.raises(InternalError, match="cannot ping"):
        connection.send_ping(1)

    connection.receive(b'{"pong":1}\n')
    connection.send_ping(1)


def test_a_send_behind_a_malformed_line_is_in_vain_but_no_mistake() -> None:
    """The sender learns of the line only after the good ones that came with it."""
    connection = generating()
    messages = connection.receive(line(DONE) + b"oops\n")

    assert isinstance(messages[-1], Malformed)
    assert connection.send_generate(HI, 8).endswith(b"\n")
    assert connection.send_probe().endswith(b"\n")
    assert connection.send_close("s1").endswith(b"\n")
    assert [] == connection.receive(b'{"token":"a"}\n')
