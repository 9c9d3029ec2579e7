"""The measuring client counts every token, however its reads cut the stream."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bench.client import END, Counter, Reader, drain, finished
from bench.processes import BenchError

HEAD = b"HTTP/1.1 200 \r\nTransfer-Encoding: chunked\r\n\r\n"
RECORD = b'{"event":"finished","outcome":"%b","usage":{"generated_tokens":%d},"timings":{}}\n'


def chunk(lines: bytes) -> bytes:
    """One chunk of a reply."""
    return b"%x\r\n%b\r\n" % (len(lines), lines)


def reply(tokens: int, *, said: int | None = None, outcome: bytes = b"completed") -> bytes:
    """A whole reply with so many tokens, whose record says ``said``."""
    record = RECORD % (outcome, tokens if said is None else said)
    return (
        HEAD
        + chunk(b'{"event":"accepted","id":"r","pool":"bench","queued":0}\n')
        + chunk(b'{"event":"started","id":"r","worker":"bench.0","attempt":1}\n')
        + b"".join(chunk(b'{"event":"token","text":"t "}\n') for _ in range(tokens))
        + chunk(record)
        + END[2:]
    )


@pytest.mark.parametrize("size", [1, 7, 100, 1 << 20])
def test_every_token_is_counted_across_any_reads(size: int) -> None:
    """Only the last read ends the reply, and the count is that of the record."""
    whole = reply(50)
    counter = Counter()
    pieces = [whole[at : at + size] for at in range(0, len(whole), size)]
    ends = [counter.take(memoryview(piece)) for piece in pieces]
    assert [False] * (len(pieces) - 1) + [True] == ends
    assert 50 == counter.tokens()


def test_a_token_too_few_is_noticed() -> None:
    """A stream that lost a token fails the measurement."""
    counter = Counter()
    counter.take(memoryview(reply(49, said=50)))
    with pytest.raises(BenchError, match="49 tokens came"):
        counter.tokens()


def test_a_request_that_failed_is_not_measured() -> None:
    """Nor is one that was cancelled."""
    counter = Counter()
    counter.take(memoryview(reply(3, outcome=b"failed")))
    with pytest.raises(BenchError, match="not completed"):
        counter.tokens()


def test_a_reply_without_a_record_is_an_error() -> None:
    """The message shows how the reply ended."""
    with pytest.raises(BenchError, match="no record; it ends with b'nonsense'"):
        finished(b"nonsense")


@contextmanager
def written(*pieces: bytes) -> Iterator[socket.socket]:
    """A connection on which somebody writes these pieces and then leaves."""
    ours, theirs = socket.socketpair()
    ours.settimeout(20)

    def write() -> None:
        with theirs:
            for piece in pieces:
                theirs.sendall(piece)

    writer = threading.Thread(target=write)
    writer.start()
    with ours:
        yield ours
    writer.join()


def test_a_reader_takes_what_is_up_to_a_mark_and_keeps_the_rest() -> None:
    """A reply with a length follows, and is taken whole."""
    with written(
        b"one mark two", b" mark HTTP/1.1 200 \r\nContent-", b"Length: 5\r\n\r\nhello"
    ) as end:
        reader = Reader(end.recv)
        assert [b"one mark", b" two mark"] == [reader.until(b"mark"), reader.until(b"mark")]
        assert b"hello" == reader.message()
        with pytest.raises(BenchError, match="ended early"):
            reader.until(b"more")


def test_streams_are_read_side_by_side_to_their_ends() -> None:
    """One ends with its last chunk, the other by being closed."""
    with written(reply(20)) as first, written(b'{"token":"a"}\n' * 10) as second:
        counters = [Counter(), Counter()]
        drain([first, second], counters)
    assert 20 == counters[0].tokens()
    assert 10 == counters[1].marks


def test_reading_for_a_time_ends_with_streams_that_go_on() -> None:
    """Nothing is lost for the next read."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        counter = Counter()
        theirs.sendall(b'{"token":"a"}\n')
        drain([ours], [counter], seconds=0.05)
        theirs.sendall(b'{"token":"b"}\n')
        theirs.close()
        drain([ours], [counter])
    assert 2 == counter.marks
