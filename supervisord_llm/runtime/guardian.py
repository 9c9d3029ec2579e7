"""A worker's guardian: the native launcher, which stays as the worker's parent.

It adopts what the worker's processes leave behind and, once its life pipe ends, kills all of it:
also when nobody is left to ask for that, since the pipe ends with the daemon. It tells of the
worker's exit and does not reap it before that, so a worker's pid stays its own for as long as the
daemon may signal it.

It answers to nothing but SIGKILL, and that takes the worker along. The orphans come to the daemon
then, which is their next subreaper.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

import trio

from supervisord_llm.core.words import ExitCause, ExitKind
from supervisord_llm.errors import SpawnError
from supervisord_llm.host import tree

START_SECONDS = 2.0
"""How long the launcher may take to start the worker's process; it takes a millisecond."""
ANSWER_SECONDS = 1.0
"""How long it may take to tell of the worker's exit; one that is stopped never does."""
UNDO_SECONDS = 0.5
"""How long it may take to undo a start."""


class Guardian:
    """A guardian that has started its worker."""

    def __init__(
        self,
        popen: subprocess.Popen[bytes],
        *,
        pidfd: int,
        status: int,
        let_go: Callable[[], None],
    ) -> None:
        """Adopt a launcher that was started just now; blocks until the worker's process is there.

        Args:
            popen: its process.
            pidfd: refers to it; closed by `close`.
            status: the read end of its status pipe, which does not block; closed by `close`.
            let_go: closes the write end of its life pipe; may be called twice.

        Raises:
            SpawnError: if it takes longer than `START_SECONDS`, or cannot do it.
        """
        self._popen = popen
        self._pidfd = pidfd
        self._status = status
        self._let_go = let_go
        self._received = b""
        self._reaped = False
        self.worker = self._wait_started()
        """The pid of the worker, which leads its session."""
        # Not before: until it has begun to execute, it is as sealed as this process is
        # (host/prctl.py), and where /proc is mounted with hidepid= nobody sees it.
        facts = tree.read(popen.pid)
        if facts is None:  # impossible: it is not reaped
            raise SpawnError(f"cannot find process {popen.pid} in /proc; mount it")
        self.facts = facts

    @classmethod
    def start(
        cls,
        launcher: Path,
        arguments: Sequence[str],
        *,
        streams: Sequence[int],
        inherited: Sequence[int],
        env: Mapping[str, str],
    ) -> Self:
        """Start a launcher on this thread.

        Args:
            launcher: the program.
            arguments: its options, ``--`` and the command, but for what binds it to this process.
            streams: the worker's standard input, output and error.
            inherited: what else the worker inherits.
            env: the worker's environment.

        Raises:
            SpawnError: if it does not start the worker; nothing is left of the attempt.
            OSError: if the system refuses a process or a descriptor.
        """
        life = contextlib.ExitStack()
        with contextlib.ExitStack() as undo, contextlib.ExitStack() as passed:
            undo.callback(life.close)
            ends, life_writer = os.pipe2(os.O_CLOEXEC)
            passed.callback(os.close, ends)
            life.callback(os.close, life_writer)
            status, tells = os.pipe2(os.O_CLOEXEC)
            undo.callback(os.close, status)
            passed.callback(os.close, tells)
            os.set_blocking(status, False)
            binding = ["--parent", str(os.getpid()), "--life", str(ends), "--status", str(tells)]
            stdin, stdout, stderr = streams
            popen = subprocess.Popen(
                [str(launcher), *binding, *arguments],
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                pass_fds=[*inherited, ends, tells],
                env=env,
                start_new_session=True,
            )
            undo.callback(_end, popen, life.close)
            passed.close()
            pidfd = os.pidfd_open(popen.pid)
            undo.callback(os.close, pidfd)
            guardian = cls(popen, pidfd=pidfd, status=status, let_go=life.close)
            undo.pop_all()
        return guardian

    @property
    def pid(self) -> int:
        """Its process; see `holds` for whether that still is its own."""
        return self._popen.pid

    @property
    def holds(self) -> bool:
        """Whether it is not reaped, so that its pid is its own and orphans come to it."""
        return not self._reaped

    @property
    def ended(self) -> bool:
        """Whether its process has ended, and its children are somebody else's."""
        return is_readable(self._pidfd)

    async def wait_told(self) -> None:
        """Wait until the exit of the worker, which has ended, can be looked up: for bounded time.

        A guardian that does not tell in time is killed, and the worker is the daemon's then.
        """
        with trio.move_on_after(ANSWER_SECONDS):
            while self._receive() and b"\n" not in self._received:
                await trio.lowlevel.wait_readable(self._status)
        if b"\n" not in self._received:
            self._popen.kill()
            await trio.lowlevel.wait_readable(self._pidfd)

    def told(self) -> ExitCause | None:
        """How the worker ended, if that has been told."""
        self._receive()
        line, newline, _ = self._received.partition(b"\n")
        match line.split() if newline else ():
            case [b"exited", code]:
                return ExitCause(ExitKind.EXIT, int(code))
            case [b"signalled", number, core]:
                return signalled(int(number), dumped=core == b"1")
            case _:
                return None

    async def finish(self) -> bool:
        """Let it end everything that is left, and reap it: however long that takes.

        One that was stopped, perhaps just now, is told to go on.

        Returns:
            Whether it did that; not if it was killed itself.
        """
        self._let_go()
        while not self.ended:
            signal.pidfd_send_signal(self._pidfd, signal.SIGCONT)
            with trio.move_on_after(ANSWER_SECONDS):
                await trio.lowlevel.wait_readable(self._pidfd)
        self._reaped = True
        return self._popen.wait() == 0

    def abandon(self) -> None:
        """End it and all that it has started; blocks for a bounded moment. Nothing follows it."""
        _end(self._popen, self._let_go)
        self.close()

    def close(self) -> None:
        """Let go of it, and give back the descriptors."""
        self._let_go()
        os.close(self._status)
        os.close(self._pidfd)

    def _wait_started(self) -> int:
        deadline = time.monotonic() + START_SECONDS
        while b"\n" not in self._received:
            if not is_readable(self._status, max(0.0, deadline - time.monotonic())):
                raise SpawnError(f"it took longer than {START_SECONDS:g} s")
            if not self._receive():
                raise SpawnError("the launcher ended")
        line, _, self._received = self._received.partition(b"\n")
        return int(line.removeprefix(b"started "))

    def _receive(self) -> bool:
        """Take in what it has written; whether more may come."""
        try:
            while piece := os.read(self._status, 256):
                self._received += piece
        except BlockingIOError:
            return True
        return False


def _end(popen: subprocess.Popen[bytes], let_go: Callable[[], None]) -> None:
    let_go()
    try:
        popen.wait(UNDO_SECONDS)
    except subprocess.TimeoutExpired:
        popen.kill()
        popen.wait()


def is_readable(descriptor: int, timeout: float = 0.0) -> bool:
    """Whether a descriptor can be read from, or becomes so within ``timeout`` seconds."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(timeout * 1000))


def signalled(number: int, *, dumped: bool) -> ExitCause:
    """The cause of an end by a signal; ``dumped``: it left a core dump."""
    try:
        name = signal.Signals(number).name
    except ValueError:  # a real-time signal
        name = f"SIG{number}"
    return ExitCause(ExitKind.CORE_DUMPED if dumped else ExitKind.SIGNAL, number, name)
