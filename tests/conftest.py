"""What holds for every test: it ends what it started, and hypothesis runs by a profile."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from supervisord_llm.host import tree

TEST_VARIABLE = "SUPERVISORD_LLM_TEST"
"""Carries the running test's id to what it starts.

A worker's environment is an allow-list: a pool in a test names this in its ``pass_env``, so that a
worker which outlives a killed daemon is noticed.
"""

_GRACE_SECONDS = 2.0
_numbers = itertools.count(1)

# No deadline for an example: the machine is shared. CI's examples are others each time.
settings.register_profile("dev", deadline=None, max_examples=50)
settings.register_profile("ci", deadline=None, max_examples=200, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if "CI" in os.environ else "dev"))


@pytest.fixture(autouse=True)
def leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The test's id, in its environment; afterwards nothing that it started may be alive.

    What lived before belongs to a fixture of a wider scope.
    """
    # Runs in parallel differ in the process, tests of one process in the number.
    identity = f"{os.getpid()}-{time.monotonic_ns()}-{next(_numbers)}"
    before = {(facts.pid, facts.start_time) for facts in _started_by_us(None)}
    monkeypatch.setenv(TEST_VARIABLE, identity)
    yield identity
    deadline = time.monotonic() + _GRACE_SECONDS
    while left := [
        facts for facts in _started_by_us(identity) if (facts.pid, facts.start_time) not in before
    ]:
        if time.monotonic() >= deadline:
            break
        time.sleep(0.01)
    if left:
        named = [f"{facts.pid} ({_command(facts.pid)})" for facts in left]
        for facts in left:
            tree.send_signal(facts.pid, facts.start_time, signal.SIGKILL)
        pytest.fail(f"the test left processes alive: {', '.join(named)}", pytrace=False)


@pytest.fixture
def no_fd_leak() -> Iterator[None]:
    """The test process has no descriptor open afterwards that it had not before."""
    before = open_descriptors()
    yield
    left = {fd: target for fd, target in open_descriptors().items() if before.get(fd) != target}
    if left:
        pytest.fail(f"the test left descriptors open: {left}", pytrace=False)


def _started_by_us(identity: str | None) -> list[tree.ProcessFacts]:
    """The living descendants of this process, and the processes that carry a test's id."""
    processes = tree.scan()
    found = tree.descendants(os.getpid(), processes)
    if identity is not None:
        entry = f"{TEST_VARIABLE}={identity}".encode()
        found |= {
            pid: facts
            for pid, facts in processes.items()
            if pid != os.getpid() and facts.living and entry in _environment(pid)
        }
    return [facts for facts in found.values() if facts.living]


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except OSError:
        return "gone meanwhile"


def open_descriptors() -> dict[int, str]:
    """What this process has open, by number."""
    found = {}
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the one that lists the folder
            found[int(link.name)] = str(link.readlink())
    return found
