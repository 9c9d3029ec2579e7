"""A table cannot be built with a hole, and a cell that cannot happen raises."""

from __future__ import annotations

from enum import StrEnum

import msgspec
import pytest

from supervisord_llm.core import cancellation, escalation, ledger, slot
from supervisord_llm.core.table import Cell, Table, ignored, illegal
from supervisord_llm.errors import InternalError


class Kind(StrEnum):
    """A lamp is on or off."""

    ON = "on"
    OFF = "off"


class State(msgspec.Struct, frozen=True):
    """A lamp."""

    kind: Kind


class Press(msgspec.Struct, frozen=True):
    """Somebody presses the button."""


class Hold(msgspec.Struct, frozen=True):
    """Somebody holds the button down."""


def toggle(state: State, _event: Press) -> tuple[State, tuple[str, ...]]:
    """Change to the other kind, and say so."""
    return State(Kind.OFF if state.kind is Kind.ON else Kind.ON), ("click",)


ROWS: dict[Kind, dict[type, Cell]] = {
    Kind.ON: {Press: toggle, Hold: ignored},
    Kind.OFF: {Press: toggle, Hold: illegal},
}


def build(rows: dict[Kind, dict[type, Cell]]) -> Table[State, str]:
    """A lamp's table from these rows."""
    return Table("lamp", Kind, (Press, Hold), rows)


def test_a_step_is_what_the_cell_says() -> None:
    """A move, nothing, or an error that names the state and the event."""
    table = build(ROWS)
    assert (State(Kind.OFF), ("click",)) == table.step(State(Kind.ON), Press())
    assert (State(Kind.ON), ()) == table.step(State(Kind.ON), Hold())
    with pytest.raises(InternalError, match=r"^Hold cannot happen in state off$"):
        table.step(State(Kind.OFF), Hold())


def test_a_table_with_a_hole_cannot_be_built() -> None:
    """Every missing cell is named."""
    rows: dict[Kind, dict[type, Cell]] = {Kind.ON: {Press: toggle}}
    with pytest.raises(InternalError) as caught:
        build(rows)
    expected = "the lamp table has no cell for off/Hold, off/Press, on/Hold"
    assert expected == str(caught.value)


def test_a_table_with_a_cell_too_many_cannot_be_built() -> None:
    """It would be a cell that nobody can reach."""
    rows = {**ROWS, Kind.ON: {**ROWS[Kind.ON], int: ignored}}
    with pytest.raises(InternalError) as caught:
        build(rows)
    assert "the lamp table has unknown cells on/int" == str(caught.value)


@pytest.mark.parametrize(
    ("table", "cells"),
    [
        (ledger.TABLE, 84),
        (cancellation.TABLE, 24),
        (escalation.TABLE, 35),
        (slot.TABLE, 117),
    ],
)
def test_every_machine_answers_every_event_in_every_state(
    table: Table[ledger.State, object], cells: int
) -> None:
    """The count is written down so that a cell more or less is a change that somebody sees."""
    assert cells == len(table.cells)
    assert len(list(table.kinds)) * len(table.events) == len(table.cells)
