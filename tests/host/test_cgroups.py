"""Groups for workers, in an imitation of the kernel's files and in real ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from supervisord_llm.host.cgroup_files import own_group
from supervisord_llm.host.cgroups import Delegation, Unavailable, WorkerGroup, headroom
from tests.host.cgroupfs import MEMORY, OURS, Cgroupfs, cgroupfs, real_group

__all__ = ["cgroupfs", "real_group"]

MEBIBYTE = 2**20
NOBODY = 2**22 + 1
"""A pid that the kernel never gives."""


def found(fs: Cgroupfs) -> Delegation:
    """The subtree that must be found."""
    delegation = Delegation.find(fs.proc)
    assert isinstance(delegation, Delegation)
    return delegation


def taken(fs: Cgroupfs) -> Delegation:
    """The subtree, taken."""
    delegation = found(fs)
    assert delegation.take() is None
    return delegation


def made(delegation: Delegation, memory_hard: int | None = None) -> WorkerGroup:
    """The group of a worker."""
    group = delegation.group("smollm.0", 3, memory_hard)
    assert isinstance(group, WorkerGroup)
    return group


def refusal(fs: Cgroupfs) -> str:
    """Why there is no subtree to be had."""
    missing = Delegation.find(fs.proc)
    assert isinstance(missing, Unavailable)
    return missing.why


# Finding -------------------------------------------------------------------------


def test_a_service_that_is_alone_in_its_group_has_a_subtree(cgroupfs: Cgroupfs) -> None:
    """Looking changes nothing."""
    assert cgroupfs.group == found(cgroupfs).path
    assert [] == cgroupfs.writes
    assert not (cgroupfs.group / "daemon").exists()


def test_a_child_that_runs_already_is_no_stranger(cgroupfs: Cgroupfs) -> None:
    """It moves with the daemon."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child:
        cgroupfs.live_in(os.getpid(), child.pid)
        taken(cgroupfs)
        moved = [text for name, text in cgroupfs.writes if name == "daemon/cgroup.procs"]
        assert sorted([os.getpid(), child.pid]) == sorted(map(int, moved))


@pytest.mark.parametrize("group", [".", "daemon"])
def test_a_group_with_strangers_is_not_ours(cgroupfs: Cgroupfs, group: str) -> None:
    """A terminal's group holds the shell; a leaf may be another daemon's."""
    (cgroupfs.group / "daemon").mkdir()
    cgroupfs.live_in(1, group=cgroupfs.group / group)
    assert "also holds process 1; start the daemon as a service" in refusal(cgroupfs)


def test_the_root_of_the_hierarchy_is_not_ours(cgroupfs: Cgroupfs) -> None:
    """The kernel keeps it for itself: it has no limits and no counts."""
    cgroupfs.mount("/")
    assert "root of the cgroup hierarchy" in refusal(cgroupfs)


def test_the_root_that_a_container_sees_is_given_to_it(cgroupfs: Cgroupfs) -> None:
    """It looks like the hierarchy's, but has the files of a group; systemd is somebody's inside."""
    cgroupfs.root.with_name("no-systemd").mkdir()
    for name in cgroupfs.new:
        (cgroupfs.root / name).write_text(cgroupfs.new[name])
    cgroupfs.mount("/")
    assert cgroupfs.root == found(cgroupfs).path


def test_a_container_may_see_only_its_part_of_the_machines_hierarchy(cgroupfs: Cgroupfs) -> None:
    """Then its names begin above what is mounted."""
    cgroupfs.mount(f"/docker/1234/{OURS}", root="/docker/1234")
    assert cgroupfs.group == found(cgroupfs).path
    cgroupfs.mount(f"/docker/5678/{OURS}", root="/docker/1234")
    assert "no cgroup v2 hierarchy with this process in it" in refusal(cgroupfs)
    cgroupfs.mount("/gone.service")
    assert "no cgroup v2 hierarchy with this process in it" in refusal(cgroupfs)


def test_a_machine_with_the_first_version_alone_has_none(cgroupfs: Cgroupfs) -> None:
    """Neither has one without ``/proc``."""
    cgroupfs.mount(kind="cgroup")
    assert "no cgroup v2 hierarchy" in refusal(cgroupfs)
    (cgroupfs.proc / "mountinfo").unlink()
    assert "no cgroup v2 hierarchy" in refusal(cgroupfs)
    (cgroupfs.proc / "cgroup").unlink()
    assert "no cgroup v2 hierarchy" in refusal(cgroupfs)


def test_a_group_that_holds_threads_cannot_hold_workers(cgroupfs: Cgroupfs) -> None:
    """The kernel says so of its type."""
    cgroupfs.set("cgroup.type", "threaded\n")
    assert "is a group for threads" in refusal(cgroupfs)


def test_a_group_that_may_not_be_written_to_is_not_ours(
    cgroupfs: Cgroupfs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The remedy is systemd's setting."""
    monkeypatch.setattr(os, "access", lambda path, _mode: path.name != "cgroup.subtree_control")
    assert "may not be written to; put Delegate=yes into the unit" in refusal(cgroupfs)


def test_what_systemd_did_not_give_away_is_its_own(
    cgroupfs: Cgroupfs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may write anywhere, but systemd would work against it."""
    cgroupfs.root.with_name("no-systemd").mkdir()
    assert "is systemd's own; put Delegate=yes into the unit" in refusal(cgroupfs)
    marks = {(cgroupfs.group, "trusted.delegate"): b"1"}

    def getxattr(path: Path, name: str) -> bytes:
        if (path, name) not in marks:
            raise OSError(61, "No data available")
        return marks[path, name]

    monkeypatch.setattr(os, "getxattr", getxattr)
    assert cgroupfs.group == found(cgroupfs).path


def test_a_service_of_an_older_systemd_is_given_what_its_user_owns(
    cgroupfs: Cgroupfs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its mark is for root to read; the parent, also the user's, tells of a user's own systemd."""
    cgroupfs.root.with_name("no-systemd").mkdir()
    owners = {cgroupfs.group: 1000, cgroupfs.group.parent: 0}
    stat = Path.stat

    def imitated(path: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        fields = list(stat(path, follow_symlinks=follow_symlinks))
        fields[4] = owners.get(path, fields[4])
        return os.stat_result(fields)

    monkeypatch.setattr(Path, "stat", imitated)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert cgroupfs.group == found(cgroupfs).path
    owners[cgroupfs.group.parent] = 1000
    assert "is systemd's own" in refusal(cgroupfs)


# Taking --------------------------------------------------------------------------


def test_the_daemon_moves_into_a_leaf_before_it_hands_controllers_down(cgroupfs: Cgroupfs) -> None:
    """The kernel hands nothing down from a group that holds processes."""
    delegation = taken(cgroupfs)
    assert [
        ("daemon/cgroup.procs", str(os.getpid())),
        ("cgroup.subtree_control", "+memory"),
        ("cgroup.subtree_control", "+pids"),
    ] == cgroupfs.writes
    assert () == delegation.missing


def test_who_sits_in_the_leaf_already_finds_the_same_subtree(cgroupfs: Cgroupfs) -> None:
    """After its own doing, or systemd's ``DelegateSubgroup=``."""
    taken(cgroupfs)
    cgroupfs.live_in()
    cgroupfs.live_in(os.getpid(), group=cgroupfs.group / "daemon")
    cgroupfs.mount(f"/{OURS}/daemon")
    assert cgroupfs.group == taken(cgroupfs).path
    assert not (cgroupfs.group / "daemon/daemon").exists()


def test_controllers_that_are_missing_are_named(cgroupfs: Cgroupfs) -> None:
    """They may be on the other hierarchy, or not be handed down to here."""
    cgroupfs.set("cgroup.controllers", "hugetlb pids\n")
    assert ("memory",) == taken(cgroupfs).missing
    cgroupfs.refused = {"cgroup.subtree_control"}
    assert ("memory", "pids") == taken(cgroupfs).missing


def test_a_leaf_that_cannot_be_moved_into_ends_it(cgroupfs: Cgroupfs) -> None:
    """The daemon runs on without."""
    cgroupfs.refused = {"cgroup.procs"}
    missing = found(cgroupfs).take()
    assert missing is not None
    assert f"cannot move into {cgroupfs.group}/daemon: Device or resource busy" == missing.why


def test_empty_groups_of_an_earlier_daemon_are_removed(cgroupfs: Cgroupfs) -> None:
    """Those with processes stay, for whoever ends leftovers."""
    for name, pids in {"worker.sim.0.1": (), "worker.sim.1.1": (NOBODY,)}.items():
        (cgroupfs.group / name).mkdir()
        cgroupfs.live_in(*pids, group=cgroupfs.group / name)
    left = taken(cgroupfs).groups()
    assert [(cgroupfs.group / "worker.sim.1.1", (NOBODY,))] == [
        (group.path, group.pids()) for group in left
    ]


# Workers' groups -----------------------------------------------------------------


def test_a_workers_group_has_a_limit_above_the_daemons(cgroupfs: Cgroupfs) -> None:
    """Without swap, which would only make a leak slow; all of it dies together."""
    delegation = taken(cgroupfs)
    cgroupfs.new |= MEMORY
    group = made(delegation, 1024 * MEBIBYTE)
    assert cgroupfs.group / "worker.smollm.0.3" == group.path
    assert 1280 * MEBIBYTE == group.memory_max
    files = {name: (group.path / name).read_text() for name in MEMORY}
    assert (str(1280 * MEBIBYTE), "0", "1") == (
        files["memory.max"], files["memory.swap.max"], files["memory.oom.group"],
    )  # fmt: skip


def test_the_headroom_of_a_small_limit_is_not_nothing() -> None:
    """An interpreter's import must not be able to use it up."""
    assert 80 * MEBIBYTE == headroom(16 * MEBIBYTE)
    assert 1280 * MEBIBYTE == headroom(1024 * MEBIBYTE)


def test_without_a_limit_a_group_has_none(cgroupfs: Cgroupfs) -> None:
    """It counts and kills all the same."""
    delegation = taken(cgroupfs)
    cgroupfs.new |= MEMORY
    group = made(delegation)
    assert (None, "", "1") == (
        group.memory_max,
        (group.path / "memory.max").read_text(),
        (group.path / "memory.oom.group").read_text(),
    )


def test_a_group_without_the_controller_knows_of_no_memory(cgroupfs: Cgroupfs) -> None:
    """A limit that cannot be set is not claimed; not known is not zero."""
    group = made(taken(cgroupfs), MEBIBYTE)
    assert (None, None, None) == (group.memory_max, group.oom_kills(), group.current())


def test_a_group_tells_what_was_killed_and_what_is_used(cgroupfs: Cgroupfs) -> None:
    """``oom`` counts what was only tried."""
    cgroupfs.new |= MEMORY
    group = made(taken(cgroupfs))
    assert (0, 0) == (group.oom_kills(), group.current())
    cgroupfs.set("memory.events", "max 9\noom 3\noom_kill 2\noom_group_kill 1\n", group.path)
    cgroupfs.set("memory.current", "4096\n", group.path)
    assert (2, 4096) == (group.oom_kills(), group.current())


def test_a_group_is_killed_with_one_write(cgroupfs: Cgroupfs) -> None:
    """Unless the kernel is too old or the group gone: then it says no."""
    group = made(taken(cgroupfs))
    assert group.kill()
    assert ("worker.smollm.0.3/cgroup.kill", "1") == cgroupfs.writes[-1]
    (group.path / "cgroup.kill").unlink()
    assert not group.kill()
    assert not (group.path / "cgroup.kill").exists()


def test_a_group_is_removed_with_those_that_its_processes_made(cgroupfs: Cgroupfs) -> None:
    """Once nobody is in them; removing it again is no error."""
    group = made(taken(cgroupfs))
    below = group.path / "own/deeper"
    below.mkdir(parents=True)
    cgroupfs.live_in(NOBODY, group=below)
    cgroupfs.live_in(0, NOBODY + 1, group=group.path)
    assert (NOBODY, NOBODY + 1) == group.pids()
    assert not group.remove()
    cgroupfs.live_in(group=below)
    cgroupfs.live_in(group=group.path)
    assert group.remove()
    assert group.remove()
    assert () == group.pids()


def test_a_group_that_an_earlier_worker_still_lives_in_is_not_shared(cgroupfs: Cgroupfs) -> None:
    """Killing the new one would kill the old one too; an empty one is made anew."""
    delegation = taken(cgroupfs)
    cgroupfs.new |= MEMORY
    group = made(delegation)
    cgroupfs.set("memory.events", "oom_kill 1\n", group.path)
    assert made(delegation).oom_kills() == 0
    cgroupfs.live_in(NOBODY, group=group.path)
    refused = delegation.group("smollm.0", 3, None)
    assert isinstance(refused, Unavailable)
    assert "still holds processes of an earlier worker" in refused.why


def test_a_group_that_cannot_be_made_is_done_without(
    cgroupfs: Cgroupfs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker starts all the same."""
    delegation = taken(cgroupfs)

    def full(*_: object) -> None:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(Path, "mkdir", full)
    refused = delegation.group("smollm.0", 3, None)
    assert isinstance(refused, Unavailable)
    assert "Resource temporarily unavailable" in refused.why


def test_own_groups_of_the_first_version_are_found_by_controller(tmp_path: Path) -> None:
    """Controllers may share a hierarchy, and be mounted anywhere."""
    (tmp_path / "cpu,mem/job").mkdir(parents=True)
    (tmp_path / "cgroup").write_text("5:cpu,memory:/job\n3:cpuset:/\n0::/\n")
    (tmp_path / "mountinfo").write_text(
        f"9 1 0:2 / {tmp_path}/cpu,mem rw - cgroup cgroup rw,cpu,memory\n"
    )
    assert tmp_path / "cpu,mem/job" == own_group("memory", tmp_path)
    assert own_group("mem", tmp_path) is None
    assert own_group("cpuset", tmp_path) is None
    assert own_group(None, tmp_path) is None


# Real ones -----------------------------------------------------------------------

DAEMON = """
import json, os, subprocess, sys
from pathlib import Path
from supervisord_llm.host import cgroups
from supervisord_llm.host.cgroup_files import own_group, write

top = Path(sys.argv[1])
write(top / "cgroup.procs", "0")
cgroups._SYSTEMD = Path("/nonexistent")
delegation = cgroups.Delegation.find()
assert isinstance(delegation, cgroups.Delegation), delegation
refused = delegation.take()
assert refused is None, refused
assert delegation.path == cgroups.Delegation.find().path
group = delegation.group("sim.0", 1, None)
assert isinstance(group, cgroups.WorkerGroup), group
script = '''
echo 0 >"$0/cgroup.procs"
setsid sh -c "trap '' TERM; (sleep 300 & sleep 300 & echo started; wait) & wait"
'''
worker = subprocess.Popen(["sh", "-c", script, group.path], stdout=subprocess.PIPE)
worker.stdout.readline()
before, removed_early = group.pids(), group.remove()
killed = group.kill()
code = worker.wait(20)
rounds = 0
while not group.remove():
    rounds += 1
print(json.dumps({
    "top": str(delegation.path), "own": str(own_group(None)), "before": len(before),
    "worker": worker.pid in before, "early": removed_early, "killed": killed, "code": code,
    "left": group.path.exists(),
}))
"""


def test_a_real_group_ends_all_that_a_worker_started(real_group: Path) -> None:
    """A process of its own plays the daemon: it takes its subtree, and kills a worker in it."""
    if not (real_group / "cgroup.kill").exists():
        pytest.skip("this kernel has no cgroup.kill")
    ran = subprocess.run(
        [sys.executable, "-c", DAEMON, str(real_group)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    assert told.pop("before") >= 4
    assert told == {
        "top": str(real_group), "own": str(real_group / "daemon"), "worker": True,
        "early": False, "killed": True, "code": -9, "left": False,
    }  # fmt: skip
