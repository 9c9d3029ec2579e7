"""SIGTERM, SIGINT and SIGHUP: what a service manager, a terminal and an operator say by signal."""

from __future__ import annotations

import signal
from collections.abc import Callable

import trio

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


async def serve_signals(
    on_stop: Callable[[str], None],
    on_hangup: Callable[[], None],
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Tell signals as they come, until cancelled.

    Args:
        on_stop: SIGTERM or SIGINT, by name; once for each, so the second one is the second call.
        on_hangup: SIGHUP.
        task_status: started once no signal can be lost any more.
    """
    # What the receiver puts back at its end: a late signal must not kill a daemon that has stopped
    # in order and is on its way out.
    for each in (*STOP_SIGNALS, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    with trio.open_signal_receiver(*STOP_SIGNALS, signal.SIGHUP) as received:
        task_status.started()
        async for number in received:
            if number == signal.SIGHUP:
                on_hangup()
            else:
                on_stop(signal.Signals(number).name)
