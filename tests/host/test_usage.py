from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisord_llm.host import usage

MEBIBYTE = 2**20


class Prompted:
    """A Python process that runs the lines it is given and says when each is done."""

    def __init__(self) -> None:
        script = "import sys, os\nfor line in sys.stdin:\n    exec(line)\n    print(flush=True)\n"
        self.process = subprocess.Popen(
            [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pid = self.process.pid
        self.run("pass")

    def run(self, line: str) -> None:
        """Have a line run, and wait until it is done."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "\n"

    def end(self) -> None:
        """End and reap it."""
        with self.process:
            self.process.kill()


@pytest.fixture
def worker() -> Iterator[Prompted]:
    """A process that does what it is told."""
    prompted = Prompted()
    yield prompted
    prompted.end()


@pytest.fixture
def imitated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in the place of /proc, with process 77 in it."""
    monkeypatch.setattr(usage, "_PROC", tmp_path)
    (tmp_path / "77").mkdir()
    return tmp_path / "77"


def stat(state: str) -> str:
    """A stat file: 100 ticks in user mode, 50 in system mode, 9 pages resident."""
    fields = ["0"] * 49
    fields[10], fields[11], fields[20] = "100", "50", "9"
    return f"77 (worker) {state} {' '.join(fields)}\n"


SMAPS = (
    "5600e58ff000-7fff6e9be000 ---p 00000000 00:00 0      [rollup]\n"
    "Rss:                  40 kB\nPss:                  30 kB\nPss_Anon:              2 kB\n"
    "Anonymous:            20 kB\nSwap:                 10 kB\nSwapPss:               1 kB\n"
)


def test_memory_that_a_process_takes_is_its_own(worker: Prompted) -> None:
    """Touched memory is resident, proportional and anonymous all at once."""
    before = usage.read(worker.pid)
    worker.run(f"held = bytearray(b'x') * {64 * MEBIBYTE}")
    after = usage.read(worker.pid)
    assert before is not None
    assert after is not None
    assert before.anonymous is not None
    assert after.anonymous is not None
    assert before.pss is not None
    assert after.pss is not None
    grown = 60 * MEBIBYTE
    assert after.rss - before.rss > grown
    assert after.anonymous - before.anonymous > grown
    assert after.pss - before.pss > grown
    assert after.swap is not None


def test_work_shows_as_progress_and_rest_does_not(worker: Prompted) -> None:
    """A process that waits for its input does nothing; one that computes does."""
    resting = usage.progress(worker.pid)
    assert resting is not None
    assert usage.progress(worker.pid) == resting
    busy = "lambda: time.process_time() < end"
    worker.run(f"import time; end = time.process_time() + 0.1; sum(1 for _ in iter({busy}, False))")
    worked = usage.progress(worker.pid)
    assert worked is not None
    assert worked.cpu_ticks > resting.cpu_ticks
    used = usage.read(worker.pid)
    assert used is not None
    assert used.cpu_seconds >= 0.05  # user and system time are each counted in whole ticks


def test_reading_a_file_shows_as_progress(worker: Prompted) -> None:
    """A worker that loads its model from a slow disk uses hardly any CPU time."""
    before = usage.progress(worker.pid)
    worker.run("open('/dev/zero', 'rb', 0).read(1000000)")
    after = usage.progress(worker.pid)
    assert before is not None
    assert after is not None
    assert after.io_bytes - before.io_bytes >= 1_000_000


def test_a_process_that_is_gone_has_no_usage(worker: Prompted) -> None:
    """Neither has a zombie, whose pid is still taken."""
    worker.process.kill()
    os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)
    assert (usage.read(worker.pid), usage.progress(worker.pid)) == (None, None)
    worker.process.wait()
    assert (usage.read(worker.pid), usage.progress(worker.pid)) == (None, None)


def test_the_sums_are_taken_by_their_exact_names(imitated: Path) -> None:
    """``Pss`` is not ``Pss_Anon``; kilobytes become bytes, ticks become seconds."""
    (imitated / "stat").write_text(stat("S"))
    (imitated / "smaps_rollup").write_text(SMAPS)
    ticks = os.sysconf("SC_CLK_TCK")
    expected = usage.Usage(40_960, 30_720, 20_480, 10_240, 150 / ticks)
    assert usage.read(77) == expected


def test_a_process_in_uninterruptible_sleep_is_not_asked_for_its_mappings(imitated: Path) -> None:
    """It may hold the lock that the answer needs, and the daemon would sleep with it."""
    (imitated / "stat").write_text(stat("D"))
    (imitated / "smaps_rollup").write_text(SMAPS)
    found = usage.read(77)
    assert found is not None
    assert (found.rss, found.pss) == (9 * os.sysconf("SC_PAGE_SIZE"), None)


def test_what_may_not_be_looked_at_is_left_open(imitated: Path) -> None:
    """The rest is still known."""
    (imitated / "stat").write_text(stat("R"))
    found = usage.read(77)
    assert found is not None
    assert (found.rss, found.pss, found.anonymous, found.swap) == (
        9 * os.sysconf("SC_PAGE_SIZE"), None, None, None,
    )  # fmt: skip
    assert usage.progress(77) == usage.Progress(150, 0)
