"""Asking for the memory on GPUs, of scripts in the place of ``nvidia-smi``."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path

import pytest
import trio

from supervisord_llm.host import tree
from supervisord_llm.runtime.gpu import GpuMemory

pytestmark = pytest.mark.usefixtures("no_fd_leak")

SECONDS = 20.0
"""The bound on every wait: only a hang reaches it."""


@pytest.fixture
def smi(tmp_path: Path) -> Path:
    """Where the script is to be written."""
    return tmp_path / "nvidia-smi"


def script(path: Path, *lines: str) -> Path:
    """Write a shell script."""
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(0o755)
    return path


async def asked(path: Path | None, *, within: float = SECONDS) -> GpuMemory:
    """Ask once."""
    memory = GpuMemory(path, timeout=within)
    await ask(memory)
    assert memory.pid is None
    return memory


async def ask(memory: GpuMemory) -> tuple[Mapping[int, int] | None, str | None]:
    """Ask, and return what is known now and what is wrong."""
    with trio.fail_after(SECONDS):
        await memory.ask()
    return memory.latest, memory.problem


async def test_the_answer_is_what_it_prints(smi: Path) -> None:
    """It is asked for processes and their memory, without header and units."""
    script(smi, 'echo "$*" >"$0.asked"', "echo 77, 2", "echo 78, [N/A]", "echo 77, 1")
    memory = await asked(smi)
    assert ({77: 3 * 2**20}, None) == (memory.latest, memory.problem)
    expected = "--query-compute-apps=pid,used_gpu_memory --format=csv,noheader,nounits\n"
    assert expected == smi.with_name("nvidia-smi.asked").read_text()


async def test_without_it_nothing_is_known() -> None:
    """And nothing is wrong; there is nobody to ask again."""
    memory = await asked(None)
    assert (None, None) == (memory.latest, memory.problem)
    with trio.fail_after(SECONDS):
        await memory.run()


async def test_one_that_hangs_is_killed_in_time(smi: Path) -> None:
    """With a broken driver it never answers."""
    memory = await asked(script(smi, 'echo $$ >"$0.pid"', "exec sleep 300"), within=0.5)
    assert memory.latest is None
    assert memory.problem is not None and "did not answer within 0.5 s" in memory.problem
    assert tree.read(int(smi.with_name("nvidia-smi.pid").read_text())) is None


async def test_one_that_closes_its_output_and_stays_is_killed_too(smi: Path) -> None:
    """The end of its output is not its end."""
    memory = await asked(script(smi, "echo 77, 1", "exec sleep 300 >&-"), within=0.5)
    assert memory.problem is not None and "did not answer" in memory.problem


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (["echo 77, 1", "exit 1"], "ended with 1: 77, 1"),
        (["exit 9"], "ended with 9: no reason given"),
        (["echo NVIDIA-SMI has failed", "exit 9"], "ended with 9: NVIDIA-SMI has failed"),
        (["kill -s ABRT $$"], f"ended with -{signal.SIGABRT.value}"),
        (["echo garbage"], "cannot read 'garbage'"),
        ([r"printf '\377\376, 3'"], "cannot read"),
        (["exec cat /dev/zero"], "prints without end"),
    ],
)
async def test_what_is_no_answer_is_told_as_a_problem(
    smi: Path, lines: list[str], problem: str
) -> None:
    """What was known before is not held to be true any longer."""
    script(smi, "echo 77, 1")
    memory = await asked(smi)
    assert memory.latest is not None
    script(smi, *lines)
    latest, told = await ask(memory)
    assert latest is None
    assert told is not None and problem in told
    script(smi, "echo 77, 1")
    assert ({77: 2**20}, None) == await ask(memory)


async def test_one_that_cannot_be_started_is_told_as_a_problem(smi: Path) -> None:
    """It may go while the daemon runs."""
    memory = await asked(smi)
    assert memory.problem is not None and "No such file" in memory.problem


async def test_one_that_cannot_be_watched_is_killed(
    smi: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be no descriptor left for it; the next question finds it dead."""

    def refused(_pid: int) -> int:
        raise OSError(24, "Too many open files")

    memory = GpuMemory(script(smi, "exec sleep 300"), timeout=SECONDS)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pidfd_open", refused)
        _, told = await ask(memory)
    assert told is not None and "Too many open files" in told
    assert memory.pid is not None
    pidfd = os.pidfd_open(memory.pid)
    with trio.fail_after(SECONDS):
        await trio.lowlevel.wait_readable(pidfd)
    os.close(pidfd)
    script(smi, "echo 77, 1")
    assert ({77: 2**20}, None) == await ask(memory)


async def test_it_is_asked_again_and_again(smi: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each answer takes the place of the one before."""
    monkeypatch.setattr("supervisord_llm.runtime.gpu._SECONDS", 0.01)
    script(smi, 'echo >>"$0.asked"', 'echo 77, "$(wc -l <"$0.asked")"')
    memory = GpuMemory(smi, timeout=SECONDS)
    with trio.fail_after(SECONDS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(memory.run)
            while memory.latest is None or memory.latest[77] < 3 * 2**20:
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()


async def test_while_one_does_not_die_no_other_is_started(
    smi: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that a driver holds uninterruptibly would pile up."""
    monkeypatch.setattr("supervisord_llm.runtime.gpu._DEATH_SECONDS", 0.05)
    monkeypatch.setattr("subprocess.Popen.kill", lambda _process: None)
    memory = GpuMemory(script(smi, 'echo >>"$0.asked"', "exec sleep 300"), timeout=0.5)
    await ask(memory)
    left = memory.pid
    assert left is not None
    _, told = await ask(memory)
    assert told is not None and "does not die" in told
    assert (left, "\n") == (memory.pid, smi.with_name("nvidia-smi.asked").read_text())
    pidfd = os.pidfd_open(left)
    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    with trio.fail_after(SECONDS):
        await trio.lowlevel.wait_readable(pidfd)
    os.close(pidfd)
    script(smi, "echo 77, 1")
    assert ({77: 2**20}, None) == await ask(memory)
    assert memory.pid is None


async def test_whoever_stops_asking_leaves_nothing_behind(smi: Path) -> None:
    """The daemon may stop in the middle of a question."""
    fifo = smi.with_name("started")
    os.mkfifo(fifo)
    descriptor = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    memory = GpuMemory(script(smi, 'echo $$ >"$0.pid"; echo >"${0%/*}/started"', "exec sleep 300"))
    with trio.fail_after(SECONDS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(memory.run)
            await trio.lowlevel.wait_readable(descriptor)
            nursery.cancel_scope.cancel()
    os.close(descriptor)
    assert memory.pid is None
    assert tree.read(int(smi.with_name("nvidia-smi.pid").read_text())) is None
