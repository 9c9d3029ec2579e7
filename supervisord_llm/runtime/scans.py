"""One look at all processes, shared by the workers that want one in the same moment.

Every worker looks for its descendants now and then. A look of its own for each of 64 workers reads
every process of the machine 64 times, and each worker's environment 63 times; it was most of what
an idle daemon did. Looks before a signal do not come here: those must be fresh.
"""

from __future__ import annotations

from collections.abc import Callable

from supervisord_llm.host import tree

MOST_AGE = 2.5
"""Seconds that a look is good for."""


class Look:
    """All processes as they were at a moment; the marks are read when they are asked for."""

    def __init__(self, at: float) -> None:
        """Look now; ``at`` is the time."""
        self.at = at
        self.processes = tree.scan()
        self._marks: dict[int, str | None] = {}

    def mark_of(self, pid: int) -> str | None:
        """The mark in a process's environment, as `tree.mark_of` reads it."""
        if pid not in self._marks:
            self._marks[pid] = tree.mark_of(pid)
        return self._marks[pid]


class Scans:
    """The latest look, for those to whom it is fresh enough."""

    def __init__(self, now: Callable[[], float]) -> None:
        """Nothing has been looked at; ``now`` is the clock, in seconds."""
        self._now = now
        self._latest: Look | None = None

    def look(self, *, since: float) -> Look:
        """A look that is at most `MOST_AGE` old and not older than ``since``."""
        now = self._now()
        if self._latest is None or self._latest.at < max(since, now - MOST_AGE):
            self._latest = Look(now)
        return self._latest
