"""``python -m bench``: measures, prints a table, and writes everything as JSON."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import click
import msgspec
from rich.console import Console

from bench import footprint, front, latency, machine, streaming
from bench.figures import Figure, Report, table
from bench.processes import BenchError
from bench.sizes import FULL, QUICK, Sizes

SECTIONS: dict[str, Callable[[Path, Sizes], Iterator[Figure]]] = {
    "saturated": streaming.saturated,
    "paced": streaming.paced,
    "first-token": latency.first_token,
    "cancel": latency.cancel,
    "stopped": latency.stopped,
    "start": footprint.start,
    "idle": footprint.idle,
    "http": front.http,
}

RESULTS = Path("build/bench")


@click.command()
@click.argument("sections", nargs=-1, type=click.Choice([*SECTIONS]))
@click.option("--quick", is_flag=True, help="Fewer samples: a look, not a measurement.")
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help=f"Where the JSON goes; else a new file in {RESULTS}.",
)
def main(sections: tuple[str, ...], *, quick: bool, output: Path | None) -> None:
    """Measure SECTIONS, or all of them, each against its floor in the same run."""
    sizes = QUICK if quick else FULL
    here = machine.describe()
    told = Console(stderr=True)
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        for name in sections or SECTIONS:
            told.print(f"{name} … (load {os.getloadavg()[0]:.1f})")
            try:
                for figure in SECTIONS[name](Path(folder), sizes):
                    figures.append(figure)
                    told.print(f"  {figure.name}: {figure.measured.p50:,.4g} {figure.unit}")
            except (BenchError, OSError) as error:
                raise click.ClickException(f"cannot measure {name}: {error}") from error
    if output is None:
        output = RESULTS / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"
    output.parent.mkdir(parents=True, exist_ok=True)
    report = Report(machine=here, sizes=msgspec.structs.asdict(sizes), figures=figures)
    output.write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")
    width = None if sys.stdout.isatty() else 200
    shown = Console(width=width)
    shown.print(
        f"{here.cpu}, {here.cores} cores, {here.memory_mib:,} MiB; {here.kernel}, "
        f"Python {here.python}; load {here.load:g} at the start",
        highlight=False,
    )
    shown.print(table(figures))
    shown.print(f"JSON: {output}", highlight=False)


if __name__ == "__main__":
    main()
