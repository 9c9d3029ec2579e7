"""What a process holds of memory and has used of the machine, from ``/proc``.

`read` is for people: every few seconds, and as exact as the kernel says. `progress` is a sign of
life for a process that says nothing: cheap, and only ever compared with itself.

psutil was not taken: it does not tell anonymous memory apart, and these are three short files.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from supervisord_llm.host.tree import split_stat

_PROC = Path("/proc")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class Usage(msgspec.Struct, frozen=True):
    """Memory in bytes and CPU time; ``None`` for what the kernel does not say."""

    rss: int
    """Resident: in memory now, shared pages counted in full."""
    pss: int | None
    """Proportional: each shared page divided by the number of those who share it."""
    anonymous: int | None
    """Resident and not from a file: what the process does not share with its pool."""
    swap: int | None
    cpu_seconds: float
    """User and system time of the process itself, all its threads together."""


class Progress(msgspec.Struct, frozen=True):
    """Two of these that differ show that the process did something in between."""

    cpu_ticks: int
    """User and system time; a tick is a hundredth of a second on common machines."""
    io_bytes: int
    """Read and written, through calls and through mapped files; 0 where it may not be looked at."""


def read(pid: int) -> Usage | None:
    """The usage of a process; ``None`` if it is gone or a zombie."""
    fields = _stat(pid)
    if fields is None:
        return None
    # A process in uninterruptible sleep may hold the lock that the sums of its mappings need, and
    # whoever asks for them would sleep with it.
    sums = {} if fields[0] == b"D" else _mapping_sums(pid)
    return Usage(
        rss=sums.get("Rss", int(fields[21]) * _PAGE_BYTES),
        pss=sums.get("Pss"),
        anonymous=sums.get("Anonymous"),
        swap=sums.get("Swap"),
        cpu_seconds=_cpu_ticks(fields) / _TICKS_PER_SECOND,
    )


def progress(pid: int) -> Progress | None:
    """How far a process has come; ``None`` if it is gone or a zombie."""
    fields = _stat(pid)
    return None if fields is None else Progress(_cpu_ticks(fields), _io_bytes(pid))


def _stat(pid: int) -> list[bytes] | None:
    try:
        fields = split_stat((_PROC / str(pid) / "stat").read_bytes())
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in {b"Z", b"X", b"x"} else fields


def _cpu_ticks(fields: list[bytes]) -> int:
    return int(fields[11]) + int(fields[12])


def _mapping_sums(pid: int) -> dict[str, int]:
    try:
        content = (_PROC / str(pid) / "smaps_rollup").read_text("ascii", "replace")
    except OSError:
        # Gone meanwhile, somebody else's, or a kernel without it: then it is not known.
        return {}
    # The first line names the range; the others are like "Rss:   1748 kB".
    rows = (line.split() for line in content.splitlines()[1:])
    return {row[0].rstrip(":"): int(row[1]) * 1024 for row in rows if row[-1:] == ["kB"]}


def _io_bytes(pid: int) -> int:
    try:
        content = (_PROC / str(pid) / "io").read_text("ascii")
    except OSError:
        return 0
    counted = {"rchar", "wchar", "read_bytes", "write_bytes"}
    rows = (line.partition(": ") for line in content.splitlines())
    return sum(int(value) for name, _, value in rows if name in counted)
