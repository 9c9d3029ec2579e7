"""What a worker holds of memory and has used of the machine, from ``/proc``.

`read` is for people: every few seconds, and as exact as the kernel says. `progress` is a sign of
life for a process that says nothing: cheap, and only ever compared with itself.

psutil was not taken: it does not tell anonymous memory apart, and these are four short files.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import msgspec

from supervisord_llm.host import memory, proc_files
from supervisord_llm.host.tree import split_stat

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class Usage(msgspec.Struct, frozen=True):
    """Memory of a worker and its descendants, in bytes, and CPU time.

    ``None`` stands for what the kernel does not say; see `supervisord_llm.host.memory.Memory`.
    """

    rss: int
    """Resident: in memory now, shared pages counted in full."""
    pss: int | None
    """Proportional: each shared page divided by the number of those who share it."""
    anonymous: int | None
    """Resident and not from a file."""
    swap: int | None
    cpu_seconds: float
    """User and system time of the worker's own process, all its threads together."""
    held: int = 0
    """What would come back if they ended: anonymous and shared memory, and swap."""
    processes: int = 1
    """The worker's process and those of its descendants that live."""
    gpu: int | None = None
    """Memory on GPUs; ``None`` where nothing tells."""


class Progress(msgspec.Struct, frozen=True):
    """Two of these that differ show that the process did something in between."""

    cpu_ticks: int
    """User and system time; a tick is a hundredth of a second on common machines."""
    io_bytes: int
    """Read and written, through calls and through mapped files; 0 where it may not be looked at."""


def read(
    pid: int, relatives: Sequence[int] = (), gpu: Mapping[int, int] | None = None
) -> Usage | None:
    """The usage of a worker; ``None`` if its process is gone or a zombie.

    Args:
        pid: the worker's process.
        relatives: the pids of its descendants, whose memory counts as its own.
        gpu: bytes on GPUs by pid, of all the processes that use one; ``None`` if it is not known.
    """
    fields = _stat(pid)
    if fields is None:
        return None
    pids = {pid, *relatives}
    found = memory.read(pids)
    return Usage(
        rss=found.rss,
        pss=found.pss,
        anonymous=found.anonymous,
        swap=found.swap,
        cpu_seconds=_cpu_ticks(fields) / _TICKS_PER_SECOND,
        held=found.held,
        processes=found.processes,
        gpu=None if gpu is None else sum(gpu.get(each, 0) for each in pids),
    )


def progress(pid: int) -> Progress | None:
    """How far a process has come; ``None`` if it is gone or a zombie."""
    fields = _stat(pid)
    return None if fields is None else Progress(_cpu_ticks(fields), _io_bytes(pid))


def _stat(pid: int) -> list[bytes] | None:
    try:
        fields = split_stat(proc_files.read(pid, "stat"))
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in {b"Z", b"X", b"x"} else fields


def _cpu_ticks(fields: list[bytes]) -> int:
    return int(fields[11]) + int(fields[12])


def _io_bytes(pid: int) -> int:
    try:
        content = proc_files.read(pid, "io").decode("ascii")
    except OSError:
        return 0
    counted = {"rchar", "wchar", "read_bytes", "write_bytes"}
    rows = (line.partition(": ") for line in content.splitlines())
    return sum(int(value) for name, _, value in rows if name in counted)
