"""What an expression for Prometheus asks for, held against what there is."""

from __future__ import annotations

import re
from collections.abc import Iterator

from supervisord_llm.telemetry.metric_list import MetricList
from supervisord_llm.telemetry.series import PREFIX, Histogram

_SELECTOR = re.compile(rf"\b({PREFIX}\w+)(?:\{{([^}}]*)\}})?")
_LABEL = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
_SCRAPED = {"job", "instance"}


def _there_is() -> Iterator[tuple[str, set[str]]]:
    for series in MetricList().all():
        labels = set(series.labels) | _SCRAPED
        if isinstance(series, Histogram):
            yield f"{series.name}_bucket", labels | {"le"}
            yield f"{series.name}_count", labels
            yield f"{series.name}_sum", labels
        else:
            yield series.name, labels


def unknown(text: str) -> list[str]:
    """The metrics that a text names and that do not exist, and the labels that they do not have."""
    known = dict(_there_is())
    found = []
    for name, matchers in _SELECTOR.findall(text):
        if name not in known:
            found.append(name)
            continue
        found += [f"{name}: {label}" for label in set(_LABEL.findall(matchers)) - known[name]]
    return found
