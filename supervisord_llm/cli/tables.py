"""Tables: coloured and fitted to the width at a terminal, plain columns everywhere else.

A plain table has the same columns every time, one line per row and one word per cell (but the
last), ``-`` where there is nothing, and is never cut, so that ``awk`` can live on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from rich.cells import cell_len
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


_GAP = "  "

Cell = str | int | Text | None


def render(
    columns: Sequence[Column], rows: Sequence[Sequence[Cell]], *, width: int | None
) -> Table | Text:
    """A table for a terminal of this many columns, or plain (``None``)."""
    texts = [[_text(cell) for cell in row] for row in rows]
    widths = [
        max(cell_len(column.title), *(row[index].cell_len for row in texts), 0)
        for index, column in enumerate(columns)
    ]
    if width is None:
        return Text("\n".join(_plain(columns, texts, widths)))
    return _fitted(columns, texts, widths, width)


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


def _fitted(
    columns: Sequence[Column],
    rows: Sequence[Sequence[Text]],
    widths: Sequence[int],
    width: int,
) -> Table:
    *fixed, last = widths
    # Only the last column, the free text, gives way when the terminal is narrow; in one that is too
    # narrow even so, the lines run over rather than lose a pid's last digit.
    least = sum(fixed) + len(_GAP) * len(fixed) + min(last, 20)
    table = Table(
        box=None,
        pad_edge=False,
        padding=(0, len(_GAP), 0, 0),
        header_style="bold",
        width=least if least > width else None,
    )
    for index, column in enumerate(columns):
        table.add_column(
            column.title,
            justify="right" if column.numeric else "left",
            min_width=None if index == len(fixed) else widths[index],
            overflow="fold",
        )
    for row in rows:
        table.add_row(*row)
    return table


def _plain(
    columns: Sequence[Column], rows: Sequence[Sequence[Text]], widths: Sequence[int]
) -> list[str]:
    lines = [[column.title for column in columns], *([cell.plain for cell in row] for row in rows)]
    padded = (
        _GAP.join(
            cell.rjust(width) if column.numeric else cell.ljust(width)
            for cell, width, column in zip(line, widths, columns, strict=True)
        )
        for line in lines
    )
    return [line.rstrip() for line in padded]
