"""Draw the state diagrams of ``docs/how-it-works.md`` from the core's tables.

    python -m tools.diagrams [--check]

An arrow is a step that a table takes: each machine is shown the states and events of its golden
samples, which go through every cell of the table, and a move to another state is drawn with the
event that caused it. So an arrow cannot be there that the table does not take, and one that it
takes cannot be missing unless no sample shows it.

Reading the arrows off the cells' source was not taken: a cell is a function, and where it goes may
depend on more than the row and the column.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any

import click
import msgspec

from supervisord_llm.core import cancellation
from supervisord_llm.core.effects import Elapsed
from supervisord_llm.core.table import Table
from supervisord_llm.errors import InternalError
from tools.generated import ROOT, replace_part, settle

DOCUMENT = ROOT / "docs" / "how-it-works.md"
MACHINES = ("ledger", "slot", "cancellation", "escalation")
_WIDTH = 3
"""Events on one line of an arrow's label."""


class Arrow(msgspec.Struct, frozen=True, order=True):
    """A move from one state to another."""

    start: str
    end: str
    events: tuple[str, ...]
    """What causes it, in the table's order."""


def event_name(event: object) -> str:
    """An event as a label says it: ``CancelAsked`` is "cancel asked", a timer is named."""
    if isinstance(event, Elapsed):
        return f"{event.timer.value} elapsed"
    words = re.findall(r"[A-Z][a-z]*", type(event).__name__)
    return " ".join(words).lower()


def arrows(table: Table[Any, Any], samples: Sequence[tuple[Any, object]]) -> list[Arrow]:
    """Every move between two states that the samples show, in the order of the table's rows."""
    moves: dict[tuple[Enum, Enum], dict[str, None]] = {}
    for event_type in table.events:
        for state, event in samples:
            if type(event) is not event_type:
                continue
            try:
                after, _ = table.step(state, event)
            except InternalError:
                continue
            if after.kind is not state.kind:
                moves.setdefault((state.kind, after.kind), {})[event_name(event)] = None
    kinds = list(table.kinds)
    return [
        Arrow(start.value, end.value, tuple(moves[start, end]))
        for start in kinds
        for end in kinds
        if (start, end) in moves
    ]


def diagram(table: Table[Any, Any], entries: Sequence[Enum], drawn: Sequence[Arrow]) -> str:
    """The machine as a state diagram in Mermaid's language, fenced for Markdown.

    Args:
        table: the machine.
        entries: the states in which it can begin.
        drawn: its moves.
    """
    left = {arrow.start for arrow in drawn}
    lines = ["stateDiagram-v2"]
    lines += [f"    [*] --> {entry.value}" for entry in entries]
    lines += [f"    {arrow.start} --> {arrow.end} : {_label(arrow.events)}" for arrow in drawn]
    lines += [f"    {kind.value} --> [*]" for kind in table.kinds if kind.value not in left]
    return "\n".join(["```mermaid", *lines, "```", ""])


def _label(events: Sequence[str]) -> str:
    lines = [", ".join(events[at : at + _WIDTH]) for at in range(0, len(events), _WIDTH)]
    return ",<br>".join(lines)


def entries_of(machine: str, samples: Sequence[tuple[Any, object]]) -> list[Enum]:
    """The states in which a machine can begin."""
    if machine == "cancellation":
        return list(_cancellation_entries(samples))
    state: Any = importlib.import_module(f"supervisord_llm.core.{machine}").State
    return [field.default for field in msgspec.structs.fields(state) if field.name == "kind"]


def _cancellation_entries(samples: Sequence[tuple[Any, object]]) -> Iterator[Enum]:
    terms = samples[0][0].terms
    for changes in (
        {"cancellable": True},
        {"cancellable": False, "on_uncancellable": "detach"},
        {"cancellable": False, "on_uncancellable": "terminate"},
    ):
        begun = msgspec.structs.replace(terms, **changes)
        state, _ = cancellation.begin(0.0, begun, decoding=True)
        yield state.kind


def samples_of(machine: str) -> list[tuple[Any, object]]:
    """The states and events of a machine's golden table."""
    golden = importlib.import_module(f"tests.core.test_{machine}_table")
    return [(sample.state, event) for sample in golden.SAMPLES for event in sample.answers]


def draw(machine: str) -> str:
    """One machine's diagram as the document has it."""
    table: Table[Any, Any] = importlib.import_module(f"supervisord_llm.core.{machine}").TABLE
    samples = samples_of(machine)
    return diagram(table, entries_of(machine, samples), arrows(table, samples))


def document(text: str) -> str:
    """The document with its diagrams drawn anew."""
    for machine in MACHINES:
        text = replace_part(text, f"{machine} diagram", draw(machine))
    return text


@click.command()
@click.option("--check", is_flag=True, help="Change nothing; fail if a diagram is out of date.")
def main(*, check: bool) -> None:
    """Draw the state diagrams of docs/how-it-works.md from the core's tables."""
    wanted = document(DOCUMENT.read_text(encoding="utf-8"))
    sys.exit(0 if settle(DOCUMENT, wanted, check=check) else 1)


if __name__ == "__main__":
    main()
