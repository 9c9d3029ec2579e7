"""What processes hold of the GPUs' memory, asked of ``nvidia-smi`` every few seconds.

With a broken driver it hangs, at worst where no signal reaches it. So it is waited for only for a
bounded time, then killed, and while it is not dead no other is started.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import trio

from supervisord_llm.host import gpu

_SECONDS = 10.0
"""Between two questions, like between two looks at a worker's usage."""
_TIMEOUT_SECONDS = 5.0
"""Without its persistence daemon the driver takes some seconds to wake up."""
_DEATH_SECONDS = 1.0
_MOST_BYTES = 2**20


class GpuMemory:
    """The latest answer, for all workers."""

    def __init__(self, path: Path | None, *, timeout: float = _TIMEOUT_SECONDS) -> None:
        """Nothing is known yet.

        Args:
            path: ``nvidia-smi``; ``None`` on a machine without it, of which nothing is ever known.
            timeout: how long an answer may take, in seconds.
        """
        self.latest: Mapping[int, int] | None = None
        """Bytes by pid; ``None`` while it is not known."""
        self.problem: str | None = None
        """Why the last question was not answered."""
        self._path = path
        self._timeout = timeout
        self._asked: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The ``nvidia-smi`` that runs or that nobody has reaped yet: a child that is no stray."""
        return None if self._asked is None else self._asked.pid

    async def run(self) -> None:
        """Ask again and again; ends at once where there is nobody to ask."""
        while self._path is not None:
            await self.ask()
            await trio.sleep(_SECONDS)

    async def ask(self) -> None:
        """Ask once, which takes a bounded time; without an answer nothing is known any more."""
        if self._path is None:
            return
        try:
            self.latest = gpu.parse(await self._answer(self._path))
            self.problem = None
        except (OSError, ValueError) as error:
            self.latest = None
            self.problem = f"cannot tell the memory on GPUs: {error}"

    async def _answer(self, path: Path) -> str:
        if self._asked is not None and self._asked.poll() is None:
            raise ValueError(f"process {self._asked.pid}, {path}, does not die")
        self._asked, descriptor = _start(path)
        async with trio.lowlevel.FdStream(descriptor) as stream:
            try:
                pidfd = os.pidfd_open(self._asked.pid)
            except OSError:
                self._asked.kill()
                raise
            try:
                with trio.move_on_after(self._timeout):
                    return await _read(path, self._asked, pidfd, stream)
                raise ValueError(f"{path} did not answer within {self._timeout:g} s")
            finally:
                await self._end(self._asked, pidfd)
                os.close(pidfd)

    async def _end(self, process: subprocess.Popen[bytes], pidfd: int) -> None:
        """Leave nothing behind, except what does not die of SIGKILL."""
        if process.returncode is None:
            process.kill()
            with trio.move_on_after(_DEATH_SECONDS, shield=True):
                await trio.lowlevel.wait_readable(pidfd)
                process.wait()
        if process.returncode is not None:
            self._asked = None


def _start(path: Path) -> tuple[subprocess.Popen[bytes], int]:
    """Start it, and return it with the descriptor to read its answer from."""
    read, write = os.pipe2(os.O_CLOEXEC)
    try:
        process = subprocess.Popen(
            [path, *gpu.ARGUMENTS],
            stdin=subprocess.DEVNULL,
            stdout=write,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        os.close(read)
        raise
    finally:
        os.close(write)
    return process, read


async def _read(
    path: Path, process: subprocess.Popen[bytes], pidfd: int, stream: trio.abc.ReceiveStream
) -> str:
    output = b""
    async for chunk in stream:
        output += chunk
        if len(output) > _MOST_BYTES:
            raise ValueError(f"{path} prints without end")
    await trio.lowlevel.wait_readable(pidfd)
    if (code := process.wait()) != 0:
        raise ValueError(f"{path} ended with {code}: {_first_line(output)}")
    return output.decode("utf-8", "replace")


def _first_line(output: bytes) -> str:
    line, _, _ = output.strip().partition(b"\n")
    return line[:200].decode("utf-8", "replace") or "no reason given"
