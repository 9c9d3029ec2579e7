"""The measurements run, on small sizes: what they measure is there and adds up."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from bench import __main__ as program
from bench import footprint, latency, streaming
from bench.sizes import QUICK

TINY = msgspec.structs.replace(
    QUICK,
    repeats=1,
    saturated_tokens=2000,
    paced_seconds=0.1,
    first_tokens=3,
    stopped_cancels=1,
    starts=1,
    idle_seconds=0.1,
)


def test_the_first_token_takes_longer_through_the_daemon(tmp_path: Path) -> None:
    """As many samples as asked for, each later than the floor's least."""
    [figure] = latency.first_token(tmp_path, TINY)
    assert figure.floor is not None
    assert (3, 3) == (figure.measured.count, figure.floor.count)
    assert figure.measured.least > figure.floor.least


def test_a_stopped_worker_is_answered_for_by_the_grace(tmp_path: Path) -> None:
    """Not before it; the target says whether soon after."""
    [figure] = latency.stopped(tmp_path, TINY)
    assert figure.floor is not None
    assert figure.measured.least >= latency.GRACE * 1000
    assert figure.floor.least >= latency.GRACE * 1000
    assert 1 == len(figure.targets)


def test_saturated_streams_are_counted(tmp_path: Path) -> None:
    """One stream and eight; the target is for one."""
    figures = list(streaming.saturated(tmp_path, TINY))
    assert [1, 0, 0, 0, 0, 0] == [len(figure.targets) for figure in figures]
    assert all(figure.measured.p50 > 0 for figure in figures)


def test_start_is_measured_from_the_first_moment(tmp_path: Path) -> None:
    """To start a daemon and a worker takes longer than the worker alone."""
    [figure] = footprint.start(tmp_path, TINY)
    assert figure.floor is not None
    assert figure.measured.p50 > figure.floor.p50


def test_the_program_prints_a_table_and_writes_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The named sections only, in the order in which they were named."""
    monkeypatch.setattr(program, "QUICK", TINY)
    output = tmp_path / "new" / "figures.json"
    done = CliRunner().invoke(
        program.main, ["--quick", "--output", str(output), "start", "first-token"]
    )
    assert 0 == done.exit_code, done.output
    report = msgspec.json.decode(output.read_bytes())
    assert ["start", "first token"] == [figure["section"] for figure in report["figures"]]
    assert 3 == report["sizes"]["first_tokens"]
    assert "to the first ready sim worker" in done.stdout
