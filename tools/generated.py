"""Text in the documentation that a tool makes: written in place, or only compared.

A whole file, or the parts of a hand-written one that stand between two marker comments::

    <!-- begin NAME: made by TOOL; do not edit -->
    <!-- end NAME -->

The alternative, to generate at build time and keep nothing in the repository, was not taken: the
documentation is read where the repository is shown, and a reviewer sees there what a change of the
code means for the reader.
"""

from __future__ import annotations

import re
from pathlib import Path

import click

ROOT = Path(__file__).parents[1]


def replace_part(text: str, name: str, body: str) -> str:
    """The text with ``body`` between the two marker comments of ``name``.

    Raises:
        click.ClickException: if the markers are not there, once each and in order.
    """
    pattern = re.compile(
        rf"(?P<begin><!-- begin {name}:[^\n]*-->\n).*?(?P<end><!-- end {name} -->)", re.DOTALL
    )
    replaced, count = pattern.subn(lambda found: f"{found['begin']}{body}{found['end']}", text)
    if count != 1:
        raise click.ClickException(
            f"cannot find where {name} belongs; put it between `<!-- begin {name}: … -->` and "
            f"`<!-- end {name} -->`"
        )
    return replaced


def settle(path: Path, wanted: str, *, check: bool) -> bool:
    """Bring a file to what it should be; with ``check``, only say what is to be done.

    Returns whether the file is now (or was, with ``check``) as it should be.
    """
    present = path.read_text(encoding="utf-8") if path.exists() else ""
    if present == wanted:
        return True
    shown = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    if check:
        click.echo(f"{shown} is not what the code says; run `make docs`", err=True)
        return False
    path.write_text(wanted, encoding="utf-8")
    click.echo(f"wrote {shown}", err=True)
    return True
