"""What breaks the protocol, in the state in which it does."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from supervisord_llm.wire.messages import Done, Malformed, Message, Tokens
from supervisord_llm.wire.serial import SerialConnection
from tests.wire.connections import (
    DONE,
    READY,
    generating,
    idle,
    line,
    loading,
    probing,
    resetting,
)

PLAIN_READY = b'{"ready":true}\n'


def generating_uncancellably() -> SerialConnection:
    """A generation on a worker that offered nothing."""
    return generating(PLAIN_READY)


def done(**fields: object) -> bytes:
    """A terminal with some fields in another way."""
    return line(DONE | fields)


def done_without(field: str) -> bytes:
    """A terminal that lacks a field."""
    return line({name: value for name, value in DONE.items() if name != field})


CASES: list[tuple[Callable[[], SerialConnection], bytes, str]] = [
    # Not an object.
    (loading, b"llama_model_load: 42 tensors\n", "not JSON: llama_model_load: 42 tensors"),
    (loading, b"\n", "not JSON: (an empty line)"),
    (loading, b"[]\n", "not a JSON object: []"),
    (generating, b'"token"\n', 'not a JSON object: "token"'),
    (generating, b"null\n", "not a JSON object: null"),
    (generating, b'{"token":"a"}{"token":"b"}\n', "not JSON"),
    (generating, b'{"token":"a"\n', "not JSON"),
    (generating, b'{"token":NaN}\n', "not JSON"),
    (generating, b'{"token":"\xff"}\n', 'not JSON: {"token":"\\xff"}'),
    (generating, b'{"token":"\\ud800"}\n', "not JSON"),
    (generating, b'{"token":"a\x1b[2J"}\n', 'not JSON: {"token":"a\\x1b[2J"}'),
    (generating, b'\xef\xbb\xbf{"token":"a"}\n', "not JSON"),
    (generating, b'{"x":"\xff","token":"a"}\n', "not JSON"),
    (generating, b'{"token":' + b"9" * 4500 + b"}\n", "a line over max_line (4096 bytes)"),
    # Neither one kind nor one value for each key.
    (loading, b"{}\n", "an unknown message: {}"),
    (generating, b'{"request_id":1,"cancelled":true}\n', "an unknown message"),
    (generating, b'{"token":"a","done":true}\n', "a message of several kinds (done, token)"),
    (generating, b'{"error":"a","closed":true}\n', "a message of several kinds (closed, error)"),
    (generating, b'{"token":"a","token":"b"}\n', "a JSON object with the key 'token' twice"),
    (generating, b'{"token":"a","\\u0074oken":"b"}\n', "a JSON object with the key 'token' twice"),
    (idle, b'{"heartbeat":{"phase":"decode","beats":1,"beats":2}}\n', "a JSON object with the key"),
    # Values of the wrong type or out of range.
    (generating, b'{"token":1}\n', "a malformed 'token' message"),
    (generating, b'{"token":null}\n', "a malformed 'token' message"),
    (generating, b'{"error":{"message":"a"}}\n', "a malformed 'error' message"),
    (generating, b'{"error":"a","code":5}\n', "a malformed 'error' message"),
    (generating, done(done=False), "the value of 'done' is not true"),
    (generating, done(done=1), "the value of 'done' is not true"),
    (generating, done(prompt_tokens=-1), "a malformed 'done' message"),
    (generating, done(prompt_tokens=True), "a malformed 'done' message"),
    (generating, done(prompt_tokens=2.0), "a malformed 'done' message"),
    (generating, done(completion_tokens="2"), "a malformed 'done' message"),
    (generating, done(completion_tokens=2**64 - 1), "a malformed 'done' message"),
    (generating, done(prefill_ms=-0.5), "a malformed 'done' message"),
    (generating, done(prefill_ms=True), "a malformed 'done' message"),
    (generating, done(cancelled=1), "a malformed 'done' message"),
    (generating, done(finish_reason="eos"), "a malformed 'done' message"),
    (generating, done_without("finish_reason"), "a malformed 'done' message"),
    (generating, done_without("prompt_tokens"), "a malformed 'done' message"),
    (generating, done_without("completion_tokens"), "a malformed 'done' message"),
    (generating, line(DONE)[:-2] + b',"decode_ms":NaN}\n', "not JSON"),
    (generating, line(DONE)[:-2] + b',"decode_ms":1e999}\n', "JSON with a number out of range"),
    # Impossible.
    (generating, done(finish_reason="length", cancelled=True), "cancelled, but with finish_reason"),
    (generating, done(reused_prompt_tokens=3), "reused more prompt tokens than the prompt has"),
    (generating_uncancellably, done(cancelled=True), "cancelled, though it said that it cannot be"),
    # Out of turn.
    (loading, b'{"token":"a"}\n', "something else before the ready line"),
    (loading, b'{"error":"no such file"}\n', "something else before the ready line"),
    (loading, b'{"pong":1}\n', "something else before the ready line"),
    (loading, b'{"heartbeat":{"phase":"decode","beats":1}}\n', "in decode before the ready line"),
    (idle, READY, "ready for the second time"),
    (idle, b'{"token":"a"}\n', "output that belongs to no request"),
    (idle, line(DONE), "a terminal that belongs to no request"),
    (idle, b'{"error":"a"}\n', "a terminal that belongs to no request"),
    (idle, b'{"closed":true,"session_id":"__probe__"}\n', "acknowledges a 'close' that was not"),
    (generating, b'{"closed":true}\n', "acknowledges a 'close' that was not"),
    (probing, b'{"closed":true,"session_id":"s1"}\n', "acknowledges a 'close' that was not"),
    (probing, b'{"closed":false}\n', "the value of 'closed' is not true"),
    (
        probing,
        b'{"opened":true,"session_id":"__probe__"}\n',
        "acknowledges an 'open' that was not asked",
    ),
    (probing, b'{"reset":true,"session_id":"__probe__"}\n', "acknowledges a 'reset' that was not"),
    (resetting, b'{"closed":true,"session_id":"s1"}\n', "acknowledges a 'close' that was not"),
    (resetting, b'{"reset":true,"session_id":"s2"}\n', "acknowledges a 'reset' that was not"),
    (resetting, b'{"reset":1,"session_id":"s1"}\n', "the value of 'reset' is not true"),
    (resetting, b'{"reset":true,"session_id":1}\n', "a malformed 'reset' message"),
    (resetting, b'{"token":"a"}\n', "output that belongs to no request"),
    (resetting, line(DONE), "a terminal that belongs to no request"),
    (probing, b'{"token":"a"}\n', "output that belongs to no request"),
    (probing, line(DONE), "a terminal that belongs to no request"),
    (idle, b'{"pong":1}\n', "a pong without its ping"),
    (idle, b'{"pong":true}\n', "a malformed 'pong' message"),
    (
        generating_uncancellably,
        b'{"heartbeat":{"phase":"decode","beats":1}}\n',
        "a heartbeat, which",
    ),
    (idle, b'{"heartbeat":{"phase":"dreaming","beats":1}}\n', "a malformed 'heartbeat' message"),
    (idle, b'{"heartbeat":{"phase":"decode","beats":-1}}\n', "a malformed 'heartbeat' message"),
    (idle, b'{"heartbeat":7}\n', "a malformed 'heartbeat' message"),
    # A ready line that promises nonsense.
    (loading, b'{"ready":false}\n', "says that it is not ready"),
    (loading, b'{"ready":null}\n', "says that it is not ready"),
    (loading, b'{"ready":true,"max_sessions":true}\n', "a malformed 'ready' message"),
    (loading, b'{"ready":true,"max_sessions":0}\n', "a malformed 'ready' message"),
    (loading, b'{"ready":true,"max_named_sessions":1.0}\n', "a malformed 'ready' message"),
    (loading, b'{"ready":true,"max_named_sessions":-1}\n', "a malformed 'ready' message"),
    (loading, b'{"ready":true,"extensions":"ping"}\n', "a malformed 'ready' message"),
    (loading, b'{"ready":true,"extensions":[1]}\n', "a malformed 'ready' message"),
    (
        loading,
        b'{"ready":true,"extensions":["model"],"model":{"context_length":"8k"}}\n',
        "a malformed 'ready' message",
    ),
]


@pytest.mark.parametrize(("connect", "data", "detail"), CASES)
def test_a_line_that_breaks_the_protocol(
    connect: Callable[[], SerialConnection], data: bytes, detail: str
) -> None:
    """One message says what is wrong; from then on the worker is not listened to."""
    connection = connect()

    (message,) = connection.receive(data)

    assert isinstance(message, Malformed)
    assert message.detail.startswith(detail)
    assert [] == connection.receive(line(DONE))
    assert [] == connection.receive_eof()


@pytest.mark.parametrize("inside", [b'{"x":%s}\n', b'{"token":"a","x":%s}\n'])
def test_json_that_is_nested_too_deep(inside: bytes) -> None:
    """A stack is not to be had by nesting brackets."""
    connection = generating(max_line=1 << 20)

    (message,) = connection.receive(inside % (b"[" * 100_000 + b"]" * 100_000))

    assert isinstance(message, Malformed)
    assert message.detail.startswith("JSON nested too deep")


def test_a_number_of_many_digits() -> None:
    """A number that takes long to convert is not converted."""
    connection = generating(max_line=1 << 20)

    (message,) = connection.receive(b'{"token":"a","x":' + b"9" * 5000 + b"}\n")

    assert isinstance(message, Malformed)
    assert message.detail.startswith("JSON with a number out of range")


def test_what_came_before_is_delivered() -> None:
    """The good lines of a read count, the bad one is last, what follows it is ignored."""
    messages = generating().receive(
        b'{"token":"a"}\n{"token":"b"}\n' + line(DONE) + b'oops\n{"pong":1}\n'
    )

    kinds: list[type[Message]] = [Tokens, Done, Malformed]
    assert kinds == [type(message) for message in messages]
    assert Tokens(7, ["a", "b"]) == messages[0]
    assert Malformed("not JSON: oops") == messages[-1]


def test_a_second_terminal() -> None:
    """A request ends once; the other ending could be anybody's."""
    first, second = generating().receive(line(DONE) * 2)

    assert isinstance(first, Done)
    assert isinstance(second, Malformed)


def test_an_endless_line_is_noticed_at_the_limit() -> None:
    """Long before its newline, if that ever comes."""
    connection = generating(max_line=1024)

    assert [] == connection.receive(b'{"token":"' + b"x" * 1000)
    (message,) = connection.receive(b"x" * 64)

    assert isinstance(message, Malformed)
    assert message.detail.startswith('a line over max_line (1024 bytes): {"token":"xxx')
    assert len(message.detail) < 300


@pytest.mark.parametrize(
    ("data", "detail"),
    [
        (b"garbage " * 100, "garbage " * 25 + "…"),
        (b"x" * 200, "x" * 200),
        (b"\xc3\xa9\r\t\\", "\\xc3\\xa9\\r\\t\\\\"),
        (b"\"'", "\"'"),
    ],
)
def test_a_malformed_line_is_shown_safely(data: bytes, detail: str) -> None:
    """At most 200 bytes of it, and nothing that a terminal or a log would act upon."""
    assert [Malformed(f"not JSON: {detail}")] == loading().receive(data + b"\n")


def test_the_end_in_the_middle_of_a_line() -> None:
    """Half a line is no word of the worker; the other half will not come."""
    connection = generating()
    connection.receive(b'{"token":"a"}\n{"done":tr')

    expected = Malformed('its output ended in the middle of a line: {"done":tr')
    assert [expected] == connection.receive_eof()
    assert [] == connection.receive_eof()


def test_the_end_between_lines_is_no_fault() -> None:
    """How the process ended says the rest."""
    connection = generating()
    connection.receive(b'{"token":"a"}\n')

    assert [] == connection.receive_eof()


def test_lines_are_understood_with_carriage_returns() -> None:
    """White space around a JSON value is part of JSON."""
    assert [Tokens(7, ["a"])] == generating().receive(b' {"token": "a"}\r\n')


def test_details_can_be_encoded() -> None:
    """Whatever a worker writes, its malformed line can go into an event."""
    for byte in range(256):
        (message,) = loading().receive(bytes([byte, 0x2D, byte]) + b"-\n")
        assert message == msgspec.json.decode(msgspec.json.encode(message), type=Malformed)
