"""What the measurements' own arithmetic says, and how it is shown."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from bench.figures import Figure, Spread, held, paired, short, table


def test_a_spread_names_samples_that_were_there() -> None:
    """Percentiles are samples by nearest rank; the median lies between two if it must."""
    spread = Spread.of([float(number) for number in range(100, 0, -1)])
    assert (100, 1.0, 50.5, 95.0, 99.0, 100.0) == (
        spread.count,
        spread.least,
        spread.p50,
        spread.p95,
        spread.p99,
        spread.most,
    )


def test_one_sample_is_all_of_its_spread() -> None:
    """Every percentile of a single sample is that sample."""
    assert Spread(count=1, least=7.0, p50=7.0, p95=7.0, p99=7.0, most=7.0) == Spread.of([7.0])


def test_no_sample_has_no_spread() -> None:
    """A measurement that gave nothing is an error, not a zero."""
    with pytest.raises(ValueError, match="cannot summarize no samples"):
        Spread.of([])


def test_ratios_are_those_of_turns_that_belong_together() -> None:
    """A load that falls on both of a turn does not change its ratio."""
    assert 2.0 == paired([2.0, 20.0, 6.0], [1.0, 10.0, 3.0]).most
    with pytest.raises(ValueError, match="longer"):
        paired([1.0], [1.0, 2.0])


@pytest.mark.parametrize(("value", "expected"), [(5.0, True), (5.01, False)])
def test_a_target_is_met_up_to_its_limit(value: float, expected: bool) -> None:
    """The limit itself is still good."""
    target = held("p50", value, 5, " ms")
    assert ("p50 ≤ 5 ms", expected) == (target.text, target.met)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.0, "0"), (0.0412, "0.0412"), (1.5, "1.50"), (99.96, "100.0"), (1234567.8, "1,234,568")],
)
def test_numbers_are_shown_with_the_digits_that_matter(value: float, expected: str) -> None:
    """Three digits, or the whole number."""
    assert expected == short(value)


def test_the_table_shows_what_was_missed() -> None:
    """A row has its figure, its floor, their ratio and a verdict for each target."""
    figure = Figure(
        section="paced",
        name="1 stream",
        unit="ms",
        measured=Spread.of([4.0]),
        floor=Spread.of([2.0]),
        ratio=Spread.of([2.0]),
        targets=[held("ratio", 2.0, 1.6, ""), held("p50", 4.0, 5, " ms")],
    )
    console = Console(width=200, record=True, file=StringIO())
    console.print(table([figure]))
    [row] = [line for line in console.export_text().splitlines() if "paced" in line]
    assert (
        "paced: 1 stream ms 1 4.00 — — 4.00–4.00 2.00 2.00 ratio ≤ 1.6: MISSED, p50 ≤ 5 ms: met"
        == (" ".join(row.split()))
    )
