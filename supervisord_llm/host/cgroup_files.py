"""Reading and writing the files of control groups, and finding this process's own, cgroups(7).

Both versions may be mounted at once, each with its own controllers and anywhere: ``mountinfo`` says
where, and ``cgroup`` which group it is there.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

_MARKS = ("user.delegate", "trusted.delegate")
"""What systemd writes on a group that it gives away; the second is for root to read."""


def own_group(
    controller: str | None, proc: Path = Path("/proc/self"), *, path: str | None = None
) -> Path | None:
    """The folder of the group that this process is in; ``None`` if there is none to be seen.

    Args:
        controller: one of version 1, such as ``memory``; ``None`` for the hierarchy of version 2.
        proc: the process's folder in ``/proc``.
        path: another group's name in that hierarchy, instead of this process's own.
    """
    name = _own_name(controller, proc) if path is None else path
    if name is None:
        return None
    for root, point in _mounts(controller, proc):
        with contextlib.suppress(ValueError):  # not below what is mounted there
            folder = point / PurePosixPath(name).relative_to(root)
            if folder.is_dir():
                return folder
    return None


def read_words(path: Path) -> list[str]:
    """What stands in a file, parted at white space; nothing if it cannot be read."""
    with contextlib.suppress(OSError):
        return path.read_text("ascii", "replace").split()
    return []


def counter(path: Path, name: str) -> int | None:
    """A number from a file with lines like ``oom_kill 3``; ``None`` if it is not there."""
    words = read_words(path)
    for key, value in zip(words[::2], words[1::2], strict=False):
        if key == name and value.isdigit():
            return int(value)
    return None


def members(path: Path) -> set[int]:
    """The processes in a group; those outside of this pid namespace show as 0 and are left out."""
    return {int(word) for word in read_words(path / "cgroup.procs") if word.isdigit()} - {0}


def write(path: Path, text: str) -> None:
    """Write to a file of a group, which must exist.

    Raises:
        OSError: if the kernel refuses, or there is no such file.
    """
    # Never created, and never truncated: the kernel takes one write as one request.
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def is_marked_as_delegated(path: Path) -> bool:
    """Whether systemd says on the group's folder that it was given away."""
    for mark in _MARKS:
        with contextlib.suppress(OSError):
            if os.getxattr(path, mark) == b"1":
                return True
    return False


def _own_name(controller: str | None, proc: Path) -> str | None:
    with contextlib.suppress(OSError):
        for line in (proc / "cgroup").read_text("utf-8", "surrogateescape").splitlines():
            hierarchy, controllers, name = line.split(":", 2)
            is_it = hierarchy == "0" if controller is None else controller in controllers.split(",")
            if is_it:
                return name
    return None


def _mounts(controller: str | None, proc: Path) -> Iterator[tuple[str, Path]]:
    """Where the hierarchy is mounted: from which group on, and at which folder."""
    try:
        content = (proc / "mountinfo").read_text("utf-8", "surrogateescape")
    except OSError:
        return
    for line in content.splitlines():
        # proc_pid_mountinfo(5): a dash parts the optional fields from the last three.
        left, _, right = line.partition(" - ")
        kind, _, options = right.split(" ", 2)
        is_it = (
            kind == "cgroup2"
            if controller is None
            else kind == "cgroup" and controller in options.split(",")
        )
        if is_it:
            root, point = left.split(" ")[3:5]
            yield _unescaped(root), Path(_unescaped(point))


def _unescaped(text: str) -> str:
    """White space and backslashes stand as three octal digits."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)
