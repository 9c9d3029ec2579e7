"""Worker processes: what they inherit, what they leave behind, and how long they live."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
import trio

from supervisord_llm.config.launch import SlotLaunch
from supervisord_llm.core.words import Generation, Outcome
from supervisord_llm.errors import SpawnError
from supervisord_llm.events import WorkerReady, WorkerReaped, WorkerSignalled
from supervisord_llm.host import tree
from supervisord_llm.runtime import guardian
from supervisord_llm.runtime.process import spawn
from supervisord_llm.runtime.request import RequestSpec
from tests.harness import QUICK, SCRIPTS, SECONDS, Bench, bench, read_tokens
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


async def test_a_worker_sees_nothing_else_from_inside(tmp_path: Path, no_fd_leak: None) -> None:
    """As it looks at itself: four descriptors, and its parent is the guardian."""
    async with bench(tmp_path) as made:
        launch = made.slot().launch
    seen = tmp_path / "seen"
    script = (
        "import os, sys\n"
        "numbers = [int(name) for name in os.listdir('/proc/self/fd')]\n"
        # The list itself is closed by then.
        "held = [number for number in numbers if os.path.exists(f'/proc/self/fd/{number}')]\n"
        f"seen = {str(seen)!r}\n"
        "control = os.environ['EXECUTORCH_LLM_WORKER_CONTROL_FD']\n"
        "text = f'{sorted(held)} {os.getppid()} {control}'\n"
        "open(seen + '.new', 'w').write(text)\n"
        "os.rename(seen + '.new', seen)\n"
    )
    launch = msgspec.structs.replace(launch, argv=(sys.executable, "-S", "-E", "-c", script))
    process, pipes = spawn(
        launch,
        Generation("sim.0", 7),
        launcher=SCRIPTS / "sllm-launch",
        heartbeat=0.5,
        cancellation=True,
    )
    with trio.fail_after(SECONDS):
        await process.wait_exited()
        assert str((await process.reap())[0]) == "exit:0"
    control = seen.read_text().split()[-1]
    assert seen.read_text() == f"[0, 1, 2, {control}] {process.guardian.pid} {control}"
    process.close()
    for descriptor in (pipes.stdin, pipes.stdout, pipes.stderr, pipes.control or -1):
        os.close(descriptor)


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


async def test_the_worker_of_a_killed_guardian_is_replaced(tmp_path: Path) -> None:
    """It dies with it and comes to the daemon, with what it left; nothing is left unreaped."""
    async with bench(tmp_path) as made:
        await made.generate("x sim.tokens=1 sim.spawn_detached=1 sim.spawn=1")
        killed = made.slot().guardian or 0
        await trio.to_thread.run_sync(wait_until, lambda: len(children_in_group(made)) == 1)
        before = tree.descendants(killed, tree.scan())
        os.kill(killed, signal.SIGKILL)
        reaped = await made.events.wait(WorkerReaped)
        assert reaped.exit == "signal:SIGKILL"
        assert len(reaped.descendants) == 2
        await made.events.wait(WorkerReady, generation=2)
        processes = tree.scan()
        assert [pid for pid in (killed, *before) if pid in processes] == []


async def test_a_stopped_guardian_holds_nothing_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker's exit is seen all the same; the guardian is ended, and the true cause told."""
    monkeypatch.setattr(guardian, "ANSWER_SECONDS", 0.05)
    async with bench(tmp_path) as made:
        stopped = made.slot().guardian or 0
        os.kill(stopped, signal.SIGSTOP)
        os.kill(made.slot().pid or 0, signal.SIGABRT)
        reaped = await made.events.wait(WorkerReaped)
        assert reaped.exit in {"signal:SIGABRT", "core_dumped:SIGABRT"}
        await made.events.wait(WorkerReady, generation=2)
        assert stopped not in tree.scan()


async def test_a_guardian_that_is_stopped_when_it_has_told_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the worker's exit, that is; the slot does not wait for its end for ever."""
    stopped: list[int] = []
    wait_told = guardian.Guardian.wait_told

    async def wait_told_and_stop(self: guardian.Guardian) -> None:
        await wait_told(self)
        if not stopped:
            stopped.append(self.pid)
            os.kill(self.pid, signal.SIGSTOP)

    monkeypatch.setattr(guardian, "ANSWER_SECONDS", 0.05)
    monkeypatch.setattr(guardian.Guardian, "wait_told", wait_told_and_stop)
    async with bench(tmp_path) as made:
        os.kill(made.slot().pid or 0, signal.SIGKILL)
        assert (await made.events.wait(WorkerReaped)).exit == "signal:SIGKILL"
        await made.events.wait(WorkerReady, generation=2)
        assert stopped[0] not in tree.scan()


async def test_an_exit_that_nobody_can_tell_of_is_that_of_a_killed_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guardian is dead, and another subreaper has got the worker."""

    def refuse(*_: object) -> None:
        raise ChildProcessError

    async with bench(tmp_path) as made:
        monkeypatch.setattr(os, "waitid", refuse)
        os.kill(made.slot().guardian or 0, signal.SIGKILL)
        reaped = await made.events.wait(WorkerReaped)
        assert reaped.exit == "signal:SIGKILL"


def started(launch: SlotLaunch, launcher: Path, cgroup: Path | None = None) -> None:
    """Start a worker, and give it up at once."""
    process, pipes = spawn(
        launch,
        Generation("sim.0", 7),
        launcher=launcher,
        heartbeat=0.5,
        cancellation=True,
        cgroup=cgroup,
    )
    process.kill()
    for descriptor in (pipes.stdin, pipes.stdout, pipes.stderr, pipes.control or -1):
        os.close(descriptor)
    pid = process.guardian.pid
    process.close()
    os.waitpid(pid, 0)


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo 'sllm-launch: cannot start a process: no room' >&2; exit 125", "process: no room"),
        ("exit 125", "the launcher ended"),
        ("exec sleep 300", "it took longer than 0.2 s"),
    ],
)
async def test_a_launcher_that_starts_nothing_is_a_clear_error(
    tmp_path: Path, no_fd_leak: None, monkeypatch: pytest.MonkeyPatch, script: str, why: str
) -> None:
    """With its own words where it has some; nothing is left of it."""
    monkeypatch.setattr(guardian, "START_SECONDS", 0.2)
    monkeypatch.setattr(guardian, "UNDO_SECONDS", 0.05)
    launcher = tmp_path / "launcher"
    launcher.write_text(f"#!/bin/sh\n{script}\n")
    launcher.chmod(0o700)
    async with bench(tmp_path) as made:
        launch = made.slot().launch
    with pytest.raises(SpawnError, match=rf"cannot start sim\.0/7 .*: .*{why}; run `make build`"):
        started(launch, launcher)


async def test_a_refused_descriptor_leaves_nothing(
    tmp_path: Path, no_fd_leak: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever it is: of a pipe, of the guardian, of the worker."""
    async with bench(tmp_path) as made:
        launch = made.slot().launch
    for name, most in [("pipe2", 6), ("pidfd_open", 2)]:
        real = getattr(os, name)
        for allowed in range(most):
            calls = itertools.count()

            def refuse(
                *arguments: int,
                calls: Iterator[int] = calls,
                allowed: int = allowed,
                real: Callable[..., object] = real,
            ) -> object:
                if next(calls) == allowed:
                    raise OSError(24, "Too many open files")
                return real(*arguments)

            with monkeypatch.context() as patch:
                patch.setattr(os, name, refuse)
                with pytest.raises(SpawnError, match="Too many open files; run"):
                    started(launch, SCRIPTS / "sllm-launch")


async def test_limits_and_a_cgroup_are_the_workers(tmp_path: Path, no_fd_leak: None) -> None:
    """As its launch says; the whole cgroup is killed with it."""
    async with bench(tmp_path) as made:
        launch = made.slot().launch
    seen = tmp_path / "seen"
    script = f"ulimit -d > {seen}.new; mv {seen}.new {seen}; exec sleep 300"
    launch = msgspec.structs.replace(
        launch, argv=("sh", "-c", script), rlimits=(("data", 512 * 1024 * 1024),)
    )
    for name in ("cgroup.procs", "cgroup.kill"):
        (tmp_path / name).touch()
    process, pipes = spawn(
        launch,
        Generation("sim.0", 7),
        launcher=SCRIPTS / "sllm-launch",
        heartbeat=0.5,
        cancellation=False,
        cgroup=tmp_path,
    )
    assert pipes.control is None
    await trio.to_thread.run_sync(wait_until, seen.exists)
    assert int(seen.read_text()) == 512 * 1024
    assert (tmp_path / "cgroup.procs").read_text() == "0"
    process.kill()
    assert (tmp_path / "cgroup.kill").read_text() == "1"
    with trio.fail_after(SECONDS):
        await process.wait_exited()
        cause, _ = await process.reap()
    assert str(cause) == "signal:SIGKILL"
    process.close()
    for descriptor in (pipes.stdin, pipes.stdout, pipes.stderr):
        os.close(descriptor)


async def test_a_missing_launcher_is_a_clear_error(tmp_path: Path, no_fd_leak: None) -> None:
    """Nothing is left of the attempt, and the message says what to do."""
    async with bench(tmp_path) as made:
        launch = made.slot().launch
    with pytest.raises(SpawnError, match=r"cannot start sim\.0/7 .* run `make build`"):
        spawn(
            launch,
            Generation("sim.0", 7),
            launcher=tmp_path / "nowhere",
            heartbeat=0.5,
            cancellation=True,
        )
