"""Lines to a descriptor that may be slow, full or broken, without ever waiting for it.

The daemon's stderr belongs to somebody else: a terminal stopped by Ctrl-S, a pipe whose reader has
gone to sleep, a journal that is being restarted. A line that does not fit now is dropped and
counted. What was not taken: setting ``O_NONBLOCK`` on the descriptor itself, since that flag
belongs to the open file and would change it for the shell and everybody else who shares it; and a
thread that writes, since its queue needs the same dropping and its end a wait of its own.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import stat
import time
from collections.abc import Callable

_Write = Callable[[bytes], int]


class LineSink:
    """Writes whole lines to a descriptor, or drops them."""

    def __init__(self, fd: int) -> None:
        """Prepare to write to ``fd``, which stays the caller's.

        A descriptor that is not open is as good as one that is always full.
        """
        self._fd = fd
        self._owned: int | None = None
        self._write = self._pick()
        self._unwritten = b""
        self._lost = 0
        self._taking = True

    @property
    def taking(self) -> bool:
        """Whether the last line was taken."""
        return self._taking

    @property
    def lost(self) -> int:
        """How many lines were dropped since `take_lost`."""
        return self._lost

    def take_lost(self) -> int:
        """The number of lines that were dropped, which is forgotten by this."""
        lost, self._lost = self._lost, 0
        return lost

    def write(self, line: bytes) -> bool:
        """Write one line, its newline included; never waits, never raises.

        A line that was begun is finished before the next, so lines are not mixed.

        Returns:
            Whether it was taken. If not, it is dropped and counted.
        """
        self._taking = self._push() and self._begin(line)
        if not self._taking:
            self._lost += 1
        return self._taking

    def close(self, timeout: float = 0.5) -> None:
        """Finish the line that was begun, for at most ``timeout`` seconds, then let go of the file.

        Waits in the calling thread: it is for the end of the process.
        """
        deadline = time.monotonic() + timeout
        while not self._push() and (left := deadline - time.monotonic()) > 0:
            _wait_writable(self._target, left)
            time.sleep(min(left, 0.001))  # a broken pipe counts as writable
        if self._owned is not None:
            os.close(self._owned)
            self._owned = None
        self._write = _refuse

    @property
    def _target(self) -> int:
        return self._fd if self._owned is None else self._owned

    def _begin(self, line: bytes) -> bool:
        self._unwritten = line
        if self._push() or len(self._unwritten) < len(line):
            return True
        self._unwritten = b""
        return False

    def _push(self) -> bool:
        """Write what is left of a line; whether all of it was taken."""
        while self._unwritten:
            try:
                written = self._write(self._unwritten)
            except OSError:
                # Full, or broken for now: a pipe may get a new reader, a disk new room. The line
                # that could not be written is counted, which is how this is told.
                return False
            self._unwritten = self._unwritten[written:]
        return True

    def _pick(self) -> _Write:
        try:
            mode = os.fstat(self._fd).st_mode
        except OSError:
            return _refuse
        if stat.S_ISREG(mode):
            # Writing to a file does not wait for a reader; and opening it again would lose the
            # position that it shares with others.
            return lambda data: os.write(self._fd, data)
        if stat.S_ISSOCK(mode):
            return self._send
        flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        with contextlib.suppress(OSError):
            # The same pipe or terminal as a new open file, whose flags are ours alone. It may be
            # refused, e.g. where the descriptor was opened by another user.
            self._owned = os.open(f"/proc/self/fd/{self._fd}", flags)
        return self._write_owned if self._owned is not None else self._write_if_writable

    def _write_owned(self, data: bytes) -> int:
        return os.write(self._target, data)

    def _send(self, data: bytes) -> int:
        # journald's streams are sockets. The socket object is only a view: it does not own the fd.
        view = socket.socket(fileno=self._fd)
        try:
            return view.send(data, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        finally:
            view.detach()

    def _write_if_writable(self, data: bytes) -> int:
        # A pipe that polls as writable takes this many bytes without waiting.
        if not _wait_writable(self._fd, 0):
            raise BlockingIOError
        return os.write(self._fd, data[: select.PIPE_BUF])


def _refuse(_data: bytes) -> int:
    raise BlockingIOError


def _wait_writable(fd: int, timeout: float) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    return bool(poll.poll(timeout * 1000))
