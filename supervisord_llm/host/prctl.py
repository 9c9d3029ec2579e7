"""Attributes of this process that only prctl(2) sets, which Python does not offer."""

from __future__ import annotations

import ctypes
import os

_PR_SET_DUMPABLE = 4  # linux/prctl.h
_PR_SET_CHILD_SUBREAPER = 36


def seal_memory() -> None:
    """Let nobody but root read this process's memory, environment and descriptors, or trace it.

    Workers run as the daemon's user. By that alone, each could read the daemon's memory and
    environment through ``/proc`` or attach a debugger to it, and find there what other pools'
    workers are given, and what clients ask and present as keys. It leaves no core dump either. A
    program that it executes begins without this (PR_SET_DUMPABLE(2const)).

    Raises:
        OSError: if the kernel refuses.
    """
    _set(_PR_SET_DUMPABLE, 0, "cannot seal the daemon's memory")


def set_child_subreaper() -> None:
    """Make the calling process adopt its orphaned descendants, instead of the machine's init.

    Raises:
        OSError: if the kernel refuses.
    """
    _set(_PR_SET_CHILD_SUBREAPER, 1, "cannot become a child subreaper")


def _set(option: int, value: int, refused: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, *(ctypes.c_ulong(each) for each in (value, 0, 0, 0))) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{refused}: {os.strerror(number)}")
