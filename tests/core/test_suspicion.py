"""When prompts stop being to blame for the ends of workers."""

from __future__ import annotations

from supervisord_llm.core import suspicion
from supervisord_llm.core.suspicion import MOST_PROMPTS, State


def convict(*prompts: int) -> State:
    """A pool that has seen these prompts end their workers, one after the other."""
    state = State()
    for prompt in prompts:
        state = suspicion.convicted(state, prompt)
    return state


def test_a_few_different_prompts_may_be_poisonous() -> None:
    """One more than that is not believed any more; those that were held to be so remain so."""
    known = range(MOST_PROMPTS)
    assert suspicion.may_be_charged(convict(*known[:-1]), 100)
    all_of_them = convict(*known)
    assert not suspicion.may_be_charged(all_of_them, 100)
    assert all(suspicion.may_be_charged(all_of_them, prompt) for prompt in known)


def test_the_same_prompt_again_is_no_further_evidence() -> None:
    """However often somebody sends it."""
    assert suspicion.may_be_charged(convict(*[7] * 100), 8)


def test_a_conviction_that_came_too_late_is_not_added() -> None:
    """Two suspects may end in the same moment: the set stays bounded."""
    assert convict(*range(100)) == convict(*range(MOST_PROMPTS))


def test_output_clears_the_workers() -> None:
    """A pool that produces something again may meet as many poisonous prompts again."""
    assert suspicion.produced(convict(*range(MOST_PROMPTS))) == State()
