"""What the days of chaos rest on: directives that mean something, answers that can be wrong."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from supervisord_llm.config.load import load
from supervisord_llm.core.words import CancelledBy, Outcome, Resolution
from supervisord_llm.events import (
    CancelRequested,
    CancelSettled,
    RequestAccepted,
    RequestFinished,
    WorkerParked,
)
from tests.chaos import faults, figures, settings
from tests.chaos.checks import agree
from tests.chaos.log import make
from tests.chaos.operators import FILES
from tests.harness import SCRIPTS


def test_every_directive_is_one_that_the_worker_knows() -> None:
    """A fault that is misspelt would be an ordinary refusal, and nobody would see it."""
    shown = subprocess.run(
        [SCRIPTS / "sllm-sim-worker", "--help"], capture_output=True, text=True, check=True
    )
    lines = [line.strip() for line in shown.stdout.splitlines()]
    known = {line.partition("=")[0] for line in lines if "(option only)" not in line}
    words = [word for line in (*faults.FAULTS, *faults.ENDLESS) for word in line.split()]
    assert {word.removeprefix("sim.").partition("=")[0] for word in words} <= known


def test_the_same_seed_asks_for_the_same() -> None:
    """And another one for something else."""

    def asked(seed: int) -> list[faults.Prompt]:
        random = Random(seed)
        return [faults.any_(random, faulty=0.3, endless=0.2) for _ in range(200)]

    assert asked(1) == asked(1)
    assert asked(1) != asked(2)
    assert 0 < sum(prompt.endless for prompt in asked(1)) < 100


@pytest.mark.parametrize("text", ["", "t0 ", "t0 t1 t2", "t0 t1 t2 "])
def test_the_beginning_of_an_answer_is_one(text: str) -> None:
    """However far it got."""
    assert faults.answers(text)


@pytest.mark.parametrize("text", ["t1", "t0 t0 ", "t0 t2 ", "t0 t1 t0 t1 ", "t0t1 ", "x"])
def test_pieces_twice_or_missing_are_noticed(text: str) -> None:
    """As a retry after output, or a lost batch, would leave them."""
    assert not faults.answers(text)


@pytest.mark.parametrize("changes", FILES)
def test_every_configuration_is_valid(tmp_path: Path, changes: settings.Changes) -> None:
    """Those that are to be refused are made so on purpose."""
    path = tmp_path / "daemon.toml"
    path.write_text(settings.text(tmp_path, changes))
    pools = load(path, {}).config.pool
    gone = {name for name, table in (changes or {}).items() if not table}
    assert set(settings.POOLS) - gone == set(pools)
    for name, table in (changes or {}).items():
        for key, value in table.items():
            if isinstance(value, int):
                assert value == getattr(pools[name], key)


def finished(request: str, outcome: Outcome) -> RequestFinished:
    """A terminal record."""
    by = CancelledBy.API if outcome is Outcome.CANCELLED else None
    return RequestFinished(
        pool="p", request=request, outcome=outcome, cancelled_by=by, queued_ms=0, total_ms=1
    )


def test_a_client_that_was_told_otherwise_is_found() -> None:
    """Another outcome, or one for a request that the log does not know."""
    log = [make(1, 0, finished("a", Outcome.COMPLETED)), make(2, 0, finished("b", Outcome.FAILED))]
    assert agree(log, {"a": "completed", "b": "failed"}) == []
    found = agree(log, {"a": "failed", "b": "failed", "c": "completed"})
    assert [each.message for each in found] == [
        "the client of a was told 'failed'",
        "the client of c was told 'completed'",
    ]


def test_figures_count_what_happened() -> None:
    """Requests, cancellations and workers by kind, and the longest waits."""
    told = [
        RequestAccepted(pool="p", request="a", queued=0),
        CancelRequested(pool="p", request="a", by=CancelledBy.API),
        finished("a", Outcome.CANCELLED),
        CancelSettled(pool="p", request="a", resolution=Resolution.KILLED, elapsed_ms=1),
        WorkerParked(pool="p", worker="p.0", generation=1, reason="r", exit=None, restarts=9),
    ]
    made = figures.count([make(number, number * 1.5, event) for number, event in enumerate(told)])
    assert made.requests == Counter({"accepted": 1, "cancelled: api": 1})
    assert (made.cancellations, made.workers) == (Counter(killed=1), Counter(parked=1))
    assert (made.longest_answer, made.longest_settlement) == (1.5, 3.0)
    assert made.lines()[0] == "5 events"
    assert "requests: accepted 1, cancelled: api 1" in made.lines()
