"""Which processes there are and which of them belong to a worker, from ``/proc``.

A worker may start processes of its own, and those may leave: fork twice, begin a new session, clear
their environment. No single sign finds them all, so several are read: descent, process group,
session, and the start time under which a process was seen before. The mark in a process's
environment can be copied or cleared by anybody, so it is a hint only: it counts for processes
that lost their parent and were adopted by the daemon, the subreaper of its workers, and for nothing
else.

A pid alone names nobody for long. A process is named by its pid *and* its start time, and a signal
goes through a pidfd that was compared with both.

psutil was not taken here: it reads several files for each process and knows neither group nor
session.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterable, Mapping

import msgspec

from supervisord_llm.host import proc_files

SLOT_VARIABLE = "SUPERVISORD_LLM_SLOT"
"""The environment variable that marks a worker and what it starts, e.g. ``smollm.0/3``."""


class ProcessFacts(msgspec.Struct, frozen=True):
    """What ``/proc/PID/stat`` says about who a process is; see proc_pid_stat(5)."""

    pid: int
    ppid: int
    pgrp: int
    session: int
    start_time: int
    """Clock ticks from the machine's boot to the process's start."""
    state: str
    """One letter: ``R``, ``S``, ``D``, ``T``, ``Z`` and so on."""

    @property
    def living(self) -> bool:
        """Whether it can still run: it is neither a zombie nor dead."""
        return self.state not in {"Z", "X", "x"}


Scan = Mapping[int, ProcessFacts]
"""Processes by pid."""


def split_stat(content: bytes) -> list[bytes]:
    """The fields of a ``/proc/PID/stat`` file from the third one on, the process's state.

    Raises:
        ValueError: if it is not one.
    """
    # The second field, the command's name, stands in parentheses and may itself hold spaces and
    # parentheses, so the fields are counted from the last one.
    _, closing, tail = content.rpartition(b")")
    fields = tail.split()
    if not closing or len(fields) < 22:
        raise ValueError(f"cannot read {content[:80]!r} as the content of /proc/PID/stat")
    return fields


def parse_stat(content: bytes) -> ProcessFacts:
    """Read the content of a ``/proc/PID/stat`` file.

    Raises:
        ValueError: if it is not one.
    """
    fields = split_stat(content)
    return ProcessFacts(
        pid=int(content.partition(b" ")[0]),
        ppid=int(fields[1]),
        pgrp=int(fields[2]),
        session=int(fields[3]),
        start_time=int(fields[19]),
        state=fields[0].decode("ascii"),
    )


def read(pid: int) -> ProcessFacts | None:
    """The facts of one process; ``None`` when there is none with that pid."""
    try:
        content = proc_files.read(pid, "stat")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return parse_stat(content)


def scan() -> dict[int, ProcessFacts]:
    """All processes, zombies included.

    The kernel gives no snapshot: a process that starts meanwhile can be missed, so whoever must be
    sure that nothing is left scans again until nothing is found.
    """
    found = {}
    for name in os.listdir(proc_files.PROC):  # noqa: PTH208 - a Path for each process is most of the cost
        if name.isdigit() and (facts := read(int(name))) is not None:
            found[facts.pid] = facts
    return found


def descendants(root: int, processes: Scan) -> dict[int, ProcessFacts]:
    """The children of ``root``, their children and so on, by pid; without ``root`` itself."""
    return _closure({root}, processes)


def mark_of(pid: int) -> str | None:
    """The mark in a process's environment; ``None`` if it has none, is gone, or is not readable.

    The environment is the one that its program was started with.
    """
    prefix = SLOT_VARIABLE.encode() + b"="
    try:
        content = proc_files.read(pid, "environ")
    except OSError:
        # Gone, or somebody else's; the kernel says so in several ways.
        return None
    for entry in content.split(b"\0"):
        if entry.startswith(prefix):
            return entry.removeprefix(prefix).decode("utf-8", "replace")
    return None


def marked(mark: str, processes: Scan | None = None) -> dict[int, ProcessFacts]:
    """Living processes with a mark in their environment, by pid: a hint, never a verdict.

    Args:
        mark: a worker, ``smollm.0/3``, or a slot, ``smollm.0``, for all its generations.
        processes: a scan to look through; a new one is made otherwise.
    """
    processes = scan() if processes is None else processes
    return {
        pid: facts
        for pid, facts in processes.items()
        if facts.living and (found := mark_of(pid)) is not None and _names(mark, found)
    }


def relatives(
    leader: int | None,
    *,
    known: Mapping[int, int],
    mark: str,
    daemon: int | None,
    guardian: int | None = None,
    processes: Scan | None = None,
    read_mark: Callable[[int], str | None] = mark_of,
) -> list[ProcessFacts]:
    """The living processes that belong to a worker, in the order of their pids.

    They descend from it or from its guardian, share its group or session, were seen before under
    the same start time, are orphans with its mark that the daemon adopted, or descend from one of
    these. Leader and guardian themselves are left out.

    Args:
        leader: the worker's pid. It must not have been reaped yet: until then its group and session
            ids are its own. ``None`` where it is gone; then these signs count for nothing.
        known: start times by pid of relatives that were seen before.
        mark: the worker's mark, ``smollm.0/3``.
        daemon: the pid of the subreaper that adopts orphans; ``None`` if that one is gone, and then
            the mark counts for nothing.
        guardian: the pid of the worker's parent, the subreaper of what it starts. It must not have
            been reaped yet. ``None`` where it is gone.
        processes: a scan to look through; a new one is made otherwise.
        read_mark: returns the mark of a process, as `mark_of` does.
    """
    processes = scan() if processes is None else processes
    seeds = {pid for pid, facts in processes.items() if known.get(pid) == facts.start_time}
    if leader is not None and leader in processes:
        seeds.add(leader)
        seeds.update(
            pid for pid, facts in processes.items() if leader in {facts.pgrp, facts.session}
        )
    if guardian is not None and guardian in processes:
        seeds.add(guardian)
    if daemon is not None:
        left_out = {leader, guardian}
        seeds.update(
            pid
            for pid, facts in processes.items()
            if facts.ppid == daemon
            and pid not in left_out
            and facts.living
            and read_mark(pid) == mark
        )
    found = {pid: processes[pid] for pid in seeds} | _closure(seeds, processes)
    return [
        facts
        for pid, facts in sorted(found.items())
        if facts.living and pid not in {leader, guardian, daemon}
    ]


def adopted_zombies(
    daemon: int, *, workers: Iterable[int], processes: Scan | None = None
) -> set[int]:
    """The pids of dead orphans that wait for the daemon, their adopter, to reap them.

    Args:
        daemon: the pid of the subreaper.
        workers: pids of leaders and of guardians; those are reaped by their owners and never found
            here.
        processes: a scan to look through; a new one is made otherwise.
    """
    processes = scan() if processes is None else processes
    owned = set(workers)
    return {
        pid
        for pid, facts in processes.items()
        if facts.ppid == daemon and facts.state == "Z" and pid not in owned
    }


def reap_adopted(pids: Iterable[int]) -> set[int]:
    """Take the exit status of those among ``pids`` that are dead children of the caller.

    One by one: waiting for any child would steal the status of a worker from its owner. Whoever
    calls this leaves the leaders of workers out. Never waits.

    Returns:
        The pids that were reaped.
    """
    reaped = set()
    for pid in pids:
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG)[0] == pid:
                reaped.add(pid)
    return reaped


def send_signal(pid: int, start_time: int, number: signal.Signals) -> bool:
    """Signal the process that has this pid *and* this start time, through a pidfd.

    Returns:
        Whether it was reached: not if it is gone or a zombie, if its pid is now somebody else's, or
        if it changed its user and may not be signalled.

    Raises:
        OSError: if no descriptor could be had.
    """
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        # Compared after the pidfd was opened: from here on the pidfd cannot come to mean another.
        facts = read(pid)
        if facts is None or facts.start_time != start_time or not facts.living:
            return False
        signal.pidfd_send_signal(pidfd, number)
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        os.close(pidfd)
    return True


def _names(mark: str, found: str) -> bool:
    return found == mark or found.startswith(mark + "/")


def _closure(roots: Iterable[int], processes: Scan) -> dict[int, ProcessFacts]:
    children: dict[int, list[ProcessFacts]] = {}
    for facts in processes.values():
        children.setdefault(facts.ppid, []).append(facts)
    found: dict[int, ProcessFacts] = {}
    pending = list(roots)
    while pending:
        for facts in children.get(pending.pop(), ()):
            if facts.pid not in found:
                found[facts.pid] = facts
                pending.append(facts.pid)
    return found
