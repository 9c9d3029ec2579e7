from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from supervisord_llm.config.schema import LogConfig
from supervisord_llm.errors import OperatorError
from supervisord_llm.events import ConfigReloaded, DaemonWarning, RequestAccepted
from supervisord_llm.telemetry.log import EventLog
from supervisord_llm.telemetry.output import open_output
from supervisord_llm.telemetry.ring import Ring

ACCEPTED = RequestAccepted(pool="smollm", request="req_1", queued=0)
RELOADED = ConfigReloaded(digest="d")

Make = Callable[..., EventLog]


@pytest.fixture
def stderr(no_fd_leak: None) -> Iterator[tuple[int, int]]:
    """A pipe in the place of stderr: where it is read, and where it is written."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    yield read, write
    os.close(read)
    os.close(write)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The log's path."""
    return tmp_path / "events.log"


@pytest.fixture
def make(stderr: tuple[int, int], path: Path) -> Iterator[Make]:
    """Makes event logs that write to the file; they are closed at the end."""
    made = []

    def make(**settings: int) -> EventLog:
        config = LogConfig(file=str(path), **settings)  # type: ignore[arg-type]
        output = open_output(config, journal=True, fd=stderr[1])
        made.append(EventLog(boot="b", ring=Ring(100_000), renderer=output))
        return made[-1]

    yield make
    for log in made:
        log.close()


def numbers(path: Path) -> list[int]:
    """The sequence numbers of a file, each line of which must be whole."""
    return [json.loads(line)["seq"] for line in path.read_text().splitlines()]


def told(stderr: tuple[int, int]) -> str:
    """What was said on stderr."""
    try:
        return os.read(stderr[0], 65536).decode()
    except BlockingIOError:
        return ""


def test_the_log_is_in_the_file_and_not_on_stderr(
    make: Make, path: Path, stderr: tuple[int, int]
) -> None:
    """One JSON object per line, after what was there, for the owner and the group."""
    make().publish(ACCEPTED)
    make().publish(ACCEPTED)
    assert [1, 1] == numbers(path)
    assert 0o640 & ~_umask() == path.stat().st_mode & 0o777
    assert "" == told(stderr)


def _umask() -> int:
    before = os.umask(0)
    os.umask(before)
    return before


def test_rotation_neither_splits_nor_loses_a_line(make: Make, path: Path) -> None:
    """Every number is in one of the files, in order, and no file is longer than was said."""
    log = make(rotate_size=4096, rotate_keep=100)
    for index in range(400):
        log.publish(RequestAccepted(pool="p" * (index % 90), request="r", queued=index))
    files = sorted(path.parent.glob("events.log*"), key=_age)
    assert [*(f"events.log.{n}" for n in range(len(files) - 1, 0, -1)), "events.log"] == [
        file.name for file in files
    ]
    assert len(files) > 10
    assert list(range(1, 401)) == [number for file in files for number in numbers(file)]
    assert all(file.stat().st_size <= 4096 for file in files)


def _age(file: Path) -> int:
    return -int(file.suffix[1:]) if file.suffix != ".log" else 0


def test_only_so_many_files_are_kept(make: Make, path: Path) -> None:
    """The oldest go; the youngest follow each other without a gap."""
    log = make(rotate_size=4096, rotate_keep=2)
    for _ in range(400):
        log.publish(ACCEPTED)
    names = ["events.log.2", "events.log.1", "events.log"]
    assert sorted(names) == sorted(file.name for file in path.parent.iterdir())
    found = [number for name in names for number in numbers(path.parent / name)]
    assert list(range(found[0], 401)) == found


def test_a_line_longer_than_a_file_may_be_is_written_all_the_same(make: Make, path: Path) -> None:
    """It has a file for itself."""
    log = make(rotate_size=4096)
    for event in (ACCEPTED, DaemonWarning(topic="t", message="m" * 9000, remedy="r"), ACCEPTED):
        log.publish(event)
    names = ["events.log.2", "events.log.1", "events.log"]
    assert [[1], [2], [3]] == [numbers(path.parent / name) for name in names]


def test_a_reload_opens_the_file_anew(make: Make, path: Path) -> None:
    """For those who move it away by themselves: nothing is lost before or after."""
    log = make()
    log.publish(ACCEPTED)
    path.rename(path.with_name("moved"))
    log.publish(ACCEPTED)
    log.publish(RELOADED)
    log.publish(ACCEPTED)
    assert ([1, 2], [3, 4]) == (numbers(path.with_name("moved")), numbers(path))


def test_a_file_that_cannot_be_opened_anew_is_used_on(
    make: Make, path: Path, stderr: tuple[int, int]
) -> None:
    """It is told once."""
    log = make()
    path.rename(path.with_name("moved"))
    path.mkdir()
    for _ in range(3):
        log.publish(RELOADED)
    assert [1, 2, 3] == numbers(path.with_name("moved"))
    expected = f"supervisord-llm: cannot reopen {path}: Is a directory; what was open is written to"
    assert [f"{expected} as before"] == told(stderr).splitlines()


def test_a_file_that_was_cut_short_by_others_is_written_on(make: Make, path: Path) -> None:
    """Its size is asked, not remembered."""
    log = make(rotate_size=4096)
    for _ in range(30):
        log.publish(ACCEPTED)
    os.truncate(path, 0)
    log.publish(ACCEPTED)
    assert [31] == numbers(path)
    assert not path.with_name("events.log.1").exists()


def test_a_line_that_a_crash_left_without_an_end_is_ended(make: Make, path: Path) -> None:
    """What comes next is a line of its own."""
    path.write_text('{"seq":0}\n{"half')
    make().publish(ACCEPTED)
    lines = path.read_text().splitlines()
    assert ['{"seq":0}', '{"half'] == lines[:2]
    assert 1 == json.loads(lines[2])["seq"]


def test_a_full_disk_costs_whole_lines_and_is_told_once(
    make: Make, path: Path, stderr: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was begun is taken back; with room again, the log goes on and says how many."""
    log = make()
    log.publish(ACCEPTED)
    room, write = 30, os.write

    def full(fd: int, data: bytes) -> int:
        nonlocal room
        if fd == stderr[1] or not os.path.samestat(os.fstat(fd), path.stat()):
            return write(fd, data)
        if not room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = write(fd, data[:room])
        room -= written
        return written

    monkeypatch.setattr(os, "write", full)
    for _ in range(3):
        room = 30
        log.publish(ACCEPTED)
    assert [1] == numbers(path)
    sentence = "No space left on device; events are dropped and counted until it can be"
    assert f"supervisord-llm: cannot write to {path}: {sentence}\n" == told(stderr)
    monkeypatch.undo()
    log.publish(ACCEPTED)
    last = json.loads(path.read_text().splitlines()[-1])
    assert [1, 5, 6] == numbers(path)
    expected = f"cannot write all events to {path}: 3 lines were dropped"
    assert ("log", expected) == (last["topic"], last["message"])
    assert "" == told(stderr)


@pytest.mark.parametrize("fails", ["open", "rename"])
def test_a_file_that_cannot_be_put_aside_grows(
    make: Make,
    path: Path,
    stderr: tuple[int, int],
    monkeypatch: pytest.MonkeyPatch,
    fails: str,
) -> None:
    """Told once, and nothing is lost, neither of it nor of the files before."""
    log = make(rotate_size=4096, rotate_keep=3)
    for number in (1, 2, 3):
        path.with_name(f"events.log.{number}").write_text("precious")
    if fails == "open":
        path.with_name("events.log.new").mkdir()
    else:

        def refuse(_self: Path, _target: Path) -> Path:
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))

        monkeypatch.setattr(Path, "replace", refuse)
    for _ in range(200):
        log.publish(ACCEPTED)
    assert list(range(1, 201)) == numbers(path)
    kept = [path.with_name(f"events.log.{number}").read_text() for number in (1, 2, 3)]
    assert ["precious"] * 3 == kept
    [line] = told(stderr).splitlines()
    assert line.startswith(f"supervisord-llm: cannot rotate {path}: ")


@pytest.mark.parametrize("kind", ["absent folder", "pipe", "folder"])
def test_a_file_that_cannot_be_had_is_refused_at_the_start(
    make: Make, path: Path, kind: str
) -> None:
    """Without waiting, e.g. for a reader of a pipe, and with the remedy."""
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.parent.rename(path.parent.with_name("elsewhere"))
    with pytest.raises(OperatorError, match=f"cannot write the log to {path}: .*change log.file"):
        make()
