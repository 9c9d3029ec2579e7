"""How the shared nouns are written."""

from __future__ import annotations

import pytest

from supervisord_llm.core.words import ExitCause, ExitKind, Generation


def test_a_generation_is_written_as_slot_and_number() -> None:
    """The form that a worker finds in its environment."""
    assert "smollm.0/3" == str(Generation("smollm.0", 3))


def test_generations_of_a_slot_are_ordered_by_number() -> None:
    """Ten comes after nine, not after one."""
    assert Generation("smollm.0", 9) < Generation("smollm.0", 10)


@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        (ExitCause(ExitKind.EXIT, 3), "exit:3"),
        (ExitCause(ExitKind.EXIT, 0), "exit:0"),
        (ExitCause(ExitKind.SIGNAL, 9, "SIGKILL"), "signal:SIGKILL"),
        (ExitCause(ExitKind.SIGNAL, 40), "signal:40"),
        (ExitCause(ExitKind.CORE_DUMPED, 6, "SIGABRT"), "core_dumped:SIGABRT"),
        (ExitCause(ExitKind.OOM_KILLED, 9, "SIGKILL"), "oom_killed"),
    ],
)
def test_an_exit_cause_is_written_as_kind_and_value(cause: ExitCause, expected: str) -> None:
    """The status, the signal's name, or its number where it has none."""
    assert expected == str(cause)
