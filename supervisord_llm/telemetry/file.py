"""Events to a file of JSON lines, which is put aside when it has become long.

A line is in one file, whole, or nowhere: it is written at once, and what a full disk left of it is
taken back and counted. Nothing is synced. What a writer does to a file may take as long as the disk
takes; that is the price of a log that drops nothing while there is room.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

from supervisord_llm.errors import OperatorError
from supervisord_llm.events import ConfigRejected, ConfigReloaded, Level
from supervisord_llm.telemetry.record import PRIORITIES, Record

_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK


class FileOutput:
    """Writes records of a level and above as JSON lines into a file."""

    remedy = "make room where log.file is; the control API still has the last events"

    def __init__(
        self,
        path: Path,
        *,
        level: Level,
        rotate_size: int,
        rotate_keep: int,
        complain: Callable[[str], None],
    ) -> None:
        """Open the file, or make it with mode 0640.

        Args:
            path: where it is.
            level: the least level that is written.
            rotate_size: no file gets longer than so many bytes, but for a single longer line.
            rotate_keep: how many earlier files are kept, ``.1`` the youngest.
            complain: told in a sentence, once, when the file cannot be written any more.

        Raises:
            OperatorError: if it cannot be opened, or is no regular file.
        """
        self.target = str(path)
        self._path = path
        self._least = PRIORITIES[level]
        self._rotate_size = rotate_size
        self._rotate_keep = rotate_keep
        self._complain = complain
        self._told: set[str] = set()
        self._lost = 0
        self._taking = True
        try:
            self._fd = _open(path)
        except OSError as error:
            raise OperatorError(
                f"cannot write the log to {path}: {error.strerror}; create its folder for this "
                "user, or change log.file"
            ) from error

    def __call__(self, record: Record) -> None:
        """Write a record, or drop it where there is no room."""
        if isinstance(record.event, ConfigReloaded | ConfigRejected):
            # Whoever moves the file away asks for a reload then, as logrotate(8) does.
            self._reopen()
        if PRIORITIES[record.event.level] > self._least:
            return
        try:
            self._write(record.encoded + b"\n")
        except OSError as error:
            self._taking = False
            self._lost += 1
            self._tell("write to", error, "events are dropped and counted until it can be")
        else:
            self._taking = True
            self._told.discard("write to")

    @property
    def recovered(self) -> bool:
        """Whether records were dropped since `take_lost`, but the last one was taken."""
        return self._lost > 0 and self._taking

    def take_lost(self) -> int:
        """The number of records that were dropped, which is forgotten by this."""
        lost, self._lost = self._lost, 0
        return lost

    def close(self) -> None:
        """Let go of the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _write(self, line: bytes) -> None:
        # Asked each time: somebody else may have cut the file short.
        size = os.fstat(self._fd).st_size
        if size and size + len(line) > self._rotate_size and self._rotate():
            size = 0
        written = 0
        try:
            while written < len(line):
                written += os.write(self._fd, line[written:])
        except OSError:
            if written:
                os.ftruncate(self._fd, size)
            raise

    def _rotate(self) -> bool:
        """Put the file aside; where that is refused, it goes on growing, since nothing may be lost.

        The next file is there before anything is moved, and what is moved goes from the oldest to
        the youngest, so wherever this is cut short, at most a number is missing.
        """
        new = self._path.with_name(f"{self._path.name}.new")
        names = [self._path, *map(self._numbered, range(1, self._rotate_keep + 1))]
        try:
            fresh = _open(new)
        except OSError as error:
            self._tell("rotate", error, "it goes on growing")
            return False
        try:
            for older, younger in reversed(list(zip(names[1:], names[:-1], strict=True))):
                with contextlib.suppress(FileNotFoundError):
                    younger.replace(older)
            new.replace(self._path)
        except OSError as error:
            os.close(fresh)
            self._tell("rotate", error, "it goes on growing")
            return False
        os.close(self._fd)
        self._fd = fresh
        return True

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")

    def _reopen(self) -> None:
        try:
            fresh = _open(self._path)
        except OSError as error:
            self._tell("reopen", error, "what was open is written to as before")
            return
        os.close(self._fd)
        self._fd = fresh

    def _tell(self, what: str, error: OSError, consequence: str) -> None:
        if what not in self._told:
            self._told.add(what)
            self._complain(f"cannot {what} {self._path}: {error.strerror}; {consequence}")


def _open(path: Path) -> int:
    """Open the file to append whole lines to it; one that was left without an end gets one."""
    fd = os.open(path, _FLAGS, 0o640)
    try:
        _end_line(fd)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _end_line(fd: int) -> None:
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file")
    if found.st_size and os.pread(fd, 1, found.st_size - 1) != b"\n":
        os.write(fd, b"\n")
