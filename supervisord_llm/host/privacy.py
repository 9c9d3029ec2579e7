"""Keeps other processes of the same user out of this one's memory.

Workers run as the daemon's user. By that alone, each could read the daemon's memory and environment
through ``/proc`` or attach a debugger to it, and find there what other pools' workers are given,
and what clients ask and present as keys.
"""

from __future__ import annotations

import ctypes
import os

_PR_SET_DUMPABLE = 4  # linux/prctl.h


def seal_memory() -> None:
    """Let nobody but root read this process's memory, environment and descriptors, or trace it.

    It leaves no core dump either. A program that it executes begins without this
    (PR_SET_DUMPABLE(2const)).

    Raises:
        OSError: if the kernel refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_DUMPABLE, *(ctypes.c_ulong(value) for value in (0, 0, 0, 0))) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"cannot seal the daemon's memory: {os.strerror(number)}")
