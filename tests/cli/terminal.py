"""A command on a terminal of its own, while it goes on."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import subprocess
import termios
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from tests.cli.command import ARGV, PATIENCE, environment

ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l"
LEAVE = "\x1b[?7h\x1b[?25h\x1b[?1049l"


class Terminal:
    """What a command shows on its terminal, and what a person may do to it."""

    def __init__(self, process: subprocess.Popen[bytes], keyboard: int) -> None:
        self.shown = ""
        self._process = process
        self._stream = trio.lowlevel.FdStream(os.dup(keyboard))
        self._seen = 0

    async def wait_shown(self, text: str) -> str:
        """Wait until a text is shown that was not seen yet: all that was shown up to its end."""
        with trio.fail_after(PATIENCE):
            while (at := self.shown.find(text, self._seen)) < 0:
                self.shown += (await self._stream.receive_some()).decode()
        self._seen = at + len(text)
        return self.shown[: self._seen]

    async def type(self, text: str) -> None:
        """Press these keys."""
        await self._stream.send_all(text.encode())

    def send(self, number: signal.Signals) -> None:
        """Send the command a signal."""
        self._process.send_signal(number)

    async def wait_stopped(self) -> None:
        """Wait until the command's process is stopped, by whatever signal."""
        with trio.fail_after(PATIENCE):
            await trio.to_thread.run_sync(
                lambda: os.waitid(os.P_PID, self._process.pid, os.WSTOPPED), abandon_on_cancel=True
            )

    async def wait_ended(self) -> tuple[int, str]:
        """Wait for the command's end: its exit status, and its standard error."""
        with trio.fail_after(PATIENCE):
            try:
                while True:
                    self.shown += (await self._stream.receive_some()).decode()
            except trio.BrokenResourceError:  # the last process on the terminal has left it
                pass
            code = await trio.to_thread.run_sync(self._process.wait, abandon_on_cancel=True)
        assert self._process.stderr is not None
        return code, self._process.stderr.read().decode()

    async def aclose(self) -> None:
        """Look no more."""
        await self._stream.aclose()


@asynccontextmanager
async def at_work(
    socket: Path, *arguments: str, size: tuple[int, int] = (24, 100)
) -> AsyncGenerator[Terminal]:
    """Start a command on a terminal of this many lines and columns; what is left is killed."""
    keyboard, screen = pty.openpty()
    try:
        fcntl.ioctl(screen, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
        process = subprocess.Popen(  # noqa: ASYNC220 - started and left
            [*ARGV, *arguments],
            stdin=screen,
            stdout=screen,
            stderr=subprocess.PIPE,
            env=environment(socket),
        )
        os.close(screen)
        terminal = Terminal(process, keyboard)
        try:
            yield terminal
        finally:
            process.kill()
            process.wait()
            assert process.stderr is not None
            process.stderr.close()
            await terminal.aclose()
    finally:
        os.close(keyboard)
