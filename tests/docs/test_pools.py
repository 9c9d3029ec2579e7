"""The figures and words of the page about pools are those of the code."""

from __future__ import annotations

import re

import pytest

from supervisord_llm.config.launch import DATA_SLACK_MIN
from supervisord_llm.config.schema import Config
from supervisord_llm.config.schema_pool import PoolConfig, QueueConfig
from supervisord_llm.core import residency, suspicion
from supervisord_llm.core.queueing import __doc__ as queueing
from supervisord_llm.core.words import PlannedReason
from supervisord_llm.host.cgroups import headroom
from supervisord_llm.runtime.slot_driver import RECYCLE_JITTER
from supervisord_llm.schema.requests import PRIORITY_MAX, PRIORITY_MIN
from tools.generated import ROOT

PAGES = {name: (ROOT / "docs" / name).read_text(encoding="utf-8") for name in
         ("pools.md", "how-it-works.md")}  # fmt: skip
TEXT = " ".join(PAGES["pools.md"].split())
"""Without its line breaks, so that a sentence is found wherever it is broken."""

STEP = QueueConfig().age_step
"""The default of ``queue.age_step``."""


@pytest.mark.parametrize(
    "said",
    [
        f"a step of `priority` ({PRIORITY_MIN} to {PRIORITY_MAX}) is worth `queue.age_step`",
        f"*({PRIORITY_MAX} − p) × age_step* after the latter came",
        f"At the defaults that is {PRIORITY_MAX * STEP:.0f} s for an ordinary request",
        f"the load is dropped after {residency.LINGER_SECONDS:.0f} s",
        f"has waited for {residency.PATIENCE_STEPS} of its own `queue.age_step`",
        f"take turns of {residency.PATIENCE_STEPS * STEP:.0f} s at the defaults",
    ],
)
def test_the_bounds_that_are_stated_hold(said: str) -> None:
    """Each figure of the page is the constant, or the default, that it comes from."""
    assert said in TEXT


def test_the_shares_that_are_stated_hold() -> None:
    """A tenth of a limit, and a quarter above one."""
    assert "up to a tenth below" in TEXT
    assert RECYCLE_JITTER == 0.1
    assert "a limit a quarter above `memory_hard`" in TEXT
    assert 5 * DATA_SLACK_MIN == headroom(4 * DATA_SLACK_MIN)


def test_the_number_of_suspects_in_a_row_is_told() -> None:
    """In words, where a request's way is told."""
    words = {3: "three different prompts in a row"}

    assert words[suspicion.MOST_PROMPTS] in " ".join(PAGES["how-it-works.md"].split())


def test_the_bound_is_the_one_that_is_proved() -> None:
    """The page says once, and twice with sessions, as the rule that the tests prove does."""
    assert queueing is not None
    assert "is served at most twice more" in " ".join(queueing.split())
    assert "served once more before it at most; twice, if a session ties" in TEXT
    assert (ROOT / "tests" / "core" / "test_queueing_bound.py").exists()


def test_a_reason_that_is_named_is_one() -> None:
    """Why a worker is replaced is told in the words of the events."""
    (named,) = re.findall(r"has the reason `(\w+)`", TEXT)

    assert PlannedReason.RECYCLE == named


@pytest.mark.parametrize("absent", ["neighbour_grace", "upstream"])
def test_what_is_told_to_be_absent_is_absent(absent: str) -> None:
    """Whoever builds it strikes it from the page."""
    assert f"`{absent}`" in TEXT
    assert absent not in {*PoolConfig.__struct_fields__, *Config.__struct_fields__}
    assert not hasattr(PoolConfig(command=("x",)).cancel, absent)
