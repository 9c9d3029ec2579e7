"""The daemon's codec and a worker's runtime agree on named sessions."""

from __future__ import annotations

from supervisord_llm.wire.messages import (
    Done,
    Generate,
    Message,
    Ready,
    SessionDone,
    SessionOp,
    SessionRefused,
    Tokens,
)
from supervisord_llm.wire.serial import SerialConnection
from tests.native.sim import KNOWN, SimWorker, start


def exchange(connection: SerialConnection, worker: SimWorker, sent: bytes) -> list[Message]:
    """Send one operation and hear the worker until it has ended."""
    worker.send_line(sent.rstrip(b"\n"))
    heard: list[Message] = []
    while not heard or isinstance(heard[-1], Tokens):
        heard += connection.receive(worker.receive_line().encode() + b"\n")
    return heard


def test_a_session_from_its_opening_to_its_end() -> None:
    """It is opened, generated in, reset and closed; one too many is refused with its code."""
    connection = SerialConnection(max_line=4096, dialect="auto")
    with start("--sessions", "1", env=KNOWN) as worker:
        (ready,) = connection.receive(worker.receive_line().encode() + b"\n")
        assert isinstance(ready, Ready)
        assert 1 == ready.max_named_sessions

        opened = exchange(connection, worker, connection.send_open("a é"))
        assert [SessionDone(SessionOp.OPEN, "a é")] == opened
        wanted = Generate(prompt="x sim.tokens=1", session_id="a é")
        assert isinstance(
            exchange(connection, worker, connection.send_generate(wanted, 1))[-1], Done
        )

        (refused,) = exchange(connection, worker, connection.send_open("b"))
        assert isinstance(refused, SessionRefused)
        assert (SessionOp.OPEN, "b") == (refused.op, refused.session_id)
        assert "capacity_exhausted" == refused.code

        for op, send in (
            (SessionOp.RESET, connection.send_reset),
            (SessionOp.CLOSE, connection.send_close),
        ):
            assert [SessionDone(op, "a é")] == exchange(connection, worker, send("a é"))
        opened = exchange(connection, worker, connection.send_open("b"))
        assert [SessionDone(SessionOp.OPEN, "b")] == opened
