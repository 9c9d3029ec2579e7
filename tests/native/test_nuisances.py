from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import psutil
import pytest

from tests.native.sim import SimWorker, ready, wait_until


def ask(how: str, key: str, value: int) -> tuple[list[str], str]:
    """The options and the prompt that ask for a nuisance in this way."""
    if how == "option":
        return [f"--{key}={value}"], "x sim.tokens=1"
    return [], f"x sim.tokens=1 sim.{key}={value}"


def marked(worker: SimWorker) -> list[psutil.Process]:
    """The processes, besides the worker, that carry this test's mark, whoever their parent is."""
    found = []
    mark = os.environ["SUPERVISORD_LLM_TEST"]
    for process in psutil.process_iter():
        try:
            same = process.environ().get("SUPERVISORD_LLM_TEST") == mark
        except (psutil.AccessDenied, psutil.NoSuchProcess, psutil.ZombieProcess):
            continue
        if same and process.pid != worker.process.pid:
            found.append(process)
    return found


@pytest.mark.parametrize("how", ["option", "directive"])
def test_descendants_can_ignore_sigterm(how: str) -> None:
    """They stay in the worker's group, and outlive a SIGTERM to it."""
    options, prompt = ask(how, "spawn_stubborn", 2)
    with ready(*options) as worker:
        worker.generate(prompt)
        found = marked(worker)
        try:
            assert [os.getpgid(each.pid) for each in found] == [worker.process.pid] * 2
            mask = 1 << (signal.SIGTERM - 1)
            wait_until(lambda: all(ignored_signals(each.pid) & mask for each in found))
            for each in found:
                each.terminate()
            assert worker.leave() == 0
            assert all(each.is_running() for each in found)
        finally:
            for each in found:
                each.kill()


def ignored_signals(pid: int) -> int:
    """The signals that a process ignores, as a mask."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1], 16) for line in lines if line.startswith("SigIgn:"))


@pytest.mark.parametrize("how", ["option", "directive"])
def test_descendants_can_escape(how: str) -> None:
    """Forked twice and in sessions of their own, they are not the worker's any more."""
    options, prompt = ask(how, "spawn_escaped", 2)
    with ready(*options) as worker:
        worker.generate(prompt)
        found = marked(worker)
        try:
            assert len(found) == 2
            pid = worker.process.pid
            assert pid not in {each.ppid() for each in found}
            assert pid not in {os.getsid(each.pid) for each in found}
            assert psutil.Process(pid).children(recursive=True) == []
            assert worker.leave() == 0
            assert all(each.is_running() for each in found)
        finally:
            for each in found:
                each.kill()


@pytest.mark.parametrize("how", ["option", "directive"])
def test_a_worker_can_flood_its_stderr(how: str) -> None:
    """At a steady rate, beside its work, and without end; it leaves all the same."""
    options, prompt = ask(how, "stderr_flood", 5000)
    with ready(*options) as worker:
        worker.generate(prompt)
        stderr = worker.process.stderr
        assert stderr is not None
        before = time.monotonic()
        lines = [line for _ in range(20) for line in stderr.readline().splitlines()]
        assert lines == [f"sim: flood {number}".encode() for number in range(20)]
        while b"sim: flood 2000\n" != stderr.readline():
            pass
        assert time.monotonic() - before >= 0.2


def test_a_flood_that_nobody_reads_does_not_keep_a_worker() -> None:
    """The pipe is full; requests are answered, and the end of its input ends it."""
    with ready("--stderr_flood=1000000000") as worker:
        for _ in range(3):
            assert worker.generate("x sim.tokens=1")[0] == "t0 "


@pytest.mark.parametrize("how", ["option", "directive"])
def test_a_worker_can_take_memory_without_end(how: str) -> None:
    """It grows by tens of megabytes and works on."""
    options, prompt = ask(how, "leak", 100_000_000)
    with ready(*options) as worker:
        worker.generate(prompt)
        process = psutil.Process(worker.process.pid)
        before = process.memory_info().rss
        wait_until(lambda: process.memory_info().rss - before > 30_000_000)
        assert worker.generate("x sim.tokens=1")[0] == "t0 "
