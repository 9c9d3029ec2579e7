"""The measurements of the OpenAI routes: whole answers are counted, and nothing else."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec
import pytest

from bench import front
from bench.front_client import Caller, chat, prompt
from bench.processes import BenchError
from bench.rounds import rounds
from bench.sizes import QUICK

TINY = msgspec.structs.replace(QUICK, repeats=1, http_requests=4, http_seconds=0.1, http_fast=20)

STREAM = (
    b"HTTP/1.1 200 \r\nTransfer-Encoding: chunked\r\n\r\n"
    b'1\r\n{\r\n18\r\n"completion_tokens":16,}\r\n0\r\n\r\n'
)
WHOLE = b'HTTP/1.1 200 \r\nContent-Length: 24\r\n\r\n{"completion_tokens":16,'


class Echo:
    """Answers each question at once, over a pipe, in two pieces."""

    def __init__(self, stack: ExitStack) -> None:
        """Open the pipe."""
        self._read, self._write = os.pipe()
        stack.callback(os.close, self._read)
        stack.callback(os.close, self._write)
        self.asked = 0

    def ask(self) -> int:
        """Write the first piece."""
        self.asked += 1
        os.write(self._write, b"a")
        return self._read

    def read(self) -> tuple[bool, bool]:
        """Take a piece; write the second one after the first."""
        piece = os.read(self._read, 1)
        if piece == b"a":
            os.write(self._write, b"b")
        return True, piece == b"b"


@pytest.mark.parametrize("delays", [(), (0.0, 0.01, 0.02)])
def test_every_question_is_asked_and_answered_once(delays: tuple[float, ...]) -> None:
    """As many as wanted in all, by everybody, whether they begin together or not."""
    with ExitStack() as stack:
        parties = [Echo(stack) for _ in range(3)]
        found = rounds(parties, 10, delays=delays)
    assert 10 == sum(party.asked for party in parties)
    assert all(party.asked for party in parties)
    assert (10, 10) == (len(found.waits), len(found.answers))
    assert max(found.answers) / 1000 < found.seconds
    assert sum(found.waits) < sum(found.answers)


@contextmanager
def answering(path: Path, *answers: bytes) -> Iterator[None]:
    """Listen, and answer one question on each connection."""

    def serve() -> None:
        for answer in answers:
            with listener.accept()[0] as taken:
                taken.recv(65536)
                taken.sendall(answer)

    with socket.socket(socket.AF_UNIX) as listener:
        listener.settimeout(20)
        listener.bind(str(path))
        listener.listen()
        server = threading.Thread(target=serve)
        server.start()
        yield
        server.join()


def ask(path: Path, wanted: int, *, streamed: bool) -> int:
    """How many answers one caller counts."""
    with ExitStack() as stack:
        caller = Caller(path, chat(prompt(0), streamed=streamed), streamed=streamed, stack=stack)
        return len(rounds([caller], wanted).answers)


@pytest.mark.parametrize(("answer", "streamed"), [(STREAM, True), (WHOLE, False)])
def test_a_caller_connects_anew_when_it_is_told_to(
    tmp_path: Path, answer: bytes, streamed: bool
) -> None:
    """As after a thousand requests; the answer counts."""
    closing = answer.replace(b"200 \r\n", b"200 \r\nConnection: close\r\n")
    with answering(tmp_path / "s", closing, answer):
        assert 2 == ask(tmp_path / "s", 2, streamed=streamed)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (STREAM.replace(b":16", b":15"), "no answer of 16 tokens"),
        (WHOLE.replace(b" 200 ", b" 429 "), "no answer of 16 tokens"),
        (STREAM[:-3], "ended early"),
    ],
)
def test_an_answer_that_is_not_whole_fails_the_measurement(
    tmp_path: Path, answer: bytes, message: str
) -> None:
    """Instead of flattering it."""
    with answering(tmp_path / "s", answer), pytest.raises(BenchError, match=message):
        ask(tmp_path / "s", 1, streamed=True)


def test_requests_through_the_front_are_slower_than_the_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every row is there, and slow readers are slow until the end."""
    monkeypatch.setattr(front, "PACES", {2: 800})
    monkeypatch.setattr(front, "SLOW_READERS", 2)
    *figures, slow = front.http(tmp_path, TINY)
    assert 2 * 3 == len(figures)
    rates = [figure for figure in figures if figure.unit == "requests/s"]
    assert all(each.ratio is not None and 0 < each.ratio.p50 < 1 for each in rates)
    firsts = [figure for figure in figures if "first byte" in figure.name]
    assert 2 == len(firsts)
    assert all(each.floor is not None and each.floor.p50 < each.measured.p50 for each in firsts)
    assert slow.floor is not None
    assert 1 == len(slow.targets)
