"""``python -m tests.chaos``: trouble for some minutes, then the verdict, and figures."""

from __future__ import annotations

import os
import secrets
import sys
import tempfile
from pathlib import Path

import click

from tests.chaos.run import run
from tests.conftest import TEST_VARIABLE

_SHOWN = 20


@click.command()
@click.option("--seed", type=int, help="What chance begins with; a new one otherwise.")
@click.option("--minutes", type=click.FloatRange(min=0.05), default=1.0, show_default=True)
@click.option(
    "--log",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Where the event log goes; else build/chaos/SEED.ndjson.",
)
def main(seed: int | None, minutes: float, log: Path | None) -> None:
    """Run a daemon under load with random faults, and judge its event log."""
    if seed is None:
        seed = secrets.randbelow(2**31)
    if log is None:
        log = Path("build/chaos") / f"{seed}.ndjson"
    log.parent.mkdir(parents=True, exist_ok=True)
    again = f"make chaos SEED={seed} MINUTES={minutes:g}"
    click.echo(f"{again} (log: {log})")
    os.environ[TEST_VARIABLE] = f"chaos-{os.getpid()}-{seed}"
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        result = run(seed, minutes * 60, Path(folder), log)
    for line in [*result.figures.lines(), *result.lines]:
        click.echo(line)
    for violation in result.violations[:_SHOWN]:
        click.echo(f"\nVIOLATION {violation.rule}: {violation.message}")
        for line in violation.lines:
            click.echo(f"  {line}")
    if result.violations:
        click.echo(f"\n{len(result.violations)} violations; to repeat: {again}")
        sys.exit(1)
    click.echo("no violation")


if __name__ == "__main__":
    main()
