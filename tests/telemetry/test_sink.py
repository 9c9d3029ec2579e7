from __future__ import annotations

import fcntl
import os
import pty
import select
import socket
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisord_llm.telemetry.sink import LineSink

pytestmark = pytest.mark.usefixtures("no_fd_leak")


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """A pipe that holds one page, its read end non-blocking."""
    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)
    os.set_blocking(read, False)
    yield read, write
    os.close(read)
    os.close(write)


def drain(fd: int) -> bytes:
    """All that can be read now."""
    found = b""
    while select.select([fd], [], [], 0)[0] and (data := os.read(fd, 65536)):
        found += data
    return found


def fill(sink: LineSink, line: bytes) -> int:
    """Write a line until it is dropped; how many were taken."""
    for count in range(100_000):
        if not sink.write(line):
            return count
    raise AssertionError("the descriptor is never full")


def test_a_full_pipe_drops_whole_lines_and_counts_them(pipe: tuple[int, int]) -> None:
    """Nothing waits, what was taken is whole, and later lines are taken again."""
    read, write = pipe
    sink = LineSink(write)
    taken = fill(sink, b"x" * 99 + b"\n")
    assert not sink.write(b"y" * 99 + b"\n")
    assert (sink.lost, sink.taking) == (2, False)
    assert drain(read) == (b"x" * 99 + b"\n") * taken
    assert sink.write(b"again\n")
    assert (sink.take_lost(), sink.lost, sink.taking) == (2, 0, True)
    assert drain(read) == b"again\n"
    sink.close()


def test_a_line_longer_than_the_pipe_is_finished_before_the_next(pipe: tuple[int, int]) -> None:
    """A line that was begun is never mixed with another."""
    read, write = pipe
    sink = LineSink(write)
    long = b"a" * 6000 + b"\n"
    assert sink.write(long)
    assert not sink.write(b"dropped\n")
    found = drain(read)
    assert sink.write(b"next\n")
    found += drain(read)
    assert found == long + b"next\n"
    assert sink.lost == 1
    sink.close()


def test_the_descriptor_itself_stays_as_it_was(pipe: tuple[int, int]) -> None:
    """The flags of an open file are shared with whoever else has it."""
    _, write = pipe
    before = fcntl.fcntl(write, fcntl.F_GETFL)
    sink = LineSink(write)
    fill(sink, b"line\n")
    assert fcntl.fcntl(write, fcntl.F_GETFL) == before
    sink.close()
    assert os.get_blocking(write)


def test_a_pipe_that_cannot_be_opened_again_is_only_written_to_when_it_has_room(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As under another user than the one who made it: slower, but no less patient."""
    read, write = pipe

    def refuse(*_: object) -> int:
        raise PermissionError

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        sink = LineSink(write)
    taken = fill(sink, b"y" * 1023 + b"\n")
    assert drain(read) == (b"y" * 1023 + b"\n") * taken
    long = b"w" * 6000 + b"\n"
    assert sink.write(long)  # more than there is room for: the rest must not be waited for
    found = drain(read)
    sink.close()
    assert found + drain(read) == long


def test_a_broken_pipe_is_counted_and_not_fatal() -> None:
    """Its reader is gone: lines are lost, the daemon is not."""
    read, write = os.pipe()
    sink = LineSink(write)
    os.close(read)
    assert not sink.write(b"lost\n")
    assert not sink.write(b"lost\n")
    assert sink.lost == 2
    sink.close()
    os.close(write)


def test_a_pipe_that_gets_a_new_reader_is_written_to_again(tmp_path: Path) -> None:
    """What is broken now may work later."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    writer = os.open(fifo, os.O_WRONLY)
    sink = LineSink(writer)
    os.close(reader)
    assert not sink.write(b"lost\n")
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    assert sink.write(b"found\n")
    assert drain(reader) == b"found\n"
    sink.close()
    os.close(reader)
    os.close(writer)


def test_a_descriptor_that_is_not_open_takes_nothing() -> None:
    """A daemon without a stderr works; and a file that gets that number later is left alone."""
    read, write = os.pipe()
    os.close(write)
    sink = LineSink(write)
    reused = os.dup(read)
    assert reused == write
    assert not sink.write(b"lost\n")
    sink.close()
    os.close(read)
    os.close(reused)


def test_a_file_keeps_the_position_that_it_shares(tmp_path: Path) -> None:
    """Redirected to a file, our lines and those of others follow each other."""
    path = tmp_path / "log"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT)
    os.write(fd, b"before\n")
    sink = LineSink(fd)
    assert sink.write(b"ours\n")
    os.write(fd, b"after\n")
    sink.close()
    os.close(fd)
    assert path.read_bytes() == b"before\nours\nafter\n"


def test_a_full_disk_is_counted(tmp_path: Path) -> None:
    """``/dev/full`` says what a full disk says."""
    fd = os.open("/dev/full", os.O_WRONLY)
    sink = LineSink(fd)
    assert not sink.write(b"lost\n")
    assert sink.lost == 1
    sink.close(timeout=0.01)
    os.close(fd)


def test_a_full_socket_drops_lines_and_stays_open() -> None:
    """A journal's stream is a socket; it cannot be opened a second time."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        sink = LineSink(ours.fileno())
        taken = fill(sink, b"z" * 99 + b"\n")
        received = drain(theirs.fileno())
        assert received.startswith((b"z" * 99 + b"\n") * taken)
        assert sink.write(b"again\n")
        assert drain(theirs.fileno()).endswith(b"again\n")
        sink.close()
        assert ours.getblocking()


def test_a_stopped_terminal_does_not_stop_the_daemon() -> None:
    """Ctrl-S in the operator's terminal: lines are dropped until Ctrl-Q."""
    leader, terminal = pty.openpty()
    sink = LineSink(terminal)
    assert sink.write(b"before\n")
    termios.tcflow(terminal, termios.TCOOFF)
    fill(sink, b"t" * 99 + b"\n")
    termios.tcflow(terminal, termios.TCOON)
    assert b"before" in drain(leader)
    assert sink.write(b"again\n")
    sink.close()
    os.close(leader)
    os.close(terminal)


def test_closing_finishes_a_line_that_the_reader_makes_room_for(pipe: tuple[int, int]) -> None:
    """The end of the last line is not lost if somebody reads."""
    read, write = pipe
    sink = LineSink(write)
    long = b"b" * 5000 + b"\n"
    assert sink.write(long)
    found = drain(read)
    sink.close()
    assert found + drain(read) == long


def test_closing_gives_up_after_its_bound(pipe: tuple[int, int]) -> None:
    """Nobody reads: the end of the process does not wait for them."""
    _, write = pipe
    sink = LineSink(write)
    assert sink.write(b"c" * 5000 + b"\n")
    sink.close(timeout=0.02)
    assert not sink.write(b"late\n")
