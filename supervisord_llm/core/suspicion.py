"""Whether it is still the prompts that end the workers, or the workers end with whatever they get.

A request that ended two workers is suspect, and their ends count against no slot. That is right for
a few poisonous prompts among others. But where each prompt ends its workers and none gets as far as
a first token, no prompt is to blame: the pool would load workers for ever and never park. So after
`MOST_PROMPTS` different suspects without any output in between, ends count against the slots again,
until a worker shows that it can produce something.

The same prompt sent again is no further evidence, however often it is sent.
"""

from __future__ import annotations

import msgspec

MOST_PROMPTS = 3
"""How many different prompts in a row may be held to be poisonous."""


class State(msgspec.Struct, frozen=True):
    """What has been seen of a pool since one of its workers last produced something."""

    suspects: frozenset[int] = frozenset()
    """The digests of prompts that ended their workers; at most `MOST_PROMPTS`."""


def may_be_charged(state: State, prompt: int) -> bool:
    """Whether the end of a worker may be held against a request with this prompt."""
    return prompt in state.suspects or len(state.suspects) < MOST_PROMPTS


def convicted(state: State, prompt: int) -> State:
    """A request with this prompt ended as a suspect."""
    if not may_be_charged(state, prompt):
        return state
    return State(state.suspects | {prompt})


def produced(_state: State) -> State:
    """A worker produced output, or completed a request without any."""
    return State()
