"""A control group (cgroup v2) for each worker, where the daemon was given a subtree of its own.

The kernel's rules, cgroups(7): groups that hold processes may not hand controllers down, so the
daemon first moves itself into a leaf, ``daemon``, beside which each worker gets a group. There one
write kills a worker with all that it ever started, however it left the process tree, memory has a
limit that descendants cannot get around, and the kernel says whom it killed for want of memory.

A subtree is taken only where it was given: by systemd (``Delegate=yes``, which leaves a mark on the
folder), by a container, or by whoever manages groups on a machine without systemd. Without one the
daemon works as well, and says what is missing.

Controllers for CPU time are left alone: with them the kernel shares it out by group, and a pool's
``nice`` would count for nothing against other pools and the daemon.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from supervisord_llm.host import tree
from supervisord_llm.host.cgroup_files import (
    counter,
    is_marked_as_delegated,
    members,
    own_group,
    read_words,
    write,
)

CONTROLLERS = ("memory", "pids")
"""What the daemon makes use of: limits and counts of memory; processes, for who looks on."""

_LEAF = "daemon"
_WORKERS = "worker."
_SYSTEMD = Path("/run/systemd/system")
"""Exists where systemd manages the machine, sd_booted(3)."""
_LEAST_HEADROOM = 64 * 2**20


class Unavailable(msgspec.Struct, frozen=True):
    """There is no group to be had; ``why`` is a clause for people, with its remedy."""

    why: str


class WorkerGroup(msgspec.Struct, frozen=True):
    """The group of one generation of a slot. It counts until it is removed, so ask it before."""

    path: Path
    """The folder; who writes 0 to its ``cgroup.procs`` moves in."""
    memory_max: int | None
    """The kernel's limit in bytes; ``None`` where none was wanted or none can be set."""

    def kill(self) -> bool:
        """Kill every process in it, at once and without a gap for a fork.

        Returns:
            Whether that was possible; not before Linux 5.14, or once it is removed.
        """
        with contextlib.suppress(OSError):
            write(self.path / "cgroup.kill", "1")
            return True
        return False

    def oom_kills(self) -> int | None:
        """How many processes in it were killed for want of memory; ``None`` if nothing counts."""
        return counter(self.path / "memory.events", "oom_kill")

    def current(self) -> int | None:
        """Bytes that are charged to it, cached files among them; ``None`` if nothing counts."""
        words = read_words(self.path / "memory.current")
        return int(words[0]) if words else None

    def pids(self) -> tuple[int, ...]:
        """The living processes in it and in groups that they made below it."""
        return tuple(sorted({pid for folder in self._folders() for pid in members(folder)}))

    def remove(self) -> bool:
        """Remove it, and what its processes made below it.

        Returns:
            Whether it is gone; not while a process in it lives, or is not quite dead: try again.
        """
        for folder in self._folders():
            with contextlib.suppress(OSError):
                folder.rmdir()
        return not self.path.exists()

    def _folders(self) -> Iterator[Path]:
        """Itself and the groups below it, the deepest first."""
        for folder, _, _ in os.walk(self.path, topdown=False):
            yield Path(folder)


class Delegation:
    """A subtree of groups that is the daemon's own."""

    def __init__(self, path: Path) -> None:
        """Found, not yet taken; ``path`` is its top."""
        self.path = path
        self.missing: tuple[str, ...] = CONTROLLERS
        """Which of `CONTROLLERS` the groups of workers do not have."""

    @classmethod
    def find(cls, proc: Path = Path("/proc/self")) -> Delegation | Unavailable:
        """Look whether this process lives in a subtree that was given to it; changes nothing."""
        path = own_group(None, proc)
        if path is None:
            return Unavailable("no cgroup v2 hierarchy with this process in it is mounted")
        above = path.parent
        if path.name == _LEAF and (above / "cgroup.type").exists() and _is_given(above, proc):
            path = above  # it was taken before, or systemd's DelegateSubgroup= put us there
        if not (path / "cgroup.type").exists():
            return Unavailable(
                "the daemon runs in the root of the cgroup hierarchy; "
                "start it as a service with Delegate=yes"
            )
        if read_words(path / "cgroup.type") != ["domain"]:
            return Unavailable(f"{path} is a group for threads; start the daemon in another")
        files = [path, path / "cgroup.procs", path / "cgroup.subtree_control"]
        if not all(os.access(each, os.W_OK) for each in files):
            return Unavailable(f"{path} may not be written to; put Delegate=yes into the unit")
        if not _is_given(path, proc):
            return Unavailable(f"{path} is systemd's own; put Delegate=yes into the unit")
        if strangers := sorted(_inhabitants(path) - _ours()):
            return Unavailable(
                f"{path} also holds process {', '.join(map(str, strangers[:3]))}; "
                "start the daemon as a service of its own"
            )
        return cls(path)

    def take(self) -> Unavailable | None:
        """Move this process into its leaf, and hand controllers down to the groups of workers.

        Removes what an earlier daemon left, if it is empty. May be done again.

        Returns:
            ``None`` when it is done; see `missing` for what the workers' groups lack.
        """
        leaf = self.path / _LEAF
        try:
            leaf.mkdir(exist_ok=True)
            for pid in sorted(_ours() & members(self.path)):
                write(leaf / "cgroup.procs", str(pid))
        except OSError as error:
            return Unavailable(f"cannot move into {leaf}: {error.strerror}")
        offered = read_words(self.path / "cgroup.controllers")
        enabled = [name for name in CONTROLLERS if name in offered and self._hand_down(name)]
        self.missing = tuple(name for name in CONTROLLERS if name not in enabled)
        for group in self.groups():
            group.remove()
        return None

    def group(
        self, slot: str, generation: int, memory_hard: int | None
    ) -> WorkerGroup | Unavailable:
        """Make the group of a worker, empty.

        Args:
            slot: the slot's name.
            generation: which of its workers.
            memory_hard: what the worker may hold, in bytes; the kernel's own limit is `headroom`
                above it.
        """
        path = self.path / f"{_WORKERS}{slot}.{generation}"
        left = WorkerGroup(path, None)
        try:
            if path.exists() and not left.remove():
                return Unavailable(f"{path} still holds processes of an earlier worker")
            path.mkdir()
        except OSError as error:
            return Unavailable(f"cannot make {path}: {error.strerror}")
        # The kernel then never leaves a worker half alive; without memory.oom.group, before
        # Linux 4.19, whoever is left is ended with the leader.
        _try_write(path / "memory.oom.group", "1")
        if memory_hard is None:
            return left
        limit = headroom(memory_hard)
        if not _try_write(path / "memory.max", str(limit)):
            return left
        # There is no limit on the sum of memory and swap, and one that swapping gets around only
        # makes a leak slow. Absent where the kernel does not count swap.
        _try_write(path / "memory.swap.max", "0")
        return WorkerGroup(path, limit)

    def groups(self) -> list[WorkerGroup]:
        """The groups of workers that exist, those of an earlier daemon included."""
        return [
            WorkerGroup(path, None)
            for path in sorted(self.path.glob(f"{_WORKERS}*"))
            if path.is_dir()
        ]

    def _hand_down(self, controller: str) -> bool:
        return _try_write(self.path / "cgroup.subtree_control", f"+{controller}")


def headroom(memory_hard: int) -> int:
    """The kernel's limit for a worker that may hold ``memory_hard`` bytes.

    It stands a quarter above, so that a worker that grows is taken out by the daemon, with its
    reason; the kernel is for what grows faster than the daemon looks. Cached files are charged here
    too, a mapped model's weights among them, but are the first that the kernel takes back.
    """
    return memory_hard + max(memory_hard // 4, _LEAST_HEADROOM)


def _is_given(path: Path, proc: Path) -> bool:
    """Whether the subtree at ``path`` was handed to this process, and not only left writable."""
    if is_marked_as_delegated(path) or not _SYSTEMD.is_dir():
        return True
    # The root of what this process sees, yet not the hierarchy's: a container's.
    if own_group(None, proc, path="/") == path:
        return True
    # Before version 251 the mark is for root to read. Then the owner tells: systemd gives the
    # folder of a service to the service's user only if it is delegated.
    owner = path.stat().st_uid
    return owner == os.geteuid() != 0 and path.parent.stat().st_uid != owner


def _ours() -> set[int]:
    return {os.getpid(), *tree.descendants(os.getpid(), tree.scan())}


def _inhabitants(path: Path) -> set[int]:
    """Who is in the group or in its leaf; workers of an earlier daemon are no strangers."""
    return members(path) | members(path / _LEAF)


def _try_write(path: Path, text: str) -> bool:
    with contextlib.suppress(OSError):
        write(path, text)
        return True
    return False
