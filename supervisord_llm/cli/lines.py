"""Standard input, line by line, without stopping the event loop.

It is waited for as the output is, and not in a thread: a thread that reads a terminal cannot be
called back, and would swallow what is typed for the shell afterwards. So the line is edited as
terminals do it by themselves (at most 4095 bytes on Linux, see termios(3)), and not by readline.
"""

from __future__ import annotations

import os
import sys

import trio

from supervisord_llm.errors import SupervisordError

_CHUNK = 65536


class InputError(SupervisordError):
    """Standard input cannot be read, for example because its terminal is gone."""


class Lines:
    """What comes from standard input, a line at a time."""

    def __init__(self) -> None:
        self._descriptor = sys.stdin.fileno()
        self._read = b""
        self._ended = False

    async def next(self) -> bytes | None:
        """The next line without its end, or ``None`` when there is no more; else `InputError`.

        One that is given up loses nothing.
        """
        await trio.lowlevel.checkpoint()
        while (end := self._read.find(b"\n")) < 0 and not self._ended:
            chunk = await self._chunk()
            self._read += chunk
            self._ended = not chunk
        if end < 0 and not self._read:
            return None
        line, _, self._read = self._read.partition(b"\n")
        return line

    async def _chunk(self) -> bytes:
        while True:
            try:
                await trio.lowlevel.wait_readable(self._descriptor)
            except PermissionError:  # a regular file, which epoll does not take
                await trio.lowlevel.checkpoint()
            try:
                return os.read(self._descriptor, _CHUNK)
            except BlockingIOError:  # somebody else has read it
                continue
            except OSError as error:
                raise InputError(f"cannot read standard input: {error.strerror}") from error
