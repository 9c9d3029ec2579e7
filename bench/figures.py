"""Figures, their spread and their targets; as a table for people and as JSON for programs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import median

import msgspec
from rich.table import Table

from bench.machine import Machine


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """What some samples of one quantity were."""

    count: int
    least: float
    p50: float
    p95: float
    p99: float
    most: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> Spread:
        """Summarize at least one sample. Raises ``ValueError`` if there is none."""
        if not samples:
            raise ValueError("cannot summarize no samples; measure something first")
        ordered = sorted(samples)
        return cls(
            count=len(ordered),
            least=ordered[0],
            p50=median(ordered),
            p95=_nearest_rank(ordered, 0.95),
            p99=_nearest_rank(ordered, 0.99),
            most=ordered[-1],
        )


def _nearest_rank(ordered: Sequence[float], share: float) -> float:
    """The smallest sample that at least ``share`` of all samples do not exceed."""
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)]


class Target(msgspec.Struct, frozen=True):
    """What a figure is held to, and whether it holds."""

    text: str
    met: bool


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One row: a quantity of the daemon, and of the least that could be done."""

    section: str
    name: str
    unit: str
    measured: Spread
    floor: Spread | None = None
    ratio: Spread | None = None
    """Of the turns' own ratios, where floor and daemon took turns."""
    targets: list[Target] = []


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A whole run."""

    machine: Machine
    sizes: dict[str, float]
    figures: list[Figure]


def paired(measured: Sequence[float], floor: Sequence[float]) -> Spread:
    """The ratios of turns that belong together."""
    return Spread.of([ours / theirs for ours, theirs in zip(measured, floor, strict=True)])


def held(what: str, value: float, most: float, unit: str) -> Target:
    """A target that ``value`` must not exceed."""
    return Target(f"{what} ≤ {most:g}{unit}", value <= most)


def table(figures: Sequence[Figure]) -> Table:
    """Lay the figures out; ``—`` where there is nothing to show."""
    made = Table(box=None, pad_edge=False)
    for heading in ("measured", "unit"):
        made.add_column(heading)
    for heading in ("n", "median", "p95", "p99", "least–most", "floor", "ratio"):
        made.add_column(heading, justify="right")
    made.add_column("target")
    for figure in figures:
        spread = figure.measured
        made.add_row(
            f"{figure.section}: {figure.name}",
            figure.unit,
            str(spread.count),
            short(spread.p50),
            _if_many(spread, lambda it: it.p95),
            _if_many(spread, lambda it: it.p99),
            f"{short(spread.least)}–{short(spread.most)}",
            "—" if figure.floor is None else short(figure.floor.p50),
            "—" if figure.ratio is None else f"{figure.ratio.p50:.2f}",
            ", ".join(f"{each.text}: {'met' if each.met else 'MISSED'}" for each in figure.targets)
            or "—",
        )
    return made


def _if_many(spread: Spread, take: Callable[[Spread], float]) -> str:
    """A high percentile means something from some dozens of samples on."""
    return short(take(spread)) if spread.count >= 20 else "—"


def short(value: float) -> str:
    """Three digits that matter, whole numbers in full."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    digits = 2 - math.floor(math.log10(abs(value)))
    return f"{value:,.{max(digits, 0)}f}"
