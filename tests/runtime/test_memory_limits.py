"""Workers that hold too much memory: recycled in time, torn down, or taken by the kernel."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import trio

from supervisord_llm.core.words import Outcome
from supervisord_llm.events import (
    DaemonWarning,
    RequestRetried,
    WorkerDraining,
    WorkerExited,
    WorkerParked,
    WorkerQuarantined,
    WorkerReady,
    WorkerReaped,
    WorkerUsage,
)
from supervisord_llm.host import memory
from supervisord_llm.host.cgroups import Delegation
from supervisord_llm.host.oom import OomWatch
from supervisord_llm.runtime import machine, scans, worker
from supervisord_llm.runtime.gpu import GpuMemory
from supervisord_llm.runtime.machine import Machine
from tests.harness import QUICK, SCRIPTS, SECONDS, Bench, Recorder, bench
from tests.host.cgroupfs import FILES, MEMORY, Cgroupfs, cgroupfs
from tests.native.sim import wait_until
from tests.runtime.faulty import some_faulty

__all__ = ["cgroupfs"]

MIB = 2**20
GROWS = f"--leak {100 * MIB}"
SOFT = QUICK + 'limits = { memory_soft = "40MiB" }\n'
HARD = QUICK + 'limits = { memory_hard = "64MiB" }\n'
TWICE = HARD.replace("queue.max_attempts = 1", "queue.max_attempts = 2")
SIM = SCRIPTS / "sllm-sim-worker"
HOLDS = "import sys, time; held = b'x' * int(sys.argv[1]); time.sleep(300)"


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weigh workers more often than once a second, so that a test need not wait for it."""
    monkeypatch.setattr(worker, "_WEIGH_SECONDS", 0.05)


async def served_meanwhile(made: Bench, until: Callable[[], bool]) -> int:
    """Ask for one generation after the other; how many were answered, and all were."""
    count = 0
    with trio.fail_after(SECONDS):
        while not until():
            _, record = await made.generate("x sim.tokens=10 sim.tps=200")
            assert record.outcome is Outcome.COMPLETED, record
            count += 1
    return count


def data_limit(made: Bench) -> list[str]:
    """The soft and the hard limit of writable memory that are in force in the worker."""
    lines = Path(f"/proc/{made.slot().pid}/limits").read_text().splitlines()
    [data] = [line.split() for line in lines if line.startswith("Max data size")]
    return data[3:5]


# The soft limit ------------------------------------------------------------------


@pytest.mark.parametrize("reload", ["surge", "restart"])
async def test_a_worker_that_grows_is_recycled_and_no_request_fails(
    tmp_path: Path, reload: str
) -> None:
    """Field report 24: three workers in a row leak, under constant load."""
    settings = SOFT + f'reload = "{reload}"\n'
    async with bench(tmp_path, GROWS, settings=settings) as made:
        recycled = made.events.all
        served = await served_meanwhile(
            made, lambda: len(recycled(WorkerDraining, reason="recycle")) >= 3
        )
        assert served > 0
        detail = made.events.all(WorkerDraining)[0].detail or ""
        assert detail.startswith("it holds ")
        assert detail.endswith(" MiB (memory_soft 40 MiB)")
        assert made.events.all(WorkerQuarantined) == []
        assert {exited.expected for exited in made.events.all(WorkerExited)} <= {True}


async def test_a_leak_that_is_swapped_out_is_recycled_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Field report 24: what it holds resident stays the same, for the kernel swaps the rest out."""
    real = memory._kilobytes

    def swapped(pid: int, name: str) -> dict[str, int]:
        rows = real(pid, name)
        for resident, swap in [("RssAnon", "VmSwap"), ("Pss_Anon", "SwapPss")]:
            if resident in rows:
                rows[swap], rows[resident] = rows[resident], 0
        return rows

    monkeypatch.setattr(memory, "_kilobytes", swapped)
    async with bench(tmp_path, GROWS, settings=SOFT) as made:
        await made.events.wait(WorkerDraining, reason="recycle")


# The hard limit ------------------------------------------------------------------


async def test_a_request_whose_worker_held_too_much_is_run_again(tmp_path: Path) -> None:
    """It had no output yet; the reason and the evidence are told."""
    command = some_faulty("sim.0/1", f"--leak {200 * MIB}")
    async with bench(tmp_path, command=command, settings=TWICE) as made:
        _, record = await made.generate("x sim.prefill_ms=1500 sim.tokens=1")
        assert record.outcome is Outcome.COMPLETED
        [quarantined] = made.events.all(WorkerQuarantined)
        assert (quarantined.reason, quarantined.generation) == ("memory_limit", 1)
        assert str(quarantined.detail).endswith(
            " MiB with its descendants; limits.memory_hard is 64 MiB"
        )
        assert [retried.request for retried in made.events.all(RequestRetried)]
        last = made.slot().last_exit
        assert last is not None
        assert (last.reason, last.exit) == ("memory_limit", "signal:SIGTERM")


async def test_after_its_first_token_it_fails_and_may_be_sent_again(tmp_path: Path) -> None:
    """A typed, retryable error; the slot comes back."""
    async with bench(tmp_path, settings=TWICE) as made:
        _, record = await made.generate(f"x sim.tokens=100000 sim.tps=100 sim.leak={200 * MIB}")
        assert (record.outcome, record.error) == (Outcome.FAILED, "worker_quarantined")
        assert record.retryable
        assert "limits.memory_hard" in str(record.detail)
        await made.events.wait(WorkerReady, generation=2)


async def test_the_hard_limit_holds_for_a_worker_that_is_recycled(tmp_path: Path) -> None:
    """It may finish what it has, but not at any price."""
    settings = HARD.replace("{ memory_hard", '{ memory_soft = "40MiB", memory_hard')
    async with bench(tmp_path, settings=settings) as made:
        _, record = await made.generate(f"x sim.tokens=100000 sim.tps=100 sim.leak={20 * MIB}")
        assert (record.error, record.retryable) == ("worker_quarantined", True)
        [draining] = made.events.all(WorkerDraining, generation=1, reason="recycle")
        [quarantined] = made.events.all(WorkerQuarantined)
        assert (draining.worker, "memory_limit") == (quarantined.worker, quarantined.reason)
        await made.events.wait(WorkerReady, count=2)


async def test_a_model_that_does_not_fit_its_limit_parks_its_slot(tmp_path: Path) -> None:
    """It passes the limit in each of its loads; the reason is the limit."""
    settings = HARD.replace('"200ms" }', '"200ms", max_restarts = 1 }')
    options = f"--load_ms 60000 --leak {200 * MIB}"
    async with bench(tmp_path, options, settings=settings, ready=False) as made:
        parked = await made.events.wait(WorkerParked)
        assert (parked.reason, parked.restarts) == ("memory_limit", 2)


async def test_the_memory_of_descendants_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child that is started long after the worker, in a session of its own, goes with it."""
    monkeypatch.setattr(worker, "_USAGE_SECONDS", 3600.0)
    begin = tmp_path / "begin"
    child = f"until [ -e {begin} ]; do sleep 0.05; done; setsid {sys.executable} -ISc"
    script = f'case "$SUPERVISORD_LLM_SLOT" in */1) ({child} "$0" "$1"; :) & ;; esac; exec {SIM}'
    command = ["sh", "-c", script, HOLDS, str(100 * MIB)]
    async with bench(tmp_path, command=command, settings=HARD) as made:
        await made.generate("x sim.tokens=1")
        assert made.events.all(WorkerQuarantined) == []
        begin.touch()
        quarantined = await made.events.wait(WorkerQuarantined)
        assert (quarantined.reason, quarantined.generation) == ("memory_limit", 1)
        reaped = await made.events.wait(WorkerReaped)
        assert len(reaped.descendants) >= 1
        await made.events.wait(WorkerReady, generation=2)
        used = made.events.all(WorkerUsage, generation=2)[-1]
        assert (used.held < 64 * MIB, used.processes) == (True, 1)


async def test_what_is_held_is_told_with_that_of_descendants(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the events and to whoever asks; a child that shares nothing is counted in full."""
    script = f'{sys.executable} -ISc "$0" "$1" & exec {SIM}'
    command = ["sh", "-c", script, HOLDS, str(100 * MIB)]
    async with bench(tmp_path, command=command) as made:
        pid = made.slot().pid or 0

        def grown() -> bool:
            children = psutil.Process(pid).children()
            return bool(children) and children[0].memory_info().rss > 100 * MIB

        await trio.to_thread.run_sync(wait_until, grown)
        monkeypatch.setattr(scans, "MOST_AGE", 0.0)
        made.slot().live().worker.note_usage()
        used = made.events.all(WorkerUsage)[-1]
        assert (used.held >= 100 * MIB, used.processes) == (True, 2)
        shown = made.slot().usage
        assert shown is not None
        assert shown.held == used.held


async def test_what_grows_faster_than_it_is_weighed_is_refused_by_the_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit is in force inside the worker, a quarter or more above ``memory_hard``."""
    monkeypatch.setattr(worker, "_WEIGH_SECONDS", 3600.0)
    async with bench(tmp_path, settings=HARD) as made:
        assert [str(128 * MIB)] * 2 == data_limit(made)
        await made.generate("x sim.tokens=100000 sim.tps=100 sim.leak=1000000000")
        exited = await made.events.wait(WorkerExited)
        assert exited.exit in {"signal:SIGABRT", "core_dumped:SIGABRT"}
        assert any("bad_alloc" in line for line in exited.last_lines)
        await made.events.wait(WorkerReady, generation=2)


# The kernel ----------------------------------------------------------------------


def imitated(groups: Cgroupfs, *, count: bool = True) -> Callable[[Recorder], Machine]:
    """A machine with the control groups of a folder, for a daemon that is given them."""
    groups.new = {**FILES, **MEMORY} if count else FILES
    delegation = Delegation.find(groups.proc)
    assert isinstance(delegation, Delegation)
    assert delegation.take() is None
    (groups.proc / "vmstat").write_text("oom_kill 0\n")
    watch = OomWatch(lambda: 0.0, proc=groups.proc)
    return lambda events: Machine(delegation, watch, GpuMemory(None), events)


async def test_a_kill_by_the_kernel_is_named_as_such(tmp_path: Path, cgroupfs: Cgroupfs) -> None:
    """In the exit's event, in the slot's last exit, and in the words of a pool without slots."""
    settings = HARD.replace('"200ms" }', '"200ms", max_restarts = 0 }')
    async with bench(tmp_path, settings=settings, machine=imitated(cgroupfs)) as made:
        group = cgroupfs.group / "worker.sim.0.1"
        assert (group / "cgroup.procs").read_text() == "0"
        assert int((group / "memory.max").read_text()) == 128 * MIB
        assert ["unlimited"] * 2 == data_limit(made)
        cgroupfs.set("memory.events", "oom 1\noom_kill 1\n", group)
        os.kill(made.slot().pid or 0, signal.SIGKILL)
        exited = await made.events.wait(WorkerExited)
        parked = await made.events.wait(WorkerParked)
        assert (exited.exit, parked.exit) == ("oom_killed", "oom_killed")
        assert "oom_killed" == made.events.all(WorkerReaped)[0].exit
        assert made.slot().in_words() == "sim.0 parked (unexpected_exit, oom_killed)"
        cgroupfs.live_in(group=group)


@pytest.mark.parametrize("killed", ["by somebody", "by us"])
async def test_a_kill_that_was_not_the_kernels_is_not_named_so(
    tmp_path: Path, cgroupfs: Cgroupfs, killed: str
) -> None:
    """The worker's own group has counted none, whatever happens on the rest of the machine."""
    options = "--ignore_sigterm"
    async with bench(tmp_path, options, settings=HARD, machine=imitated(cgroupfs)) as made:
        (cgroupfs.proc / "vmstat").write_text("oom_kill 5\n")
        if killed == "by us":
            made.slot().quarantine()
        else:
            os.kill(made.slot().pid or 0, signal.SIGKILL)
        exited = await made.events.wait(WorkerExited)
        assert exited.exit == "signal:SIGKILL"
        cgroupfs.live_in(group=cgroupfs.group / "worker.sim.0.1")
        await made.events.wait(WorkerReady, generation=2)


async def test_the_group_of_a_worker_goes_once_it_is_empty(
    tmp_path: Path, cgroupfs: Cgroupfs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel takes a moment for that; the next worker has its own meanwhile."""
    monkeypatch.setattr(machine, "_REMOVE_AGAIN_SECONDS", 0.01)
    async with bench(tmp_path, settings=HARD, machine=imitated(cgroupfs)) as made:
        first, second = (cgroupfs.group / f"worker.sim.0.{number}" for number in (1, 2))
        made.slot().quarantine()
        await made.events.wait(WorkerReady, generation=2)
        assert (first.exists(), second.exists()) == (True, True)
        cgroupfs.live_in(group=first)
        await trio.to_thread.run_sync(wait_until, lambda: not first.exists())
        assert second.exists()
        cgroupfs.live_in(group=second)
    assert not second.exists()
    assert made.events.all(DaemonWarning) == []


async def test_a_group_that_does_not_go_is_told_of_once(
    tmp_path: Path, cgroupfs: Cgroupfs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the slot serves on."""
    monkeypatch.setattr(machine, "_REMOVE_AGAIN_SECONDS", 0.01)
    monkeypatch.setattr(machine, "_REMOVE_SECONDS", 0.05)
    async with bench(tmp_path, settings=HARD, machine=imitated(cgroupfs)) as made:
        made.slot().quarantine()
        warning = await made.events.wait(DaemonWarning)
        assert warning.message == "cannot remove the control group worker.sim.0.1"
        await made.events.wait(WorkerReady, generation=2)


async def test_a_worker_that_cannot_be_started_leaves_no_group(
    tmp_path: Path, cgroupfs: Cgroupfs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often it is tried."""
    pipe2 = os.pipe2

    def refuse(flags: int) -> tuple[int, int]:
        raise OSError(24, "Too many open files")

    async with bench(tmp_path, settings=HARD, machine=imitated(cgroupfs)) as made:
        group = cgroupfs.group / "worker.sim.0.1"
        monkeypatch.setattr(os, "pipe2", refuse)
        cgroupfs.live_in(group=group)
        made.slot().quarantine()
        await made.events.wait(DaemonWarning, count=3, topic="spawn")
        monkeypatch.setattr(os, "pipe2", pipe2)
        await made.wait_ready()
        generation = made.slot().generation
        left = {path.name for path in cgroupfs.group.glob("worker.*")}
        assert left == {f"worker.sim.0.{generation}"}
        cgroupfs.live_in(group=cgroupfs.group / f"worker.sim.0.{generation}")


async def test_without_groups_the_machines_counter_names_the_kill(tmp_path: Path) -> None:
    """One kill was counted, and one worker has died of SIGKILL that nobody here has sent."""
    (tmp_path / "vmstat").write_text("oom_kill 3\n")
    watch = OomWatch(lambda: 0.0, proc=tmp_path)

    def counting(events: Recorder) -> Machine:
        return Machine(None, watch, GpuMemory(None), events)

    async with bench(tmp_path, workers=2, machine=counting) as made:
        (tmp_path / "vmstat").write_text("oom_kill 4\n")
        for slot, expected in zip(
            list(made.pool.slots), ["oom_killed", "signal:SIGKILL"], strict=True
        ):
            os.kill(slot.pid or 0, signal.SIGKILL)
            exited = await made.events.wait(WorkerExited, worker=slot.name)
            assert exited.exit.startswith(expected)
