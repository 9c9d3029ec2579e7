"""Whatever a worker writes, and however the reads fall."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from supervisord_llm.wire.messages import (
    Done,
    Failed,
    Malformed,
    Message,
    ProbeAck,
    SessionDone,
    SessionRefused,
)
from supervisord_llm.wire.serial import SerialConnection
from tests.wire.connections import (
    DONE,
    MAX_LINE,
    READY,
    generating,
    idle,
    line,
    loading,
    merged,
    probing,
    resetting,
)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
tokens = st.builds(lambda text: {"token": text}, texts)
beats = st.builds(
    lambda phase, beats: {"heartbeat": {"phase": phase, "beats": beats}},
    st.sampled_from(["load", "prefill", "decode"]),
    st.integers(0, 2**40),
)
terminals = st.one_of(
    st.just(DONE),
    st.just(DONE | {"cancelled": True}),
    st.builds(lambda text: {"error": text}, texts),
)
good_lines = st.builds(line, st.one_of(tokens, tokens, beats))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
kinds = st.sampled_from(
    ["ready", "token", "done", "error", "opened", "closed", "reset", "pong", "heartbeat", "x"]
)
known_keys = st.sampled_from(
    ["finish_reason", "cancelled", "prompt_tokens", "completion_tokens", "session_id", "code"]
)


def json_line(fields: object) -> bytes:
    """One line, of numbers also that msgspec does not encode."""
    try:
        return line(fields)
    except OverflowError:
        return repr(fields).encode() + b"\n"


odd_lines = st.builds(json_line, st.dictionaries(kinds | known_keys, json_values, max_size=5))
connections = st.sampled_from([loading, idle, generating, probing, resetting])


def cut(stream: bytes, cuts: list[int]) -> list[bytes]:
    """The stream in the pieces that some reads might give."""
    edges = [0, *sorted(at % (len(stream) + 1) for at in cuts), len(stream)]
    return [stream[start:end] for start, end in pairwise(edges)]


def hear(connection: SerialConnection, chunks: list[bytes]) -> list[Message]:
    """All that the worker says, to the end of its output."""
    heard = [message for chunk in chunks for message in connection.receive(chunk)]
    return heard + connection.receive_eof()


@given(
    lines=st.lists(good_lines, max_size=12),
    end=st.builds(line, terminals),
    after=st.sampled_from([b"", b"oops\n", b"{", b'{"token":"late"}\n', b"x" * (MAX_LINE + 1)]),
    cuts=st.lists(st.integers(0, 10_000), max_size=20),
)
def test_the_reads_do_not_matter(
    lines: list[bytes], end: bytes, after: bytes, cuts: list[int]
) -> None:
    """Any cutting of the stream gives the same messages, also where the last is malformed."""
    stream = b"".join(lines) + end + after
    whole = hear(generating(), [stream])

    assert merged(whole) == merged(hear(generating(), cut(stream, cuts)))
    assert bool(after) == isinstance(whole[-1], Malformed)


@given(lines=st.lists(texts))
def test_tokens_survive_the_round_trip(lines: list[str]) -> None:
    """The texts come out as they went in."""
    stream = b"".join(line({"token": text}) for text in lines)

    heard = [text for message in generating().receive(stream) for text in message.texts]  # type: ignore[union-attr]

    assert lines == heard


@given(
    connect=connections,
    pieces=st.lists(
        st.one_of(st.binary(max_size=40), good_lines, odd_lines, st.just(READY), st.just(b"\n")),
        max_size=12,
    ),
    cuts=st.lists(st.integers(0, 10_000), max_size=8),
)
def test_nothing_that_a_worker_writes_raises(
    connect: Callable[[], SerialConnection], pieces: list[bytes], cuts: list[int]
) -> None:
    """At most one line is malformed, it is the last that is heard, and all can be encoded."""
    heard = hear(connect(), cut(b"".join(pieces), cuts))

    malformed = [index for index, each in enumerate(heard) if isinstance(each, Malformed)]
    assert malformed in ([], [len(heard) - 1])
    ends = Done | Failed | ProbeAck | SessionDone | SessionRefused
    assert 1 >= sum(isinstance(each, ends) for each in heard)
    msgspec.json.encode(heard)
