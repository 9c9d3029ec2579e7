"""``python -m tools.reference [--check]``: write the reference, or see that it is up to date."""

from __future__ import annotations

import sys

import click

from tools.generated import ROOT, settle
from tools.reference import markdown
from tools.reference.commands import commands
from tools.reference.configuration import configuration
from tools.reference.control_api import control_api
from tools.reference.event_log import event_log
from tools.reference.metrics import metrics
from tools.reference.words import word_lists

DOCUMENT = ROOT / "docs" / "reference.md"

_CONTENTS = ("Configuration", "Commands", "Routes", "Events", "Metrics", "Words")


def reference() -> str:
    """The whole document."""
    contents = ", ".join(f"[{title}](#{title.lower()})" for title in _CONTENTS)
    sections = (configuration(), commands(), control_api(), event_log(), metrics(), word_lists())
    head = markdown.section(
        1,
        "Reference",
        "<!-- Made from the code by `make docs`; do not edit. -->",
        f"{contents}.",
    )
    return "\n".join((head, *sections))


@click.command()
@click.option("--check", is_flag=True, help="Change nothing; fail if the document is out of date.")
def main(*, check: bool) -> None:
    """Write docs/reference.md from the code."""
    sys.exit(0 if settle(DOCUMENT, reference(), check=check) else 1)


if __name__ == "__main__":
    main()
