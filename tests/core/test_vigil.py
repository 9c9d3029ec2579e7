"""Knowing slow from stuck."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisord_llm.core.vigil import Budgets, Verdict, Watch, judge
from supervisord_llm.core.words import Phase, QuarantineReason

BUDGETS = Budgets(load_timeout=600.0, load_stall=60.0, first_token_stall=30.0, token_stall=10.0)


@pytest.mark.parametrize(
    ("phase", "since", "sign_at", "now", "reason", "look_at"),
    [
        # A load that shows life goes on until its whole allowance is used up.
        (Phase.LOAD, 0.0, 0.0, 59.9, None, 60.0),
        (Phase.LOAD, 0.0, 0.0, 60.0, QuarantineReason.LOAD_STALLED, 60.0),
        (Phase.LOAD, 0.0, 50.0, 60.0, None, 110.0),
        (Phase.LOAD, 0.0, 590.0, 599.9, None, 600.0),
        (Phase.LOAD, 0.0, 600.0, 600.0, QuarantineReason.LOAD_TIMEOUT, 600.0),
        (Phase.LOAD, 0.0, 540.0, 600.0, QuarantineReason.LOAD_TIMEOUT, 600.0),
        # There is no total limit on a generation, only on silence.
        (Phase.PREFILL, 0.0, 0.0, 29.9, None, 30.0),
        (Phase.PREFILL, 0.0, 0.0, 30.0, QuarantineReason.FIRST_TOKEN_STALL, 30.0),
        (Phase.PREFILL, 0.0, 9000.0, 9001.0, None, 9030.0),
        (Phase.DECODE, 0.0, 0.0, 9.9, None, 10.0),
        (Phase.DECODE, 0.0, 0.0, 10.0, QuarantineReason.TOKEN_STALL, 10.0),
        (Phase.DECODE, 0.0, 9000.0, 9001.0, None, 9010.0),
    ],
)
def test_each_phase_has_its_own_silence(
    phase: Phase,
    since: float,
    sign_at: float,
    now: float,
    reason: QuarantineReason | None,
    look_at: float,
) -> None:
    """Stuck at the end of the budget and not before; the next look is then."""
    expected = Verdict(reason, look_at)
    assert expected == judge(Watch(phase, since, sign_at), BUDGETS, now)


budgets = st.builds(
    Budgets,
    load_timeout=st.floats(1.0, 1000.0),
    load_stall=st.floats(1.0, 100.0),
    first_token_stall=st.floats(1.0, 100.0),
    token_stall=st.floats(1.0, 100.0),
)


@given(
    phase=st.sampled_from(Phase),
    budgets=budgets,
    silence=st.floats(0.0, 200.0),
    signs_for=st.floats(0.0, 1000.0),
)
def test_the_time_of_the_next_look_is_the_time_of_the_verdict(
    phase: Phase, budgets: Budgets, silence: float, signs_for: float
) -> None:
    """Whoever looks only when told to misses nothing, and never looks in vain at that time."""
    watch = Watch(phase, 0.0, signs_for)
    verdict = judge(watch, budgets, signs_for + silence)
    if verdict.reason is None:
        assert signs_for + silence < verdict.look_at
        assert judge(watch, budgets, verdict.look_at).reason is not None
    else:
        assert signs_for + silence == verdict.look_at


@given(
    phase=st.sampled_from([Phase.PREFILL, Phase.DECODE]),
    budgets=budgets,
    age=st.floats(0.0, 1e6),
)
def test_a_worker_that_just_showed_life_is_never_stuck(
    phase: Phase, budgets: Budgets, age: float
) -> None:
    """However long its generation has taken."""
    assert judge(Watch(phase, 0.0, age), budgets, age).reason is None
