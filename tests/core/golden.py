"""Golden tables: what every cell of a machine answers, written as rows that a person can read.

A state is sampled directly, because random histories seldom climb to the deep ones; each sample
names the events that it is shown and what is expected of each. The comparison is of the whole next
state and of all effects in their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

import msgspec

from supervisord_llm.core.table import Table
from supervisord_llm.errors import InternalError


class Goes(msgspec.Struct, frozen=True):
    """Expect a move to ``kind`` with these effects, and only ``changes`` in the state besides."""

    kind: Enum | None
    effects: tuple[object, ...]
    changes: dict[str, object]

    def next_state(self, state: Any) -> Any:
        """The expected next state."""
        changes = self.changes if self.kind is None else {"kind": self.kind, **self.changes}
        return msgspec.structs.replace(state, **changes)


class Cannot(msgspec.Struct, frozen=True):
    """Expect `InternalError`."""


Expected = Goes | Cannot


class Sample(msgspec.Struct, frozen=True):
    """One state, and what it answers to each event."""

    title: str
    state: Any
    answers: dict[object, Expected]


def goes(kind: Enum, *effects: object, **changes: object) -> Expected:
    """A move to another kind of state."""
    return Goes(kind, effects, changes)


def stays(*effects: object, **changes: object) -> Expected:
    """A move within the same kind of state."""
    return Goes(None, effects, changes)


def ignores(*events: object) -> dict[object, Expected]:
    """Each of these events is heard and changes nothing."""
    return dict.fromkeys(events, Goes(None, (), {}))


def cannot(*events: object) -> dict[object, Expected]:
    """None of these events can happen unless the shell has a bug."""
    return dict.fromkeys(events, Cannot())


def differences(table: Table[Any, Any], samples: Sequence[Sample]) -> list[str]:
    """Where a table answers otherwise than the samples say."""
    found: list[str] = []
    for sample in samples:
        for event, expected in sample.answers.items():
            wrong = _difference(table, sample.state, event, expected)
            if wrong is not None:
                found.append(f"{sample.title}, {event}: {wrong}")
    return found


def _difference(
    table: Table[Any, Any], state: Any, event: object, expected: Expected
) -> str | None:
    try:
        move = table.step(state, event)
    except InternalError as error:
        if isinstance(expected, Cannot):
            return None
        return f"expected a move, but: {error}"
    if isinstance(expected, Cannot):
        return f"expected InternalError, got {move}"
    wanted = (expected.next_state(state), expected.effects)
    return None if wanted == move else f"expected {wanted}, got {move}"


def unexamined(table: Table[Any, Any], samples: Sequence[Sample]) -> list[str]:
    """The cells of a table that no sample goes through."""
    seen = {(sample.state.kind, type(event)) for sample in samples for event in sample.answers}
    return sorted(f"{kind.value}/{event.__name__}" for kind, event in table.cells.keys() - seen)
