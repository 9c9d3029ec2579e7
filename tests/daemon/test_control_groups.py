"""A daemon that was given control groups of its own puts each worker into one."""

from __future__ import annotations

import os
import shlex
import signal
from pathlib import Path

import pytest

from supervisord_llm.host import cgroups
from supervisord_llm.host.cgroup_files import members
from tests.daemon.running import daemon, running, until
from tests.daemon.test_daemon import alive
from tests.harness import QUICK, SCRIPTS, SECONDS, write_config
from tests.host.cgroupfs import real_group

__all__ = ["real_group"]

SETTINGS = QUICK + 'limits = { memory_hard = "256MiB" }\n'


@pytest.fixture
def given(real_group: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A real group that the daemon of the test is started in, as a service is in its own."""
    if cgroups._SYSTEMD.is_dir():
        try:
            os.setxattr(real_group, "trusted.delegate", b"1")
        except OSError as error:
            pytest.skip(f"cannot mark a group as delegated: {error.strerror}")
    start = tmp_path / "start"
    start.write_text(
        f"#!/bin/sh\necho 0 >{shlex.quote(str(real_group))}/cgroup.procs\n"
        f'exec {shlex.quote(str(SCRIPTS / "supervisord-llm"))} "$@"\n'
    )
    start.chmod(0o700)
    monkeypatch.setattr("tests.daemon.running.PROGRAM", start)
    return real_group


def test_each_worker_has_a_group_and_it_goes_with_it(tmp_path: Path, given: Path) -> None:
    """The daemon sits in its leaf; what a worker begins is in its group, wherever it goes."""
    with daemon(tmp_path, workers=2, settings=SETTINGS) as served:
        assert members(given / "daemon") >= {served.process.pid}
        prompt = "x sim.tokens=1 sim.spawn_escaped=1"
        started = served.client.post("/api/v1/generate", json={"pool": "sim", "prompt": prompt})
        slot = "sim.0" if '"sim.0"' in started.text else "sim.1"
        pid = served.client.get(f"/api/v1/workers/{slot}").json()["pid"]
        group = given / f"worker.{slot}.1"
        held = members(group)
        assert (pid in held, len(held)) == (True, 2)
        os.kill(pid, signal.SIGKILL)
        served.wait("worker.ready", count=3)
        until(lambda: not group.exists(), "the end of the group")
        assert alive(list(held)) == []
        assert (given / f"worker.{slot}.2").exists()
        exited = served.wait("worker.exited")
        assert exited["exit"] == "signal:SIGKILL"
    assert list(given.glob("worker.*")) == []


def test_a_killed_daemon_leaves_groups_that_the_next_one_removes(
    tmp_path: Path, given: Path
) -> None:
    """Their processes are gone at once, and it serves from the same subtree."""
    config = write_config(tmp_path, "--ignore_sigterm --ignore_eof", settings=SETTINGS)
    with running(tmp_path, config) as served:
        [pid] = served.worker_pids()
        assert members(given / "worker.sim.0.1") == {pid}
        served.process.kill()
        served.process.wait(SECONDS)
        until(lambda: alive([pid]) == [], "the end of the worker")
        assert (given / "worker.sim.0.1").exists()
    with running(tmp_path, config) as served:
        assert served.worker_pids() == sorted(members(given / "worker.sim.0.1"))
        assert served.client.get("/readyz").status_code == 200
        assert [e for e in served.events("daemon.warning") if e["topic"] == "cgroups"] == []


def test_without_a_group_of_its_own_the_daemon_says_so(tmp_path: Path) -> None:
    """It serves all the same, with limits by measuring."""
    with daemon(tmp_path, settings=SETTINGS) as served:
        warned = [e for e in served.events("daemon.warning") if e["topic"] == "cgroups"]
        assert len(warned) == 1
        assert "limits hold by measuring once a second" in str(warned[0]["message"])
        assert served.client.get("/readyz").status_code == 200
