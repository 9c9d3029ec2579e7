"""The state diagrams of the documentation are those of the tables."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from supervisord_llm.core import escalation, ledger, slot
from supervisord_llm.core.table import Cell, Table, ignored
from supervisord_llm.core.words import RequestState, SlotState
from tools import diagrams, generated


def table_of(machine: str) -> Table[Any, Any]:
    """A machine's table."""
    table: Table[Any, Any] = importlib.import_module(f"supervisord_llm.core.{machine}").TABLE
    return table


@pytest.fixture
def spoil() -> Iterator[Any]:
    """Put a wrong cell into a table for the length of a test."""
    right: list[tuple[Table[Any, Any], Any, Cell]] = []

    def put(table: Table[Any, Any], key: Any, cell: Cell) -> None:
        right.append((table, key, table.cells[key]))
        table.cells[key] = cell

    yield put
    for table, key, cell in reversed(right):
        table.cells[key] = cell


def test_the_diagrams_are_those_of_the_tables() -> None:
    """Whoever changes where a table goes draws the diagrams anew, with ``make docs``."""
    text = diagrams.DOCUMENT.read_text(encoding="utf-8")

    assert diagrams.document(text) == text


def test_check_says_whether_they_are() -> None:
    """``--check`` passes when the document is right, and changes nothing."""
    before = diagrams.DOCUMENT.stat().st_mtime_ns

    result = CliRunner().invoke(diagrams.main, ["--check"])

    assert 0 == result.exit_code
    assert before == diagrams.DOCUMENT.stat().st_mtime_ns


@pytest.mark.parametrize(
    ("table", "key"),
    [
        (slot.TABLE, (SlotState.PARKED, slot.StartAsked)),
        (ledger.TABLE, (RequestState.HELD, ledger.Released)),
        (escalation.TABLE, (escalation.Kind.KILLING, escalation.Exited)),
    ],
)
def test_another_table_makes_another_diagram(
    spoil: Any, table: Table[Any, Any], key: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An event that is suddenly ignored loses its place on an arrow, and the check fails."""
    copy = tmp_path / "how-it-works.md"
    copy.write_bytes(diagrams.DOCUMENT.read_bytes())
    monkeypatch.setattr(diagrams, "DOCUMENT", copy)
    spoil(table, key, ignored)

    result = CliRunner().invoke(diagrams.main, ["--check"])

    assert 1 == result.exit_code
    assert "run `make docs`" in result.output
    assert generated.ROOT.joinpath("docs", "how-it-works.md").read_bytes() == copy.read_bytes()


@pytest.mark.parametrize("machine", diagrams.MACHINES)
def test_every_state_is_drawn_and_can_be_reached(machine: str) -> None:
    """From where a machine begins, its arrows lead to each of its states."""
    table, samples = table_of(machine), diagrams.samples_of(machine)
    drawn = diagrams.arrows(table, samples)
    reached = {kind.value for kind in diagrams.entries_of(machine, samples)}
    for _ in table.kinds:
        reached |= {arrow.end for arrow in drawn if arrow.start in reached}

    assert {kind.value for kind in table.kinds} == reached


def test_a_quarantined_worker_never_serves_again() -> None:
    """Out of quarantine leads only the end of the process."""
    drawn = diagrams.arrows(slot.TABLE, diagrams.samples_of("slot"))

    events = {event for each in drawn if each.start == "quarantined" for event in each.events}
    assert {"gone"} == events


def test_a_document_without_the_place_for_a_diagram_is_refused() -> None:
    """A marker that was lost in editing is missed, not passed over."""
    with pytest.raises(click.ClickException, match="cannot find where slot diagram belongs"):
        generated.replace_part("<!-- begin other: -->\n<!-- end other -->", "slot diagram", "")
