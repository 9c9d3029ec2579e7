"""Worker processes: what they inherit, what they leave behind, and how long they live."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
import trio

from supervisord_llm.core.words import Generation, Outcome
from supervisord_llm.errors import SpawnError
from supervisord_llm.events import WorkerReady, WorkerReaped, WorkerSignalled
from supervisord_llm.host import tree
from supervisord_llm.runtime.process import spawn
from supervisord_llm.runtime.request import RequestSpec
from tests.harness import QUICK, Bench, bench, read_tokens
from tests.native.sim import wait_until

STEADY = QUICK.replace("restart =", 'health = { probe_interval = "1h" }\nrestart =')


def environment_of(pid: int) -> dict[str, str]:
    """The variables that a process was started with."""
    entries = Path(f"/proc/{pid}/environ").read_text().rstrip("\0").split("\0")
    return dict(entry.split("=", 1) for entry in entries)


def descriptors_of(pid: int) -> dict[str, str]:
    """What a process has open, by number."""
    return {link.name: str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir()}


def children_in_group(made: Bench) -> list[tree.ProcessFacts]:
    """The processes that belong to slot 0's worker, besides it."""
    pid = made.slot().pid
    assert pid is not None
    return [facts for facts in tree.scan().values() if facts.pgrp == pid and facts.pid != pid]


async def test_a_worker_gets_only_the_environment_that_is_meant_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An allow-list, what the pool adds, and our own variables; no secret, no NOTIFY_SOCKET."""
    for name in ("NOTIFY_SOCKET", "LISTEN_FDS", "API_TOKEN"):
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    async with bench(
        tmp_path, settings='env = { OMP_NUM_THREADS = "{threads}" }\n' + QUICK
    ) as made:
        found = environment_of(made.slot().pid or 0)
    allowed = {"PATH", "HOME", "LANG", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "LC_ALL"}
    ours = {
        "SUPERVISORD_LLM_SLOT": "sim.0/1",
        "SUPERVISORD_LLM_PROTOCOL": "1",
        "SUPERVISORD_LLM_HEARTBEAT_MS": "500",
    }
    assert ours.items() <= found.items()
    assert int(found["OMP_NUM_THREADS"]) >= 1
    extra = found.keys() - allowed - ours.keys()
    assert extra == {
        "EXECUTORCH_LLM_WORKER_CONTROL_FD",
        "OMP_NUM_THREADS",
        "SUPERVISORD_LLM_TEST",
    }


async def test_a_worker_inherits_no_descriptor_but_its_own(tmp_path: Path) -> None:
    """Three workers each see their four pipe ends and nothing of the daemon or of each other."""
    async with bench(tmp_path, workers=3) as made:
        seen: list[str] = []
        for slot in made.pool.slots:
            control = environment_of(slot.pid or 0)["EXECUTORCH_LLM_WORKER_CONTROL_FD"]
            links = descriptors_of(slot.pid or 0)
            pipes = {name: target for name, target in links.items() if target.startswith("pipe:")}
            assert {"0", "2", control} <= pipes.keys()
            seen += set(pipes.values())
            others = [target for target in links.values() if not target.startswith("pipe:")]
            assert all(target.startswith("anon_inode:") for target in others), others
        assert len(seen) == len(set(seen)), "two workers share a pipe"


async def test_each_worker_leads_its_own_session_and_group(tmp_path: Path) -> None:
    """So that it can be signalled with what it started, and a terminal's Ctrl-C passes by."""
    async with bench(tmp_path, workers=2) as made:
        for slot in made.pool.slots:
            facts = tree.read(slot.pid or 0)
            assert facts is not None
            assert facts.pgrp == facts.session == facts.pid


async def test_descendants_end_with_their_worker(tmp_path: Path) -> None:
    """Children in the group and children in a session of their own are gone when it is reaped."""
    async with bench(tmp_path) as made:
        _, record = await made.generate("x sim.tokens=1 sim.spawn=2 sim.spawn_detached=2")
        assert record.outcome is Outcome.COMPLETED
        # The detached ones leave the group a moment after they began.
        await trio.to_thread.run_sync(wait_until, lambda: len(children_in_group(made)) == 2)
        before = tree.descendants(made.slot().pid or 0, tree.scan())
        made.slot().reload()
        reaped = await made.events.wait(WorkerReaped)
        await made.events.wait(WorkerReady, generation=2)
        assert len(reaped.descendants) == 4
        living = tree.scan()
        assert [pid for pid in before if pid in living and living[pid].living] == []


async def test_descendants_end_with_a_worker_that_is_killed(tmp_path: Path) -> None:
    """Also when the worker had no chance to look after them."""
    async with bench(tmp_path) as made:
        async with made.pool.request(
            RequestSpec(prompt="x sim.tokens=9999 sim.tps=100 sim.spawn=1 sim.spawn_detached=1")
        ) as stream:
            await read_tokens(stream, 1)
            os.kill(made.slot().pid or 0, 9)
            reaped = await made.events.wait(WorkerReaped)
        assert len(reaped.descendants) == 2
        signalled = made.events.all(WorkerSignalled)
        assert {event.target for event in signalled} <= {"pid", "group", "descendants"}


async def test_a_supervisor_gives_back_every_descriptor(tmp_path: Path, no_fd_leak: None) -> None:
    """After many generations the process holds what it held before."""
    async with bench(tmp_path) as made:
        for generation in range(2, 12):
            made.slot().reload()
            await made.events.wait(WorkerReady, generation=generation)


async def test_an_idle_worker_outlives_the_threads_of_the_daemon(tmp_path: Path) -> None:
    """The parent-death signal is bound to a thread; 15 s idle, longer than trio keeps threads."""
    async with bench(tmp_path, settings=STEADY) as made:
        await trio.to_thread.run_sync(time.sleep, 0.01)
        pid = made.slot().pid
        await trio.sleep(15)
        assert (made.slot().pid, made.slot().generation) == (pid, 1)
        _, record = await made.generate("x sim.tokens=1")
        assert record.outcome is Outcome.COMPLETED


async def test_a_missing_launcher_is_a_clear_error(tmp_path: Path, no_fd_leak: None) -> None:
    """Nothing is left of the attempt, and the message says what to do."""
    async with bench(tmp_path) as made:
        launch = made.slot()._launch
    with pytest.raises(SpawnError, match=r"cannot start sim\.0/7 .* run `make build`"):
        spawn(
            launch,
            Generation("sim.0", 7),
            launcher=tmp_path / "nowhere",
            heartbeat=0.5,
            cancellation=True,
        )
