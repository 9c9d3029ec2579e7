from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisord_llm.telemetry.metric_list import MetricList
from tests.contrib.expressions import unknown
from tests.prometheus import needs, promtool

FOLDER = Path(__file__).parents[2] / "contrib" / "grafana"
VALUES = {"$__rate_interval": "1m", "$job": "supervisord-llm", "$pool": ".*"}
DASHBOARD: dict[str, Any] = json.loads((FOLDER / "supervisord-llm.json").read_text("utf-8"))


def expressions() -> Iterator[str]:
    """Every panel's expressions."""
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", []):
            yield target["expr"]


def filled_in(expression: str) -> str:
    """An expression as Grafana sends it."""
    for name, value in VALUES.items():
        expression = expression.replace(name, value)
    return expression


def variables() -> dict[str, Any]:
    """The dashboard's variables, by their names."""
    return {each["name"]: each for each in DASHBOARD["templating"]["list"]}


def test_every_panel_asks_for_what_there_is() -> None:
    """The metrics, and their labels, in the panels and in the variables."""
    assert not unknown("\n".join(expressions()))
    assert not unknown("\n".join(each.get("definition", "") for each in variables().values()))


def test_every_metric_is_shown() -> None:
    """A metric that nobody looks at helps nobody."""
    shown = "\n".join(expressions())
    assert not [series.name for series in MetricList().all() if series.name not in shown]


def test_only_variables_that_there_are_are_used() -> None:
    """Those of the dashboard, and Grafana's own for the range of a rate."""
    used = set(re.findall(r"\$\{?(\w+)", "\n".join(expressions())))
    assert used <= variables().keys() | {"__rate_interval"}
    sources = {
        target["datasource"]["uid"]
        for panel in DASHBOARD["panels"]
        for target in panel.get("targets", [])
    }
    assert {"${datasource}"} == sources


def test_no_panel_lies_on_another() -> None:
    """Each has its place on the grid, 24 units wide, and a number of its own."""
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)


@needs("promtool")
def test_every_expression_is_one(tmp_path: Path) -> None:
    """Prometheus can read all of them, with the variables filled in."""
    rules = [
        {"record": f"panel_{number}", "expr": filled_in(expression)}
        for number, expression in enumerate(expressions())
    ]
    file = tmp_path / "rules.yml"
    # JSON is YAML.
    file.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}), encoding="utf-8")
    code, said = promtool("check", "rules", str(file))
    assert 0 == code, said
    assert f"{len(rules)} rules found" in said


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("supervisord_llm_workers", []),
        ("rate(supervisord_llm_queue_seconds_bucket{le='1.0'}[5m])", []),
        ("supervisord_llm_queue_seconds", ["supervisord_llm_queue_seconds"]),
        ("supervisord_llm_worker_total", ["supervisord_llm_worker_total"]),
        ('supervisord_llm_workers{pid="1"}', ["supervisord_llm_workers: pid"]),
    ],
)
def test_a_wrong_expression_is_noticed(text: str, expected: list[str]) -> None:
    """A metric or a label that there is not."""
    assert expected == unknown(text)
