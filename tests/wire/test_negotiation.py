from __future__ import annotations

import pytest

from supervisord_llm.core.words import Dialect, Extension, Phase
from supervisord_llm.wire.messages import Heartbeat, Malformed, Model, Ready
from supervisord_llm.wire.serial import DialectPolicy, SerialConnection
from tests.wire.connections import EVERY_EXTENSION, MAX_LINE, idle, line, loading


def test_nothing_is_known_before_the_ready_line() -> None:
    """A loading worker has no dialect, no extension and no room."""
    connection = loading()

    assert connection.ready is None
    assert connection.dialect is None
    assert () == connection.extensions
    assert 0 == connection.capacity


@pytest.mark.parametrize("said", [True, 1, "yes", {"a": 1}])
def test_any_truthy_ready_is_ready(said: object) -> None:
    """As upstream has it."""
    connection = loading()

    assert [Ready()] == connection.receive(line({"ready": said}))
    assert Ready() == connection.ready
    assert Dialect.SERIAL is connection.dialect
    assert 1 == connection.capacity


@pytest.mark.parametrize(
    ("said", "dialect"),
    [
        (True, Dialect.SERIAL_CANCEL),
        (False, Dialect.SERIAL),
        (1, Dialect.SERIAL),
        ("true", Dialect.SERIAL),
        (None, Dialect.SERIAL),
    ],
)
def test_only_a_literal_true_offers_cancellation(said: object, dialect: Dialect) -> None:
    """Anything else leaves the worker uncancellable, never half so."""
    assert dialect is idle(line({"ready": True, "supports_cancel": said})).dialect


def test_extensions_are_those_that_both_sides_know() -> None:
    """Unknown ones are passed over, repeated ones count once, the order is ours."""
    connection = idle(line({"ready": True, "extensions": ["telepathy", "model", "ping", "ping"]}))

    assert (Extension.PING, Extension.MODEL) == connection.extensions


def test_the_model_is_described_where_that_was_offered() -> None:
    """Whatever a worker leaves out is unknown."""
    said = {"id": "smollm", "context_length": 8192, "eos_token": "<|im_end|>", "licence": "x"}
    ready = {"ready": True, "extensions": EVERY_EXTENSION, "model": said}
    model = Model(id="smollm", context_length=8192, eos_token="<|im_end|>")

    (message,) = loading().receive(line(ready))

    assert isinstance(message, Ready)
    assert model == message.model


def test_a_model_that_was_not_offered_is_not_looked_at() -> None:
    """Without the extension the key is one of the worker's own."""
    assert [Ready()] == loading().receive(line({"ready": True, "model": "a string"}))


def test_a_loading_worker_may_beat() -> None:
    """Its heartbeats come before anything could be negotiated."""
    beat = {"heartbeat": {"phase": "load", "done": 1, "total": 4, "beats": 3}}

    assert [Heartbeat(phase=Phase.LOAD, done=1, total=4, beats=3)] == loading().receive(line(beat))


@pytest.mark.parametrize("policy", ["auto", "serial"])
def test_a_multiplexed_worker_is_told_what_to_do(policy: DialectPolicy) -> None:
    """It is never spoken to as if it were a serial one."""
    connection = SerialConnection(max_line=MAX_LINE, dialect=policy)

    (message,) = connection.receive(line({"ready": True, "multiplexed": True}))

    assert isinstance(message, Malformed)
    assert "start the worker without multiplexing" in message.detail
    assert (policy == "serial") == ('its pool says "serial"' in message.detail)
    assert connection.ready is None
