"""A look at all processes that several workers share."""

from __future__ import annotations

import os

import pytest

from supervisord_llm.host import tree
from supervisord_llm.runtime.scans import MOST_AGE, Scans


class Time:
    """A clock that a test moves."""

    now = 100.0

    def __call__(self) -> float:
        """Seconds."""
        return self.now


def test_a_fresh_look_is_shared_and_an_old_one_replaced() -> None:
    """Within its age everybody gets the same look; afterwards there is a new one."""
    time = Time()
    scans = Scans(time)
    first = scans.look(since=0.0)
    time.now += MOST_AGE
    shared = scans.look(since=0.0)
    time.now += 0.001
    later = scans.look(since=0.0)
    assert (True, False) == (shared is first, later is first)
    assert (100.0, 100.0 + MOST_AGE + 0.001) == (first.at, later.at)


def test_whoever_looked_later_is_not_shown_an_older_look() -> None:
    """It would forget the processes that it has seen since."""
    time = Time()
    scans = Scans(time)
    first = scans.look(since=0.0)
    time.now += 0.5
    assert 100.5 == scans.look(since=100.2).at
    assert first is not scans.look(since=0.0)


def test_a_look_holds_the_processes_and_reads_a_mark_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment is read when it is first asked for, and not again."""
    read: list[int] = []

    def mark_of(pid: int) -> str:
        read.append(pid)
        return "sim.0/1"

    monkeypatch.setattr(tree, "mark_of", mark_of)
    look = Scans(Time()).look(since=0.0)
    assert ["sim.0/1"] * 2 == [look.mark_of(1), look.mark_of(1)]
    assert [1] == read
    assert tree.read(os.getpid()) is not None
    assert look.processes[os.getpid()].ppid == os.getppid()
