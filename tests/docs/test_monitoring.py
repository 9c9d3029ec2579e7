from __future__ import annotations

import re
from pathlib import Path

from supervisord_llm.telemetry.metric_list import MetricList
from supervisord_llm.telemetry.metrics import KEPT_POOLS
from supervisord_llm.telemetry.series import Histogram
from tests.contrib.expressions import unknown

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")
REFERENCE = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")


def test_the_reference_has_every_metric_with_its_labels_and_buckets() -> None:
    """In the order of the exposition, and no other."""
    section = REFERENCE.partition("\n## Metrics\n")[2].partition("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in section.splitlines()
        if line.startswith("| `")
    ]
    expected = [
        [
            f"`{series.name}`",
            series.kind,
            ", ".join(f"`{label}`" for label in series.labels),
            series.meaning,
        ]
        for series in MetricList().all()
    ]
    assert expected == [row[:4] for row in rows]
    for row, series in zip(rows, MetricList().all(), strict=True):
        bounds = series.bounds if isinstance(series, Histogram) else ()
        assert list(bounds) == [float(bound) for bound in re.findall(r"[\d.]+", row[4])]


def test_the_metrics_and_figures_that_are_named_are_right() -> None:
    """No metric is spoken of that there is not."""
    assert not unknown(TEXT)
    assert f"until {KEPT_POOLS} others are gone" in " ".join(TEXT.split())


def test_every_alert_is_explained() -> None:
    """Those of the rules, in their order, and no other."""
    rules = (ROOT / "contrib" / "prometheus" / "alerts.yml").read_text(encoding="utf-8")
    names = re.findall(r"- alert: (\w+)", rules)
    assert names == re.findall(r"^\| `(SupervisordLlm\w+)` \|", TEXT, re.MULTILINE)


def test_links_to_files_lead_somewhere() -> None:
    """What is linked outside of the documentation is there."""
    links = re.findall(r"\]\((\.\./[^)#]+)\)", TEXT)
    assert links
    assert not [link for link in links if not (ROOT / "docs" / link).is_file()]
