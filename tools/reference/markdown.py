"""Markdown, from text as docstrings have it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence


def prose(docstring: str | None) -> str:
    """A docstring as Markdown: literals in single backticks, and in JSON's words."""
    text = inspect.cleandoc(docstring or "")
    return re.sub(r"``(.+?)``", r"`\1`", text).replace("`None`", "`null`")


def line(docstring: str | None) -> str:
    """A docstring as one line of Markdown."""
    return " ".join(prose(docstring).split())


def code(text: str) -> str:
    """A literal; empty for nothing."""
    return f"`{text}`" if text else ""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; columns without any content are left out."""
    filled = [list(row) for row in rows]
    kept = [at for at in range(len(head)) if any(row[at] for row in filled)]
    lines = [_row([head[at] for at in kept]), "|" + "---|" * len(kept)]
    lines += [_row([row[at] for at in kept]) for row in filled]
    return "\n".join(lines) + "\n"


def _row(cells: Sequence[str]) -> str:
    # Within code, too, a bar would end the cell.
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def section(level: int, title: str, *parts: str) -> str:
    """A heading and what stands under it, each part a block of its own."""
    blocks = [f"{'#' * level} {title}", *(part.rstrip("\n") for part in parts if part)]
    return "\n\n".join(blocks) + "\n"
