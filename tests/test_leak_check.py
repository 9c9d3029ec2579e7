"""The check that every test ends what it started, tried on tests that do not."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from supervisord_llm.host import tree

ROOT = Path(__file__).parents[1]
HEAD = "import os, subprocess, sys, time\n"


def run(folder: Path, source: str) -> subprocess.CompletedProcess[str]:
    """Run a test file of its own under this project's conftest."""
    shutil.copy(ROOT / "tests" / "conftest.py", folder)
    (folder / "test_tried.py").write_text(HEAD + source)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"]
    command += ["--rootdir", str(folder), "-c", os.devnull, str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command,
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    "options", ["", ", start_new_session=True"], ids=["in the session", "in its own session"]
)
def test_a_running_descendant_fails_the_test_and_is_ended(tmp_path: Path, options: str) -> None:
    """A process that a test started and left is named, ended, and fails the test."""
    source = f"def test_it():\n    subprocess.Popen(['sleep', '300']{options})\n"
    result = run(tmp_path, source)
    found = re.search(r"left processes alive: (\d+) \(sleep 300\)", result.stdout)
    assert found is not None, result.stdout
    facts = tree.read(int(found.group(1)))
    assert facts is None or not facts.living


def test_an_orphan_is_found_by_the_variable(tmp_path: Path) -> None:
    """A process whose parent has gone descends from nobody, but carries the test's id."""
    source = (
        "def test_it():\n"
        "    subprocess.run(['sh', '-c', 'setsid sleep 300 >/dev/null 2>&1 &'], check=True)\n"
    )
    result = run(tmp_path, source)
    assert re.search(r"left processes alive: \d+ \(sleep 300\)", result.stdout), result.stdout


def test_a_test_that_reaps_what_it_started_passes(tmp_path: Path) -> None:
    """What ended by itself, a zombie included, is no leak."""
    source = (
        "def test_reaped():\n    subprocess.run(['true'], check=True)\n"
        "def test_zombie():\n"
        "    pid = os.posix_spawn('/bin/true', ['true'], os.environ)\n"
        "    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)\n"
    )
    result = run(tmp_path, source)
    assert result.returncode == 0, result.stdout


def test_an_open_descriptor_is_noticed(tmp_path: Path) -> None:
    """A test that asks for the check fails when it leaves a descriptor open."""
    source = "def test_it(no_fd_leak):\n    os.pipe()\n"
    result = run(tmp_path, source)
    assert "left descriptors open" in result.stdout
