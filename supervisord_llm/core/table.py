"""The shape that every machine of the core has: a total table of (state kind, event) cells.

A cell is a function from the state and the event to the next state and the effects. A table with a
missing cell cannot be built: the hole is found when the module is imported, not at night. Two cells
are ready-made, `ignored` (heard, nothing changes) and `illegal` (our own bug, raises).

The alternative, a chain of ``match`` statements, was not taken: nobody can count its cells, and a
tool cannot break them one by one to see whether a test notices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Generic, Protocol, TypeVar

from supervisord_llm.errors import InternalError


class HasKind(Protocol):
    """What a state must offer: the row of the table it stands in."""

    @property
    def kind(self) -> Enum:
        """The row."""
        ...


S = TypeVar("S", bound=HasKind)
F = TypeVar("F")

Move = tuple[S, tuple[F, ...]]
"""A next state and the effects of getting there, to be performed in order."""

Cell = Callable[[Any, Any], Any]


def ignored(state: S, _event: object) -> tuple[S, tuple[()]]:
    """Heard, and nothing changes."""
    return state, ()


def illegal(state: HasKind, event: object) -> Any:
    """Cannot happen unless the shell has a bug.

    Raises:
        InternalError: always, naming the state and the event.
    """
    raise InternalError(f"{type(event).__name__} cannot happen in state {state.kind.value}")


class Table(Generic[S, F]):
    """A machine's cells; total by construction."""

    def __init__(
        self,
        name: str,
        kinds: type[Enum],
        events: tuple[type, ...],
        rows: Mapping[Any, Mapping[type, Cell]],
    ) -> None:
        """Build the table from rows of cells.

        Raises:
            InternalError: if a cell is missing, or a row or column is unknown.
        """
        self.name = name
        self.kinds = kinds
        self.events = events
        self.cells: dict[tuple[Enum, type], Cell] = {}
        for kind, row in rows.items():
            for event, cell in row.items():
                self.cells[kind, event] = cell
        wanted = {(kind, event) for kind in kinds for event in events}
        if missing := wanted - self.cells.keys():
            holes = sorted(f"{kind.value}/{event.__name__}" for kind, event in missing)
            raise InternalError(f"the {name} table has no cell for {', '.join(holes)}")
        if extra := self.cells.keys() - wanted:
            cells = sorted(f"{kind}/{event.__name__}" for kind, event in extra)
            raise InternalError(f"the {name} table has unknown cells {', '.join(cells)}")

    def step(self, state: S, event: object) -> Move[S, F]:
        """The next state and the effects, in the order in which they are to be performed.

        Raises:
            InternalError: if the cell says that this cannot happen.
        """
        move: Move[S, F] = self.cells[state.kind, type(event)](state, event)
        return move
