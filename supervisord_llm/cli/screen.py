"""A terminal's second screen, for a picture that is drawn again and again.

Whatever ends the command, the first screen is back afterwards, with its cursor. Rich's own live
display was not taken: it writes from a thread, which a terminal that is stopped (Ctrl-S) blocks,
and Ctrl-C with it.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio

from supervisord_llm.cli.output import Output

# The second screen; the cursor hidden; lines that are too long cut off at the edge.
_ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l"
_LEAVE = "\x1b[?7h\x1b[?25h\x1b[?1049l"
_HOME, _END_OF_LINE, _BELOW = "\x1b[H", "\x1b[K", "\x1b[J"

_LEAVE_SECONDS = 0.5
"""How long the way back waits for a terminal that takes nothing."""


class Screen:
    """The second screen while it is shown; `second_screen` makes it."""

    def __init__(self, out: Output) -> None:
        self._out = out

    async def draw(self, text: str) -> None:
        """Show these lines, the first ones if the terminal has not enough, and nothing else."""
        height = os.get_terminal_size(sys.stdout.fileno()).lines
        lines = text.rstrip("\n").split("\n")[: max(1, height)]
        await self._out.write(_HOME + "\n".join(line + _END_OF_LINE for line in lines) + _BELOW)

    async def enter(self) -> None:
        """Go to the second screen."""
        await self._out.write(_ENTER)

    async def leave(self) -> None:
        """Go back, also while the command is being cancelled."""
        with trio.move_on_after(_LEAVE_SECONDS, shield=True):
            await self._out.write(_LEAVE)


@asynccontextmanager
async def second_screen(out: Output) -> AsyncGenerator[Screen]:
    """Show the second screen while the block runs."""
    screen = Screen(out)
    async with trio.open_nursery() as nursery:
        await nursery.start(_heed_signals, screen)
        try:
            await screen.enter()
            yield screen
        finally:
            await screen.leave()
        nursery.cancel_scope.cancel()


async def _heed_signals(
    screen: Screen, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Give the terminal back before the process is ended, or stopped by Ctrl-Z."""
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP) as signals:
        task_status.started()
        async for number in signals:
            await screen.leave()
            if number == signal.SIGTSTP:
                os.kill(os.getpid(), signal.SIGSTOP)
                await screen.enter()
            else:
                signal.signal(number, signal.SIG_DFL)
                os.kill(os.getpid(), number)
