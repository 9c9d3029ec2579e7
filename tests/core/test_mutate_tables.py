"""The tool that breaks the tables finds what no test would notice, and leaves nothing broken."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import click
import pytest

from supervisord_llm.core import escalation
from supervisord_llm.core.escalation import Kind
from tests.core import test_escalation_table
from tests.core.golden import Sample, differences
from tools import mutate_tables
from tools.mutate_tables import Test


def module_with(samples: Sequence[Sample]) -> ModuleType:
    """A golden module of the ladder with these samples only."""
    module = ModuleType("golden")
    vars(module)["SAMPLES"] = samples
    return module


def survivors(samples: Sequence[Sample]) -> list[str]:
    """What the ladder's table may do wrong if these samples are all that is looked at."""

    def test() -> None:
        assert [] == differences(escalation.TABLE, samples)

    golden = module_with(test_escalation_table.SAMPLES)
    return [str(each) for each in mutate_tables.survivors(escalation.TABLE, golden, [test])]


def test_nothing_survives_the_whole_golden_table() -> None:
    """Every break is noticed, and afterwards every cell is in its place again."""
    before = dict(escalation.TABLE.cells)
    assert [] == survivors(test_escalation_table.SAMPLES)
    assert before == escalation.TABLE.cells


def test_a_cell_that_nobody_looks_at_can_be_broken_in_every_way() -> None:
    """Without the row for a closing worker that exits, each kind of break goes unnoticed."""
    fewer = [
        Sample(
            sample.title,
            sample.state,
            {
                event: expected
                for event, expected in sample.answers.items()
                if (sample.state.kind, type(event)) != (Kind.CLOSING, escalation.Exited)
            },
        )
        for sample in test_escalation_table.SAMPLES
    ]
    expected = {
        "closing/Exited: replaced by ignored",
        "closing/Exited: replaced by illegal",
        "closing/Exited: replaced by _exited_late",
        "closing/Exited: without effect 1",
        "closing/Exited: without effect 2",
        "closing/Exited: with its effects in reverse",
        "closing/Exited: keeps its kind",
        "closing/Exited: keeps its state",
    }
    assert expected == set(survivors(fewer))


def test_tests_that_fail_already_are_worth_nothing() -> None:
    """Every mutant would seem to be noticed; the tool says which test has to be mended."""

    def test_broken() -> None:
        pytest.fail("always")

    golden = module_with(test_escalation_table.SAMPLES)
    with pytest.raises(click.ClickException, match="test_broken fails already"):
        mutate_tables.survivors(escalation.TABLE, golden, [test_broken])


def test_only_tests_without_arguments_are_called() -> None:
    """Whatever pytest would have to fill is left to pytest."""

    def test_plain() -> None: ...

    def test_of(argument: Any) -> None: ...

    def helper() -> None: ...

    module = ModuleType("tests")
    vars(module).update(test_plain=test_plain, test_of=test_of, helper=helper)
    found: list[Test] = mutate_tables.tests_of(module)
    assert [test_plain] == found
