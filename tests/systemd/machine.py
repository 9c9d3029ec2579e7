"""A real systemd, PID 1 of namespaces of its own, with the program installed in it.

It sees the file system of this machine, but ``/etc``, ``/run``, ``/tmp`` and ``/var`` are its own,
``/opt`` is what was installed, the kernel's settings are read-only, and its control groups are a
subtree that goes with it: whatever is started, written or set there, this machine does not notice.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from supervisord_llm.host.cgroup_files import own_group, write
from supervisord_llm.host.cgroups import WorkerGroup
from tests.daemon.running import until
from tests.harness import SECONDS

UNIT = "supervisord-llm.service"
SOCKETS = ("supervisord-llm-control.socket", "supervisord-llm-inference.socket")
DROP_IN = Path(f"/etc/systemd/system/{UNIT}.d/test.conf")
CONFIG = Path("/etc/supervisord-llm/supervisord-llm.toml")

_SYSTEMD = ("/usr/lib/systemd/systemd", "/lib/systemd/systemd")
_FLAGS = ("--fork", "--pid", "--mount", "--uts", "--ipc", "--cgroup", "--mount-proc",
          "--kill-child=SIGKILL")  # fmt: skip

# The group that shall be the top; what follows is for unshare.
_ENTER = 'echo 0 >"$1/cgroup.procs" && shift && exec setpriv --pdeathsig KILL unshare "$@"'
# What was installed, and systemd.
_BOOT = r"""
set -eu
mount --make-rprivate /
mount --bind "$1/opt" /opt
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/lock /run/etc
cp -a /etc/. /run/etc
rm -rf /run/etc/systemd/system /run/etc/fstab
mkdir -p /run/etc/systemd/system
cp -a "$1/etc/." /run/etc
mount --bind /run/etc /etc
mount -t tmpfs -o mode=1777 tmpfs /tmp
mount -t tmpfs -o mode=755 tmpfs /var
mkdir -p /var/lib /var/log/journal /var/cache
mkdir -m 1777 /var/tmp
while umount -l /sys/fs/cgroup 2>/dev/null; do :; done
mount -o remount,bind,ro /sys
mount --bind /proc/sys /proc/sys
mount -o remount,bind,ro /proc/sys
mount -t cgroup2 cgroup2 /sys/fs/cgroup
# Of what a machine does at its start, only the journal.
for folder in /usr/lib/systemd/system /lib/systemd/system; do
  for unit in $folder/sysinit.target.wants/* $folder/local-fs.target.wants/* \
              $folder/sockets.target.wants/* $folder/timers.target.wants/*; do
    case ${unit##*/} in
      systemd-journald*|*'*') ;;
      *) ln -sf /dev/null "/etc/systemd/system/${unit##*/}" ;;
    esac
  done
done
export container=test
exec "$2" --system --unit=basic.target --log-target=journal --show-status=0
"""


def missing() -> str | None:
    """Why there can be no such machine here; ``None`` if there can."""
    if os.geteuid() != 0:
        return "namespaces of one's own need root"
    for program in ("setpriv", "unshare", "nsenter", "systemctl"):
        if shutil.which(program) is None:
            return f"there is no {program}"
    if _systemd() is None:
        return "systemd is not installed"
    if own_group(None, path="/") is None:
        return "no cgroup v2 hierarchy is mounted"
    probe = ["unshare", *_FLAGS, "mount", "-t", "cgroup2", "cgroup2", "/sys/fs/cgroup"]
    tried = subprocess.run(probe, capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        return f"namespaces of one's own are not allowed: {tried.stderr.strip()}"
    return None


class Machine:
    """A booted machine, and what to ask of it."""

    def __init__(self, pid: int) -> None:
        """Adopt it by its first process's id; see `boot`."""
        self._pid = pid
        self.root = Path(f"/proc/{pid}/root")
        """Its file system, as this process reaches it."""

    def run(self, *argv: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command in it; a failure fails the test and shows what was said."""
        done = subprocess.run(
            ["nsenter", "-t", str(self._pid), "-m", "-p", "-u", "-i", "-C", "--wd=/", *argv],
            capture_output=True,
            text=True,
            check=False,
            timeout=4 * SECONDS,
        )
        if check and done.returncode != 0:
            raise AssertionError(f"{argv}: {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def systemctl(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Ask its systemd for something."""
        return self.run("systemctl", "--no-pager", *words, check=check)

    def show(self, name: str, unit: str = UNIT) -> str:
        """One property of a unit."""
        return self.systemctl("show", "--value", f"--property={name}", unit).stdout.strip()

    def wait(self, name: str, *values: str, unit: str = UNIT) -> str:
        """Wait until a property has one of these values."""
        until(
            lambda: self.show(name, unit) in values,
            lambda: f"{name} in {values}, not {self.show(name, unit)!r}: {self.log()}",
        )
        return self.show(name, unit)

    def drop_in(self, *lines: str) -> None:
        """Let a drop-in change the service, until the test is over."""
        self.write(DROP_IN, "\n".join(["[Service]", *lines, ""]))
        self.systemctl("daemon-reload")

    def write(self, path: Path, text: str) -> None:
        """Write a file that everybody there may read."""
        target = self.root / path.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        target.chmod(0o644)

    def remove(self, path: Path) -> None:
        """Remove a file or a folder with all that is in it, if it is there."""
        self.run("rm", "-rf", str(path))

    def log(self) -> str:
        """The journal of the unit, for people."""
        return self.run("journalctl", "--no-pager", "-o", "cat", "-u", UNIT).stdout

    def journal(self, **matches: str) -> list[dict[str, Any]]:
        """The journal's entries with these fields."""
        words = [f"{name}={value}" for name, value in matches.items()]
        lines = self.run("journalctl", "--no-pager", "-o", "json", *words).stdout.splitlines()
        return [json.loads(line) for line in lines]

    def processes(self, below: str = ".") -> set[int]:
        """The living processes of the unit's group, with the ids that they have there.

        Args:
            below: only those in this group below it, and in groups below that.
        """
        group = Path("/sys/fs/cgroup") / self.show("ControlGroup").lstrip("/") / below
        if group == Path("/sys/fs/cgroup"):
            return set()  # it is not running
        listed = self.run("find", str(group), "-name", "cgroup.procs", "-exec", "cat", "{}", "+",
                          check=False)  # fmt: skip
        return {int(word) for word in listed.stdout.split()}

    def controls(self, controller: str) -> bool:
        """Whether the unit's subtree has a controller."""
        group = Path("/sys/fs/cgroup") / self.show("ControlGroup").lstrip("/")
        return controller in self.run("cat", str(group / "cgroup.controllers")).stdout.split()

    def fact(self, pid: int, name: str) -> str:
        """What its kernel has in a file of ``/proc`` about one of its processes."""
        return (self.root / f"proc/{pid}" / name).read_bytes().decode(errors="replace")

    def client(self, socket: str = "control") -> httpx.Client:
        """A client for one of the service's sockets; close it."""
        path = self.root / f"run/supervisord-llm/{socket}.sock"
        transport = httpx.HTTPTransport(uds=str(path))
        return httpx.Client(transport=transport, base_url="http://daemon", timeout=SECONDS)


@contextmanager
def boot(installed: Path) -> Iterator[Machine]:
    """Boot one, and end it with all that it started.

    Args:
        installed: the folder that has its ``/opt``, and what to add to its ``/etc``.
    """
    top, systemd = own_group(None, path="/"), _systemd()
    assert top is not None and systemd is not None
    group = top / f"sllm-systemd-{os.getpid()}-{time.monotonic_ns()}"
    group.mkdir()
    process = subprocess.Popen(
        ["sh", "-c", _ENTER, "sh", str(group), *_FLAGS, "sh", "-c", _BOOT, "sh",
         str(installed), systemd],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        yield _booted(process, group)
    finally:
        with contextlib.suppress(OSError):
            write(group / "cgroup.kill", "1")
        process.kill()
        assert process.stdout is not None
        process.stdout.close()
        process.wait(SECONDS)
        until(WorkerGroup(group, None).remove, f"the end of {group}")


def _booted(process: subprocess.Popen[bytes], group: Path) -> Machine:
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")

    def manager() -> int | None:
        if process.poll() is not None:
            assert process.stdout is not None
            raise AssertionError(f"the machine did not boot: {process.stdout.read().decode()}")
        for word in children.read_text().split():
            with contextlib.suppress(OSError):
                if Path(f"/proc/{word}/comm").read_text() == "systemd\n":
                    return int(word)
        return None

    until(lambda: manager() is not None, "systemd as the first process")
    pid = manager()
    assert pid is not None
    # A group that hands controllers down holds no process itself; that one need not be in there.
    write(group.parent / "cgroup.procs", str(process.pid))
    machine = Machine(pid)
    until(
        lambda: (
            "running" in machine.systemctl("is-system-running", check=False).stdout
            or "degraded" in machine.systemctl("is-system-running", check=False).stdout
        ),
        "the end of the boot",
    )
    return machine


def _systemd() -> str | None:
    return next((path for path in _SYSTEMD if os.access(path, os.X_OK)), None)
