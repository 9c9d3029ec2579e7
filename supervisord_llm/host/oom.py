"""Whether a worker that died of SIGKILL was killed by the kernel for want of memory.

The kernel does not tell a process's parent. It counts such kills (``oom_kill`` in ``/proc/vmstat``
and in control groups) before it sends the signal, and names the victim in its log just after. What
that is worth:

- The worker's own control group counts exactly, either way.
- A kill of that pid in the kernel's log is proof, where this process may read the log and lives in
  the machine's first pid namespace: the log speaks of no other pids.
- Otherwise a kill was counted that no line in the log explains. It is the worker's if nobody here
  sent the signal; that somebody outside sends SIGKILL to one worker in the half minute in which the
  kernel kills something else is the mistake that is left. Where there is a control group of
  version 1 or 2 that counts memory around this process, its counter is taken, which leaves out the
  rest of the machine.

Nothing here waits.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections import deque
from collections.abc import Callable
from pathlib import Path

from supervisord_llm.host.cgroup_files import counter, own_group
from supervisord_llm.host.cgroups import WorkerGroup

CREDIBLE_SECONDS = 30.0
"""How long a kill may wait for the death that it explains; a big process takes a while to die."""

_FIRST_PID_NAMESPACE = 0xEFFFFFFC  # PROC_PID_INIT_INO, linux/proc_ns.h
_MOST_RECORDS = 2000
"""Read from the log at one look; a flood is left for the next."""
_RECORD_BYTES = 16384
_VICTIM = re.compile(rb"(?:[A-Z][^:]*: )?Killed process (\d+) \(")


class KernelLog:
    """New records of the kernel's log, read one by one as ``/dev/kmsg`` gives them."""

    def __init__(self, descriptor: int) -> None:
        """Own a descriptor that does not block and that gives one record for a read."""
        self._descriptor = descriptor

    @classmethod
    def open(
        cls, path: Path = Path("/dev/kmsg"), namespace: Path = Path("/proc/self/ns/pid")
    ) -> KernelLog | None:
        """Open the log at its end; ``None`` where it may not be read or names other pids."""
        descriptor = None
        try:
            if namespace.stat().st_ino != _FIRST_PID_NAMESPACE:
                return None
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(descriptor, 0, os.SEEK_END)
        except OSError:
            if descriptor is not None:
                os.close(descriptor)
            return None
        return cls(descriptor)

    def victims(self) -> list[int]:
        """The pids that were killed for want of memory, as far as the log tells since last time."""
        found = []
        for _ in range(_MOST_RECORDS):
            try:
                record = os.read(self._descriptor, _RECORD_BYTES)
            except BrokenPipeError:
                continue  # what came next was overwritten; the next read goes on after it
            except OSError:
                break
            if not record:
                break
            if (pid := _victim(record)) is not None:
                found.append(pid)
        return found

    def close(self) -> None:
        """Give back the descriptor."""
        os.close(self._descriptor)


class OomWatch:
    """What the kernel is known to have killed lately, on the whole machine.

    One for the daemon. `look` must be called every few seconds: a kill counts as new when it is
    first seen.
    """

    def __init__(
        self,
        now: Callable[[], float],
        *,
        log: KernelLog | None = None,
        proc: Path = Path("/proc"),
    ) -> None:
        """Watch from now on.

        Args:
            now: the clock, in seconds.
            log: the kernel's log, which this closes; ``None`` where there is none to be had.
            proc: the folder ``/proc``. This process must be in its final control group.
        """
        self._now = now
        self._log = log
        # With the log all kills are compared with all its lines; without it the fewer the better.
        self._file = (None if log is not None else _counting_group(proc)) or proc / "vmstat"
        self._count = counter(self._file, "oom_kill")
        self._kills: deque[float] = deque()
        self._named: dict[int, float] = {}

    @property
    def sources(self) -> tuple[str, ...]:
        """What is looked at, for people, the surest first."""
        log = () if self._log is None else ("kernel log",)
        return (*log, str(self._file)) if self._count is not None else log

    def look(self) -> None:
        """Notice what was killed since the last look."""
        now = self._now()
        count = counter(self._file, "oom_kill")
        if count is not None and self._count is not None:
            self._kills.extend([now] * (count - self._count))
        self._count = count
        if self._log is not None:
            for pid in self._log.victims():
                self._named[pid] = now
                # Its line explains one that was counted, at this look or, if just then, before.
                with contextlib.suppress(IndexError):
                    self._kills.popleft()
        while self._kills and now - self._kills[0] > CREDIBLE_SECONDS:
            self._kills.popleft()
        for pid in [each for each, at in self._named.items() if now - at > CREDIBLE_SECONDS]:
            del self._named[pid]

    def verdict(self, pid: int, *, group: WorkerGroup | None = None, sent: bool = False) -> bool:
        """Whether a worker that died of SIGKILL was killed for want of memory.

        Args:
            pid: its process, not reaped for longer than a few seconds.
            group: its control group, not yet removed.
            sent: whether this daemon sent it a SIGKILL; then only proof counts.
        """
        self.look()
        if group is not None and (kills := group.oom_kills()) is not None:
            return kills > 0
        if self._named.pop(pid, None) is not None:
            return True
        if sent or not self._kills:
            return False
        self._kills.popleft()  # it explains one death and no more
        return True

    def close(self) -> None:
        """Give back the log."""
        if self._log is not None:
            self._log.close()


def _victim(record: bytes) -> int | None:
    # "3,1234,5678,-;Out of memory: Killed process 77 (python3) …", and lines of details after it.
    head, _, text = record.partition(b";")
    priority = head.partition(b",")[0]
    # Anybody who may write to the log may write such a line, but not as the kernel: facility 0.
    if not priority.isdigit() or int(priority) >= 8:
        return None
    found = _VICTIM.match(text)
    return int(found[1]) if found else None


def _counting_group(proc: Path) -> Path | None:
    """The file that counts kills in the nearest group around this process, if one does."""
    own = own_group("memory", proc / "self")
    if own is not None and counter(own / "memory.oom_control", "oom_kill") is not None:
        return own / "memory.oom_control"
    own = own_group(None, proc / "self")
    if own is None:
        return None
    for folder in (own, *own.parents):
        if counter(folder / "memory.events", "oom_kill") is not None:
            return folder / "memory.events"
    return None
