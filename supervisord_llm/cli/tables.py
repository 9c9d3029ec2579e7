"""Tables: coloured and fitted to the width at a terminal, plain columns everywhere else.

A plain table has the same columns every time, one line per row and one word per cell (but the
last), ``-`` where there is nothing, and is never cut, so that ``awk`` can live on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from rich.table import Table
from rich.text import Text

from supervisord_llm.cli.output import printable
from supervisord_llm.core.words import SlotState

STATE_STYLES = {
    SlotState.STARTING: "blue",
    SlotState.READY: "green",
    SlotState.BUSY: "cyan",
    SlotState.CANCELLING: "yellow",
    SlotState.DRAINING: "yellow",
    SlotState.QUARANTINED: "red",
    SlotState.BACKOFF: "yellow",
    SlotState.PARKED: "bold red",
    SlotState.STOPPED: "dim",
}


class Column(msgspec.Struct, frozen=True):
    """One column; ``numeric`` ones are aligned to the right."""

    title: str
    numeric: bool = False


Cell = str | int | Text | None


def render(
    columns: Sequence[Column], rows: Sequence[Sequence[Cell]], *, fitted: bool
) -> Table | Text:
    """A table to print: ``fitted`` to a terminal, or plain."""
    texts = [[_text(cell) for cell in row] for row in rows]
    return _fitted(columns, texts) if fitted else Text("\n".join(_plain(columns, texts)))


def yes_no(*, value: bool) -> Text:
    """A condition that an operator wants to be true."""
    return Text("yes", style="green") if value else Text("no", style="red")


def states(counts: Mapping[SlotState, int]) -> Text:
    """How many slots are in which state, in one word: ``ready=2,parked=1``."""
    parts = [
        Text(f"{state}={counts[state]}", style=STATE_STYLES[state])
        for state in SlotState
        if counts.get(state)
    ]
    return Text(",").join(parts)


def _text(cell: Cell) -> Text:
    if isinstance(cell, Text):
        return cell if cell.plain else Text("-", style="dim")
    words = [] if cell is None else printable(str(cell)).split()
    return Text(" ".join(words)) if words else Text("-", style="dim")


def _fitted(columns: Sequence[Column], rows: Sequence[Sequence[Text]]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for index, column in enumerate(columns):
        table.add_column(
            column.title,
            justify="right" if column.numeric else "left",
            # Only the last column, the free text, gives way when the terminal is narrow.
            no_wrap=index < len(columns) - 1,
            overflow="fold",
        )
    for row in rows:
        table.add_row(*row)
    return table


def _plain(columns: Sequence[Column], rows: Sequence[Sequence[Text]]) -> list[str]:
    lines = [[column.title for column in columns], *([cell.plain for cell in row] for row in rows)]
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns))]
    padded = (
        "  ".join(
            cell.rjust(width) if column.numeric else cell.ljust(width)
            for cell, width, column in zip(line, widths, columns, strict=True)
        )
        for line in lines
    )
    return [line.rstrip() for line in padded]
