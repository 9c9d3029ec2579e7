"""Other users of the machine, for tests that root runs.

The interpreter may lie where only root can read, so a program drops its rights after it has
imported what it needs, instead of being executed by somebody else.
"""

from __future__ import annotations

import grp
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from tests.harness import SECONDS

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as other users")

NOBODY = 65534
"""A user, and a group, that nothing belongs to."""


class Person(msgspec.Struct, frozen=True):
    """Somebody who is no superuser."""

    uid: int
    gid: int = NOBODY
    groups: tuple[int, ...] = ()
    """The others that they are in."""


_BECOME = """
import os, sys
uid, gid, *groups = (int(each) for each in sys.argv[1].split(","))
del sys.argv[1]
def become():
    os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
"""


def command(who: Person, script: str, *arguments: str) -> list[str]:
    """A command line that runs Python code, in which ``become()`` turns the process into them."""
    ids = ",".join(str(each) for each in (who.uid, who.gid, *who.groups))
    return [sys.executable, "-c", _BECOME + script, ids, *arguments]


def tell(who: Person, script: str, *arguments: str) -> str:
    """Run Python code as somebody; what it printed."""
    done = subprocess.run(
        command(who, script, *arguments),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout.strip()


def two_groups() -> Sequence[grp.struct_group]:
    """Two groups of this machine that neither root nor nobody is in."""
    taken = {0, NOBODY, *os.getgroups()}
    return [each for each in grp.getgrall() if each.gr_gid not in taken][:2]


@contextmanager
def open_folder(owner: int = 0) -> Iterator[Path]:
    """A folder of somebody's that all may go through, as /run is; pytest's own are for one user."""
    with tempfile.TemporaryDirectory(prefix="sllm-") as name:
        folder = Path(name)
        os.chown(folder, owner, NOBODY if owner else 0)
        folder.chmod(0o755)
        yield folder
