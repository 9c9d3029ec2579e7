from __future__ import annotations

import re
from pathlib import Path

import pytest

from supervisord_llm.config.schema import QueueConfig
from tests.contrib.expressions import unknown
from tests.prometheus import needs, promtool

FOLDER = Path(__file__).parents[2] / "contrib" / "prometheus"
ALERTS = (FOLDER / "alerts.yml").read_text(encoding="utf-8")
TESTS = (FOLDER / "alerts_test.yml").read_text(encoding="utf-8")
_CONDITION = re.compile(r"expr:.*?\n(?=        (?:for|labels|#))", re.DOTALL)
NAMES = re.findall(r"- alert: (\w+)", ALERTS)


@needs("promtool")
@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "config", "prometheus.yml"),
        ("check", "rules", "alerts.yml"),
        ("test", "rules", "alerts_test.yml"),
    ],
    ids=" ".join,
)
def test_promtool_accepts(arguments: tuple[str, str, str]) -> None:
    """The scrape configuration, the rules, and that the alerts are raised when they should be."""
    *what, file = arguments
    code, said = promtool(*what, str(FOLDER / file))
    assert 0 == code, said


@needs("promtool")
@pytest.mark.parametrize("name", NAMES)
def test_the_tests_notice_an_alert_that_is_never_raised(name: str, tmp_path: Path) -> None:
    """Each alert's own test fails if its condition never holds."""
    head, found, rule = ALERTS.partition(f"- alert: {name}\n")
    never = _CONDITION.sub("expr: vector(1) > 2\n", rule, count=1)
    assert never != rule
    (tmp_path / "alerts.yml").write_text(head + found + never, encoding="utf-8")
    (tmp_path / "alerts_test.yml").write_text(TESTS, encoding="utf-8")

    assert 0 == promtool("check", "rules", str(tmp_path / "alerts.yml"))[0]
    code, said = promtool("test", "rules", str(tmp_path / "alerts_test.yml"))
    assert (1, True) == (code, f"alertname: {name}" in said)


@pytest.mark.parametrize("name", NAMES)
def test_each_alert_is_tried_in_both_directions(name: str) -> None:
    """There is a moment at which it is raised, and one at which it is not."""
    expected = re.findall(rf"alertname: {name}\b(?:}}|\n +(exp_alerts)?)", TESTS)
    assert {"", "exp_alerts"} == set(expected)


def test_the_rules_know_every_metric_that_they_ask_for() -> None:
    """An alert on a metric that does not exist is never raised, and nobody notices."""
    assert not unknown(ALERTS)


def test_the_queue_is_near_full_where_the_comment_says() -> None:
    """The number is 80 % of the default."""
    [threshold] = re.findall(r"supervisord_llm_queue_depth > (\d+)", ALERTS)
    assert int(threshold) == QueueConfig().max_queued * 8 // 10
    assert f"whose default is {QueueConfig().max_queued};" in ALERTS
