"""The metrics of ``/metrics``."""

from __future__ import annotations

from supervisord_llm.telemetry.metric_list import MetricList
from supervisord_llm.telemetry.series import Histogram, Series
from tools.reference import markdown


def metrics() -> str:
    """The section on metrics."""
    rows = [
        (
            f"`{series.name}`",
            series.kind,
            ", ".join(f"`{label}`" for label in series.labels),
            series.meaning,
            _bounds(series),
        )
        for series in MetricList().all()
    ]
    return markdown.section(
        2,
        "Metrics",
        "On `GET /metrics`, in Prometheus' text format. `worker` is a slot; `state`, `reason`, "
        "`resolution` and `outcome` are [words](#words), the outcome `rejected` and the reason "
        "`spawn_failed` besides. See [monitoring](monitoring.md).",
        markdown.table(("metric", "type", "labels", "meaning", "buckets"), rows),
    )


def _bounds(series: Series) -> str:
    if not isinstance(series, Histogram):
        return ""
    return "≤ " + ", ".join(f"{bound:g}" for bound in series.bounds)
