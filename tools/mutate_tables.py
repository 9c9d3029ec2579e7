"""Break every cell of the core's tables, one at a time, and expect a test to notice.

A test suite that passes says nothing about what it would let pass. Each machine's table is a
dictionary of cells, so that a cell can be exchanged at run time: for each one, in turn, this tool
puts a wrong one in its place, runs the machine's tests, and puts it back. What no test noticed is
printed, and the exit status is 1.

The wrong cells are:

- ``ignored`` and ``illegal``;
- every other row's cell for the same event, which is what a slip in the table would be;
- the right move without one of its effects, for each of them, and with its effects in reverse;
- the right effects without the change of kind, and without any change of the state.

A mutant is left out by rule where it is the same cell by construction: the same function, no effect
to drop, no change to suppress. What a cell does is learnt from the golden samples. The few pairs of
cells that are the same for another reason are listed with it in `EQUIVALENT`.

Tests are called as functions, the golden table first, and the first failure decides; starting
pytest for each of a thousand mutants would take an hour instead of seconds. The general mutation
testers were not taken for the same reason, and because they change operators and constants, while
what has to be watched here is the table.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import msgspec
import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from supervisord_llm.core import cancellation, slot  # noqa: E402
from supervisord_llm.core.table import Cell, Table, ignored, illegal  # noqa: E402
from supervisord_llm.core.words import SlotState  # noqa: E402
from supervisord_llm.errors import InternalError  # noqa: E402

MACHINES = ("ledger", "cancellation", "escalation", "slot")

EQUIVALENT: dict[tuple[Cell, Cell], str] = {
    (illegal, slot.TABLE.cells[SlotState.READY, slot.Assigned]): (
        "it asks whether the slot takes work, which is no in every row but ready and busy"
    ),
    (ignored, cancellation.TABLE.cells[cancellation.Kind.ASKED, cancellation.Terminal]): (
        "it ends a cancellation without effects, and only a cancellation that is over ignores that"
    ),
}
"""Right cell and wrong cell that no state can tell apart, and why."""

Test = Callable[[], None]
Key = tuple[Enum, type]


class Mutant(msgspec.Struct, frozen=True):
    """A wrong cell for one place of a table."""

    key: Key
    title: str
    cell: Cell

    def __str__(self) -> str:
        kind, event = self.key
        return f"{kind.value}/{event.__name__}: {self.title}"


class Habits(msgspec.Struct, frozen=True):
    """What a cell does with the golden samples."""

    effects: int = 0
    """The most effects of any of its moves."""
    changes_kind: bool = False
    changes_state: bool = False


def habits_of(cell: Cell, samples: Sequence[tuple[Any, object]]) -> Habits:
    """Learn what a cell does from the states and events that it is shown."""
    habits = Habits()
    for state, event in samples:
        try:
            after, effects = cell(state, event)
        except InternalError:
            continue
        habits = Habits(
            max(habits.effects, len(effects)),
            habits.changes_kind or after.kind is not state.kind,
            habits.changes_state or after != state,
        )
    return habits


def mutants(table: Table[Any, Any], samples: Sequence[tuple[Any, object]]) -> Iterator[Mutant]:
    """Every way to break a table's cells that is not the same cell by construction."""
    for key, cell in table.cells.items():
        kind, event = key
        column = {
            other.__name__: other
            for (row, column), other in table.cells.items()
            if column is event and row is not kind
        }
        for name, other in {"ignored": ignored, "illegal": illegal, **column}.items():
            if other is not cell and (cell, other) not in EQUIVALENT:
                yield Mutant(key, f"replaced by {name}", other)
        shown = [(s, e) for s, e in samples if s.kind is kind and type(e) is event]
        habits = habits_of(cell, shown)
        for index in range(habits.effects):
            yield Mutant(key, f"without effect {index + 1}", _without_effect(cell, index))
        if habits.effects > 1:
            yield Mutant(key, "with its effects in reverse", _in_reverse(cell))
        if habits.changes_kind:
            yield Mutant(key, "keeps its kind", _keeping_kind(cell))
        if habits.changes_state and habits.effects:
            yield Mutant(key, "keeps its state", _keeping_state(cell))


def _without_effect(cell: Cell, index: int) -> Cell:
    def mutant(state: Any, event: Any) -> Any:
        after, effects = cell(state, event)
        return after, effects[:index] + effects[index + 1 :]

    return mutant


def _in_reverse(cell: Cell) -> Cell:
    def mutant(state: Any, event: Any) -> Any:
        after, effects = cell(state, event)
        return after, effects[::-1]

    return mutant


def _keeping_kind(cell: Cell) -> Cell:
    def mutant(state: Any, event: Any) -> Any:
        after, effects = cell(state, event)
        return msgspec.structs.replace(after, kind=state.kind), effects

    return mutant


def _keeping_state(cell: Cell) -> Cell:
    def mutant(state: Any, event: Any) -> Any:
        return state, cell(state, event)[1]

    return mutant


def tests_of(module: ModuleType) -> list[Test]:
    """A module's tests that need no arguments, in the order in which they are written.

    A ``@given`` test is one of them: hypothesis hides the arguments that it fills.
    """
    return [
        function
        for name, function in vars(module).items()
        if name.startswith("test_")
        and inspect.isfunction(function)
        and not inspect.signature(function).parameters
    ]


def is_noticed(table: Table[Any, Any], mutant: Mutant, tests: Sequence[Test]) -> bool:
    """Whether one of the tests fails with the mutant in its place."""
    right = table.cells[mutant.key]
    table.cells[mutant.key] = mutant.cell
    try:
        return not all(_passes(test) for test in tests)
    finally:
        table.cells[mutant.key] = right


def _passes(test: Test) -> bool:
    # Hypothesis tells at length how to reproduce what is broken on purpose here.
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            test()
        except (Exception, pytest.fail.Exception):  # noqa: BLE001 - each way to fail counts
            return False
    return True


def survivors(table: Table[Any, Any], golden: ModuleType, tests: Sequence[Test]) -> list[Mutant]:
    """The mutants of a table that none of the tests notices.

    Raises:
        click.ClickException: if a test fails although nothing is broken.
    """
    for test in tests:
        if not _passes(test):
            raise click.ClickException(
                f"cannot break the {table.name} table: {test.__module__}.{test.__name__} fails "
                "already; run it with pytest and mend it first"
            )
    samples = [(sample.state, event) for sample in golden.SAMPLES for event in sample.answers]
    return [mutant for mutant in mutants(table, samples) if not is_noticed(table, mutant, tests)]


def _check(machine: str) -> int:
    started = time.monotonic()
    table: Table[Any, Any] = importlib.import_module(f"supervisord_llm.core.{machine}").TABLE
    golden = importlib.import_module(f"tests.core.test_{machine}_table")
    properties = importlib.import_module(f"tests.core.test_{machine}")
    samples = [(sample.state, event) for sample in golden.SAMPLES for event in sample.answers]
    total = sum(1 for _ in mutants(table, samples))
    left = survivors(table, golden, [*tests_of(golden), *tests_of(properties)])
    for mutant in left:
        click.echo(f"no test notices {machine} {mutant}")
    seconds = time.monotonic() - started
    click.echo(f"{machine}: {len(table.cells)} cells, {total} mutants, {len(left)} unnoticed, "
               f"{seconds:.1f} s")  # fmt: skip
    return len(left)


@click.command()
@click.argument("machines", nargs=-1, type=click.Choice(MACHINES))
def main(machines: tuple[str, ...]) -> None:
    """Break every cell of the given MACHINES' tables, or of all."""
    hypothesis = importlib.import_module("hypothesis")
    # Nothing is learnt for the next run from what was broken on purpose.
    hypothesis.settings.register_profile(
        "mutants", deadline=None, max_examples=20, database=None, derandomize=True
    )
    hypothesis.settings.load_profile("mutants")
    unnoticed = sum(_check(machine) for machine in machines or MACHINES)
    sys.exit(1 if unnoticed else 0)


if __name__ == "__main__":
    main()
