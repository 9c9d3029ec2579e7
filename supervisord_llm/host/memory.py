"""What a worker and its descendants hold of memory, from ``/proc``.

Resident memory misleads twice: pages that several processes share are counted once for each, and
what was swapped out is not counted at all, so that a worker can leak for hours at a steady RSS.
Held is what the machine would have back if all of them ended: anonymous memory, shared memory and
swap, each page divided by the number of those who share it. Pages of files, a mapped model's
weights among them, are left out: the kernel takes those back whenever it wants to.

The exact sums make the kernel walk every page of a process; `held_against` does without them for
as long as a cheap estimate that errs upwards is below a limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from supervisord_llm.host import proc_files
from supervisord_llm.host.tree import split_stat

_GONE = {b"Z", b"X", b"x"}


class Memory(msgspec.Struct, frozen=True):
    """Bytes, of all the processes together; ``None`` where the kernel does not say it of each."""

    rss: int
    """Resident: in memory now, pages counted once for each process that shares them."""
    pss: int | None
    """Proportional: each resident page divided by the number of those who share it."""
    anonymous: int | None
    """Resident and not from a file."""
    swap: int | None
    shared: int | None
    """Resident shared memory: its share of what several processes may have mapped."""
    held: int
    """What would come back if all of them ended; always known, if only as an upper estimate."""
    processes: int
    """How many of them live."""


class _Part(msgspec.Struct, frozen=True):
    """The same of one process."""

    rss: int
    pss: int | None
    anonymous: int | None
    swap: int | None
    shared: int | None
    held: int


def read(pids: Iterable[int]) -> Memory:
    """What these processes hold together; those that are gone or zombies count for nothing."""
    parts = [part for pid in dict.fromkeys(pids) if (part := _part(pid)) is not None]
    return Memory(
        rss=sum(part.rss for part in parts),
        pss=_sum([part.pss for part in parts]),
        anonymous=_sum([part.anonymous for part in parts]),
        swap=_sum([part.swap for part in parts]),
        shared=_sum([part.shared for part in parts]),
        held=sum(part.held for part in parts),
        processes=len(parts),
    )


def quick(pids: Iterable[int]) -> int:
    """An estimate of what these processes hold, in bytes, from counters that cost nothing to read.

    It errs upwards where they share memory, which is counted for each. Shared memory that was
    swapped out is not in these counters; `read` knows of it.
    """
    return sum(_from_counters(_counters(pid)).held for pid in dict.fromkeys(pids))


def held_against(pids: Sequence[int], limit: int) -> int:
    """What these processes hold, in bytes: exactly if it may be above ``limit``, else estimated."""
    estimate = quick(pids)
    return estimate if estimate <= limit else read(pids).held


def _part(pid: int) -> _Part | None:
    state = _state(pid)
    if state is None or state in _GONE:
        return None
    # A process in uninterruptible sleep may hold the lock that the sums of its mappings need, and
    # whoever asks for them would sleep with it.
    sums = {} if state == b"D" else _mapping_sums(pid)
    counted = _from_counters(_counters(pid))
    if "Pss" not in sums:
        return counted
    anonymous = sums.get("Pss_Anon", sums.get("Anonymous", 0))
    shared = sums.get("Pss_Shmem", counted.shared or 0)
    swap = sums.get("SwapPss", sums.get("Swap", 0))
    return _Part(
        rss=sums.get("Rss", counted.rss),
        pss=sums["Pss"],
        anonymous=anonymous,
        swap=swap,
        shared=shared,
        held=anonymous + swap + shared,
    )


def _from_counters(counters: dict[str, int]) -> _Part:
    anonymous, swap = counters.get("RssAnon"), counters.get("VmSwap")
    shared = counters.get("RssShmem")
    return _Part(
        rss=counters.get("VmRSS", 0),
        pss=None,
        anonymous=anonymous,
        swap=swap,
        shared=shared,
        held=(anonymous or 0) + (swap or 0) + (shared or 0),
    )


def _state(pid: int) -> bytes | None:
    try:
        return split_stat(proc_files.read(pid, "stat"))[0]
    except (FileNotFoundError, ProcessLookupError):
        return None


def _counters(pid: int) -> dict[str, int]:
    return _kilobytes(pid, "status")


def _mapping_sums(pid: int) -> dict[str, int]:
    return _kilobytes(pid, "smaps_rollup")


def _kilobytes(pid: int, name: str) -> dict[str, int]:
    """The rows like ``Rss:   1748 kB`` of a file in a process's folder, in bytes."""
    try:
        content = proc_files.read(pid, name).decode("utf-8", "replace")
    except OSError:
        # Gone meanwhile, somebody else's, or a kernel without it: then it is not known.
        return {}
    rows = (line.split() for line in content.splitlines())
    return {
        row[0].rstrip(":"): int(row[1]) * 1024
        for row in rows
        if len(row) == 3 and row[2] == "kB" and row[1].isdigit()
    }


def _sum(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
