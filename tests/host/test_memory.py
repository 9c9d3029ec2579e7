"""What processes hold of memory, against real ones where the kernel can be made to show it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisord_llm.host import memory, proc_files
from supervisord_llm.host.memory import Memory

Run = Callable[..., tuple[int, str]]

MEBIBYTE = 2**20
BIG = 64 * MEBIBYTE

FORKS = f"""
import os, sys
held = bytearray(b"x") * {BIG}
child = os.fork()
if child == 0:
    sys.stdin.read()
    os._exit(0)
print(child, flush=True)
sys.stdin.read()
"""
MAPS = f"""
import mmap, sys
held = mmap.mmap(-1, {BIG})
held.write(b"x" * {BIG})
print(flush=True)
sys.stdin.read()
"""
READS_A_FILE = """
import mmap, sys
with open(sys.argv[1], "rb") as file:
    held = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
sum(held[::4096])
print(flush=True)
sys.stdin.read()
"""


@pytest.fixture
def run() -> Iterator[Run]:
    """Start a Python script, which ends when its stdin does; returns its pid and first line."""
    with contextlib.ExitStack() as ends:

        def start(script: str, *arguments: str) -> tuple[int, str]:
            process = subprocess.Popen(
                [sys.executable, "-c", script, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            ends.enter_context(process)
            ends.callback(process.kill)
            assert process.stdout is not None
            return process.pid, process.stdout.readline().strip()

        yield start


@pytest.fixture
def imitated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in the place of /proc."""
    monkeypatch.setattr(proc_files, "PROC", tmp_path)
    return tmp_path


def process(proc: Path, pid: int, *, state: str = "S", status: str = "", smaps: str = "") -> None:
    """Put a process into the imitated folder; rows are like "Rss 40"."""
    folder = proc / str(pid)
    folder.mkdir(exist_ok=True)
    (folder / "stat").write_text(f"{pid} (worker) {state} {' '.join(['0'] * 49)}\n")
    (folder / "status").write_text("Name:\tworker\nThreads:\t3\n" + rows(status))
    if smaps:
        (folder / "smaps_rollup").write_text("5600-7fff ---p 00000000 00:00 0 [rollup]\n")
        with (folder / "smaps_rollup").open("a") as file:
            file.write(rows(smaps))


def rows(text: str) -> str:
    """Lines as the kernel writes them."""
    words = text.split()
    pairs = zip(words[::2], words[1::2], strict=True)
    return "".join(f"{name}:\t{value:>8} kB\n" for name, value in pairs)


STATUS = "VmRSS 40 RssAnon 20 RssFile 13 RssShmem 7 VmSwap 10"
SMAPS = (
    "Rss 40 Pss 30 Pss_Dirty 9 Pss_Anon 12 Pss_File 14 Pss_Shmem 4 Anonymous 20 Swap 10 SwapPss 8"
)


# Real processes ----------------------------------------------------------------


def test_memory_that_two_processes_share_is_held_once(run: Run) -> None:
    """After a fork the pages are one; the cheap estimate counts them twice, and says so."""
    parent, line = run(FORKS)
    pids = [parent, int(line)]
    exact = memory.read(pids)
    assert BIG < exact.held < 2 * BIG
    assert exact.rss > 2 * BIG
    assert memory.quick(pids) > 2 * BIG
    assert exact.processes == 2
    assert memory.read(pids * 2).held < 2 * BIG, "a pid that is named twice is one process"


def test_the_exact_sums_are_taken_only_when_a_limit_may_be_passed(run: Run) -> None:
    """An estimate that errs upwards must not make a limit of what is not above it."""
    parent, line = run(FORKS)
    pids = [parent, int(line)]
    limit = BIG + BIG // 2
    assert memory.quick(pids) > limit
    assert memory.held_against(pids, limit) < limit


def test_shared_memory_is_held(run: Run) -> None:
    """It comes back when the last of those who share it ends."""
    pid, _ = run(MAPS)
    found = memory.read([pid])
    assert found.shared is not None and found.shared >= BIG
    assert found.held >= BIG
    assert memory.quick([pid]) >= BIG


def test_a_file_that_is_mapped_is_not_held(run: Run, tmp_path: Path) -> None:
    """The kernel takes a model's weights out of memory whenever it wants to."""
    file = tmp_path / "weights"
    file.write_bytes(b"x" * BIG)
    pid, _ = run(READS_A_FILE, str(file))
    found = memory.read([pid])
    assert found.rss > BIG
    assert found.held < BIG / 2
    assert memory.quick([pid]) < BIG / 2


def test_processes_that_are_gone_hold_nothing() -> None:
    """Neither do zombies."""
    with subprocess.Popen(["true"]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        assert memory.read([ended.pid]) == Memory(0, 0, 0, 0, 0, 0, 0)
        assert memory.quick([ended.pid]) == 0
    assert memory.read([ended.pid]).processes == 0


# Imitated ones ------------------------------------------------------------------


def test_the_sums_are_taken_by_their_exact_names(imitated: Path) -> None:
    """``Pss`` is not ``Pss_Anon``, and a share of swap is not all of it."""
    process(imitated, 77, status=STATUS, smaps=SMAPS)
    expected = Memory(
        rss=40 * 1024, pss=30 * 1024, anonymous=12 * 1024, swap=8 * 1024, shared=4 * 1024,
        held=(12 + 8 + 4) * 1024, processes=1,
    )  # fmt: skip
    assert expected == memory.read([77])


def test_a_leak_that_is_swapped_out_shows_in_what_is_held(imitated: Path) -> None:
    """Field report 24: resident memory stays where it is while the worker leaks into swap."""
    steady = "Rss 100 Pss 100 Pss_Anon 90 Pss_Shmem 0 Anonymous 90"
    status = "VmRSS 100 RssAnon 90 RssShmem 0"
    found = []
    for swapped in (0, 12, 24):
        swap = f" Swap {swapped} SwapPss {swapped}"
        process(imitated, 77, status=f"{status} VmSwap {swapped}", smaps=steady + swap)
        found.append((memory.read([77]), memory.quick([77])))
    assert [100 * 1024] * 3 == [exact.rss for exact, _ in found]
    assert [90 * 1024, 102 * 1024, 114 * 1024] == [exact.held for exact, _ in found]
    assert [exact.held for exact, _ in found] == [estimate for _, estimate in found]


def test_a_process_in_uninterruptible_sleep_is_not_asked_for_its_mappings(imitated: Path) -> None:
    """It may hold the lock that the answer needs; the counters need none."""
    process(imitated, 77, state="D", status=STATUS, smaps=SMAPS)
    expected = Memory(
        rss=40 * 1024, pss=None, anonymous=20 * 1024, swap=10 * 1024, shared=7 * 1024,
        held=(20 + 10 + 7) * 1024, processes=1,
    )  # fmt: skip
    assert expected == memory.read([77])


def test_what_is_not_known_of_one_is_not_known_of_all(imitated: Path) -> None:
    """Half a sum would be a lie; what is held is estimated for that one."""
    process(imitated, 77, status=STATUS, smaps=SMAPS)
    process(imitated, 78, status=STATUS)
    found = memory.read([77, 78])
    assert (None, 32 * 1024) == (found.pss, found.anonymous)
    assert (24 + 37) * 1024 == found.held


def test_an_older_kernel_tells_the_parts_less_exactly(imitated: Path) -> None:
    """Before Linux 5.4 the proportional sum had no parts."""
    process(imitated, 77, status=STATUS, smaps="Rss 40 Pss 30 Anonymous 20 Swap 10 SwapPss 8")
    found = memory.read([77])
    assert (20 * 1024, 7 * 1024, 8 * 1024) == (found.anonymous, found.shared, found.swap)
    assert 35 * 1024 == found.held


@given(
    anonymous=st.integers(0, 2**40),
    swap=st.integers(0, 2**40),
    limit=st.integers(0, 2**52),
)
def test_below_the_limit_the_estimate_is_the_answer(anonymous: int, swap: int, limit: int) -> None:
    """Above it the exact sum is, which may be below the limit again."""
    with pytest.MonkeyPatch.context() as patch:
        estimate = (anonymous + swap) * 1024
        counters = {"RssAnon": anonymous * 1024, "VmSwap": swap * 1024}
        patch.setattr(memory, "_counters", lambda _pid: counters)
        patch.setattr(memory, "_state", lambda _pid: b"S")
        patch.setattr(memory, "_mapping_sums", lambda _pid: {"Pss": 1, "Pss_Anon": 1})
        expected = estimate if estimate <= limit else 1
        assert expected == memory.held_against([77], limit)
