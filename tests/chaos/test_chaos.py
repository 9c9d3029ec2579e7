"""A short day of chaos on each run of the tests; ``make chaos`` makes longer ones."""

from __future__ import annotations

import secrets
from pathlib import Path

from tests.chaos.run import run

SECONDS = 8.0
"""Of trouble; warming up, calming down and stopping take about as long again."""


def test_a_short_day_of_chaos_breaks_no_promise(tmp_path: Path, leaves_no_process: str) -> None:
    """Another one each time; the report of a failure names the command that repeats it."""
    seed = secrets.randbelow(2**31)
    result = run(seed, SECONDS, tmp_path, tmp_path / "log")
    told = [f"make chaos SEED={seed} MINUTES={SECONDS / 60:.2f}", *result.figures.lines()]
    told += result.lines
    told += [f"{each.rule}: {each.message} {each.lines}" for each in result.violations]
    assert not result.violations, "\n".join(told)
    assert result.figures.requests["completed"] > 0
    assert result.figures.workers["restarts"] > 0
