"""Things that follow from each other, done in order."""

from __future__ import annotations

import pytest

from supervisord_llm.runtime.turn import Turn


def test_what_an_act_causes_is_done_after_it() -> None:
    """A nested act waits for the end of the one that caused it."""
    turn = Turn()
    done: list[str] = []

    def outer() -> None:
        turn(lambda: done.append("caused"))
        done.append("cause")

    turn(outer)
    assert done == ["cause", "caused"]


def test_a_broken_act_does_not_cost_the_others_their_effects() -> None:
    """Everything is done; then what broke is raised, and the next turn is a new one."""
    turn = Turn()
    done: list[str] = []

    def broken() -> None:
        turn(lambda: done.append("later"))
        raise ValueError("broken")

    with pytest.raises(ExceptionGroup) as caught:
        turn(broken)
    assert [type(error) for error in caught.value.exceptions] == [ValueError]
    turn(lambda: done.append("next"))
    assert done == ["later", "next"]
