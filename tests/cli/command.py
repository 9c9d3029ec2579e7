"""The real command in a process of its own, as a shell would start it."""

from __future__ import annotations

import array
import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import msgspec
import trio

ARGV = (
    sys.executable,
    "-c",
    "import sys; from supervisord_llm.cli.ctl import main; sys.exit(main())",
)

PATIENCE = 60.0
"""Seconds after which a command that does not end fails its test."""


async def happens(event: trio.Event) -> None:
    """Wait for something that must happen; a test that would hang fails instead."""
    with trio.fail_after(PATIENCE):
        await event.wait()


class Done(msgspec.Struct, frozen=True):
    """How a command ended and what it wrote."""

    code: int
    out: str = ""
    err: str = ""


def environment(socket: Path, **extra: str) -> dict[str, str]:
    """The test's environment, with the daemon's socket and without what colours output."""
    kept = {key: value for key, value in os.environ.items() if key not in _DECORATING}
    return {**kept, "SUPERVISORD_LLM_SOCKET": str(socket), "TERM": "xterm", **extra}


_DECORATING = {"NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "TTY_COMPATIBLE", "COLORTERM"}


async def llmctl(
    socket: Path,
    *arguments: str,
    stdin: bytes = b"",
    stdout: int = subprocess.PIPE,
    **extra: str,
) -> Done:
    """Run a command to its end, with these variables added to its environment."""
    done = await trio.to_thread.run_sync(
        lambda: subprocess.run(
            [*ARGV, *arguments],
            input=stdin,
            stdout=stdout,
            stderr=subprocess.PIPE,
            env=environment(socket, **extra),
            timeout=PATIENCE,
            check=False,
        )
    )
    return Done(done.returncode, (done.stdout or b"").decode(), done.stderr.decode())


class Running:
    """A command that is still at it."""

    def __init__(self, process: subprocess.Popen[bytes], out: trio.lowlevel.FdStream) -> None:
        self._process = process
        self._out = out

    async def read(self, size: int = 65536) -> str:
        """The next piece of its standard output."""
        return (await self._out.receive_some(size)).decode()

    async def wait_stuck(self) -> None:
        """Wait until its standard output takes no more; nothing tells of that, so look."""
        room = fcntl.fcntl(self._out.fileno(), fcntl.F_GETPIPE_SZ)
        with trio.fail_after(PATIENCE):
            while _waiting_in(self._out.fileno()) < room:  # noqa: ASYNC110
                await trio.sleep(0.01)

    async def close_output(self) -> None:
        """Read no more, as ``head`` does when it has enough."""
        await self._out.aclose()

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        self._process.send_signal(signal.SIGINT)

    async def wait(self) -> Done:
        """Its end, with what it wrote and was not read yet."""
        with trio.fail_after(PATIENCE):
            out = b""
            try:
                while chunk := await self._out.receive_some():
                    out += chunk
            except trio.ClosedResourceError:
                pass
            assert self._process.stderr is not None
            err = await trio.to_thread.run_sync(self._process.stderr.read, abandon_on_cancel=True)
            code = await trio.to_thread.run_sync(self._process.wait, abandon_on_cancel=True)
        return Done(code, out.decode(), err.decode())


def _waiting_in(descriptor: int) -> int:
    """How many bytes a pipe holds."""
    count = array.array("i", [0])
    fcntl.ioctl(descriptor, termios.FIONREAD, count)
    return count[0]


def _spawn(
    arguments: tuple[str, ...], socket: Path, *, stdin: int, stdout: int
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*ARGV, *arguments],
        stdin=stdin,
        stdout=stdout,
        stderr=subprocess.PIPE,
        env=environment(socket),
    )


@asynccontextmanager
async def started(socket: Path, *arguments: str, stdin: bytes = b"") -> AsyncGenerator[Running]:
    """Start a command; whatever is left of it at the end is killed."""
    given = os.memfd_create("stdin")
    try:
        os.pwrite(given, stdin, 0)
        process = _spawn(arguments, socket, stdin=given, stdout=subprocess.PIPE)
    finally:
        os.close(given)
    assert process.stdout is not None
    out = trio.lowlevel.FdStream(os.dup(process.stdout.fileno()))
    process.stdout.close()
    try:
        async with out:
            yield Running(process, out)
    finally:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


@contextmanager
def _terminal() -> Iterator[tuple[int, int]]:
    keyboard, screen = pty.openpty()
    try:
        yield keyboard, screen
    finally:
        os.close(keyboard)


async def at_terminal(socket: Path, *arguments: str) -> Done:
    """Run a command with its standard output on a terminal, whose content is ``out``."""
    with _terminal() as (keyboard, screen):
        process = _spawn(arguments, socket, stdin=screen, stdout=screen)
        os.close(screen)
        try:
            shown = await trio.to_thread.run_sync(_read_terminal, keyboard)
            assert process.stderr is not None
            err = await trio.to_thread.run_sync(process.stderr.read)
            code = await trio.to_thread.run_sync(process.wait)
        finally:
            process.kill()
            process.wait()
            assert process.stderr is not None
            process.stderr.close()
    return Done(code, shown.replace("\r\n", "\n"), err.decode())


def _read_terminal(keyboard: int) -> str:
    shown = b""
    while True:
        try:
            chunk = os.read(keyboard, 65536)
        except OSError:  # the last process on the terminal has left it
            return shown.decode()
        if not chunk:
            return shown.decode()
        shown += chunk
