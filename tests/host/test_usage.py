from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisord_llm.host import proc_files, usage

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
    monkeypatch.setattr(proc_files, "PROC", tmp_path)
    (tmp_path / "77").mkdir()
    return tmp_path / "77"


def stat(state: str) -> str:
    """A stat file: 100 ticks in user mode, 50 in system mode, 9 pages resident."""
    fields = ["0"] * 49
    fields[10], fields[11], fields[20] = "100", "50", "9"
    return f"77 (worker) {state} {' '.join(fields)}\n"


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


def test_a_worker_and_its_descendants_are_one(imitated: Path, tmp_path: Path) -> None:
    """Their memory counts together, also on GPUs; CPU time is that of the worker's own process."""
    for pid in ("77", "78"):
        (tmp_path / pid).mkdir(exist_ok=True)
        (tmp_path / pid / "stat").write_text(stat("S"))
        (tmp_path / pid / "status").write_text("VmRSS:\t 8 kB\nRssAnon:\t 4 kB\nVmSwap:\t 2 kB\n")
    expected = usage.Usage(
        rss=16_384, pss=None, anonymous=8_192, swap=4_096,
        cpu_seconds=150 / os.sysconf("SC_CLK_TCK"), held=12_288, processes=2, gpu=7,
    )  # fmt: skip
    assert expected == usage.read(77, relatives=[78], gpu={77: 3, 78: 4, 79: 5})
    alone = usage.read(77)
    assert alone is not None
    assert (6_144, 1, None) == (alone.held, alone.processes, alone.gpu)


def test_what_may_not_be_looked_at_counts_as_nothing_done(imitated: Path) -> None:
    """CPU time is still known."""
    (imitated / "stat").write_text(stat("R"))
    assert usage.progress(77) == usage.Progress(150, 0)
