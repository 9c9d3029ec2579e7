"""A folder that imitates control groups, and real ones where this machine allows it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisord_llm.host import cgroups
from supervisord_llm.host.cgroup_files import own_group, write

OURS = "system.slice/supervisord-llm.service"
FILES = {
    "cgroup.procs": "", "cgroup.type": "domain\n", "cgroup.subtree_control": "",
    "cgroup.controllers": "", "cgroup.kill": "",
}  # fmt: skip
MEMORY = {
    "memory.events": "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\n", "memory.current": "0\n",
    "memory.max": "", "memory.swap.max": "", "memory.oom.group": "",
}  # fmt: skip


class Cgroupfs:
    """A folder whose groups have their files from the start and lose them with the group."""

    def __init__(self, root: Path, proc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Mount it, with this process alone in the group of a service."""
        self.root = root
        self.proc = proc
        self.new = dict(FILES)
        """What a new group has."""
        self.writes: list[tuple[str, str]] = []
        self.refused: set[str] = set()
        """Names of files that the kernel takes no write to."""
        self._mkdir, self._rmdir = Path.mkdir, Path.rmdir
        # Functions: a bound method would not be given the path.
        monkeypatch.setattr(Path, "mkdir", lambda path, _mode=0o777, **how: self._make(path, **how))
        monkeypatch.setattr(Path, "rmdir", lambda path: self._remove(path))  # noqa: PLW0108
        monkeypatch.setattr(cgroups, "write", self._write)
        monkeypatch.setattr(cgroups, "_SYSTEMD", root.with_name("no-systemd"))
        self.group = root / OURS
        self.group.mkdir(parents=True)
        self.set("cgroup.controllers", "cpu io memory pids\n")
        self.live_in(os.getpid())
        self.mount()

    @property
    def point(self) -> str:
        """Where it is mounted, as the kernel writes it."""
        return str(self.root).replace(" ", r"\040")

    def mount(self, name: str = f"/{OURS}", *, root: str = "/", kind: str = "cgroup2") -> None:
        """Say where it is mounted from which group on, and which group this process is in."""
        (self.proc / "cgroup").write_text(f"4:memory:/elsewhere\n1:name=systemd:/\n0::{name}\n")
        (self.proc / "mountinfo").write_text(
            "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/root rw\n"
            f"31 22 0:26 {root} {self.point} rw,nosuid shared:9 master:2 - {kind} cgroup2 rw\n"
        )

    def live_in(self, *pids: int, group: Path | None = None) -> None:
        """Put these processes into a group, and no others."""
        ((group or self.group) / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in pids))

    def set(self, name: str, content: str, group: Path | None = None) -> None:
        """Let a file of a group say something."""
        ((group or self.group) / name).write_text(content)

    def _make(self, path: Path, **how: bool) -> None:
        is_new = not path.exists()
        self._mkdir(path, **how)
        # Where pathlib makes parents first, it comes here for each of them.
        if is_new and path.is_relative_to(self.root):
            for name, content in self.new.items():
                (path / name).write_text(content)

    def _remove(self, path: Path) -> None:
        if path.is_relative_to(self.root):
            if (path / "cgroup.procs").read_text() or any(each.is_dir() for each in path.iterdir()):
                raise OSError(16, "Device or resource busy")
            for name in (*FILES, *MEMORY):
                (path / name).unlink(missing_ok=True)
        self._rmdir(path)

    def _write(self, path: Path, text: str) -> None:
        if path.name in self.refused:
            raise OSError(16, "Device or resource busy")
        write(path, text)
        self.writes.append((str(path.relative_to(self.group)), text))


@pytest.fixture
def cgroupfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cgroupfs:
    """An imitation with a service's group in it, in which this process is alone."""
    for name in ("proc", "cgroup fs"):
        (tmp_path / name).mkdir()
    return Cgroupfs(tmp_path / "cgroup fs", tmp_path / "proc", monkeypatch)


@pytest.fixture
def real_group() -> Iterator[Path]:
    """An empty group of this machine, just below the top, which goes with all that is in it."""
    top = own_group(None, path="/")
    if top is None:
        pytest.skip("no cgroup v2 hierarchy is mounted")
    path = top / f"sllm-test-{os.getpid()}"
    try:
        path.mkdir()
    except OSError as error:
        pytest.skip(f"cannot make a group in {top}: {error.strerror}")
    yield path
    with contextlib.suppress(OSError):
        write(path / "cgroup.kill", "1")
    group = cgroups.WorkerGroup(path, None)
    assert any(group.remove() for _ in range(1_000_000))
