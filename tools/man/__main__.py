"""``python -m tools.man FOLDER``: write the manual pages into a folder."""

from __future__ import annotations

from pathlib import Path

import click

from tools.man import pages


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
def main(folder: Path) -> None:
    """Write the manual pages; read one with ``man -l FILE``."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")
        click.echo(folder / name)


if __name__ == "__main__":
    main()
