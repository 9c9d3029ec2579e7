"""The values behind the metrics: counters, histograms and gauges by their labels, in plain dicts.

They belong to the event loop's thread. The metrics of prometheus-client were not taken for them:
each has a lock, tells the time of its making unless that is switched off for the whole process, and
changes its nature with a variable of the environment. Its families and its exposition format are.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

PREFIX = "supervisord_llm_"

Labels = tuple[str, ...]
V = TypeVar("V", float, list[int])


class Series(Collector):
    """One metric: what it is called and means, and its values."""

    kind: str
    """Its type, in the words of the exposition format."""

    def __init__(self, name: str, meaning: str, labels: Sequence[str] = ()) -> None:
        """Have no values yet; ``name`` is without the prefix that all of them have."""
        self.name = PREFIX + name
        self.meaning = meaning
        self.labels = tuple(labels)

    def collect(self) -> list[Metric]:
        """The values as they are now, in the library's terms."""
        return [self.family()]

    @abstractmethod
    def family(self) -> Metric:
        """The values as they are now."""

    @abstractmethod
    def forget(self, pool: str) -> None:
        """Drop what is told of a pool; its name is the first label."""


class Counter(Series):
    """Counts up, from zero."""

    kind = "counter"

    def __init__(self, name: str, meaning: str, labels: Sequence[str] = ()) -> None:
        """Have no values yet."""
        super().__init__(name, meaning, labels)
        self._counts: dict[Labels, float] = {}

    def begin(self, *labels: str) -> None:
        """Tell of a zero, so that the first increase is one: a new series has no rate."""
        self._counts.setdefault(labels, 0.0)

    def add(self, *labels: str, by: float = 1.0) -> None:
        """Count."""
        self._counts[labels] = self._counts.get(labels, 0.0) + by

    def remove(self, *labels: str) -> None:
        """Drop one count, if there is one."""
        self._counts.pop(labels, None)

    def forget(self, pool: str) -> None:
        """Drop what was counted of a pool."""
        self._counts = _without(self._counts, pool)

    def family(self) -> Metric:
        """The counts."""
        family = CounterMetricFamily(self.name, self.meaning, labels=self.labels)
        for labels, count in self._counts.items():
            family.add_metric(labels, count)
        return family


class Gauge(Series):
    """Goes up and down."""

    kind = "gauge"

    def __init__(self, name: str, meaning: str, labels: Sequence[str] = ()) -> None:
        """Have no values yet."""
        super().__init__(name, meaning, labels)
        self._values: dict[Labels, float] = {}

    def set(self, *labels: str, to: float) -> None:
        """Have this value from now on."""
        self._values[labels] = to

    def change(self, *labels: str, by: float) -> None:
        """Have a value that is so much greater, or less, than the last; the first was 0."""
        self._values[labels] = self._values.get(labels, 0.0) + by

    def remove(self, *labels: str) -> None:
        """Have no value any more, if there was one."""
        self._values.pop(labels, None)

    def forget(self, pool: str) -> None:
        """Drop the values of a pool."""
        self._values = _without(self._values, pool)

    def family(self) -> Metric:
        """The values."""
        family = GaugeMetricFamily(self.name, self.meaning, labels=self.labels)
        for labels, value in self._values.items():
            family.add_metric(labels, value)
        return family


class Histogram(Series):
    """Sorts what it observes into buckets."""

    kind = "histogram"

    def __init__(
        self, name: str, meaning: str, labels: Sequence[str] = (), *, bounds: Sequence[float]
    ) -> None:
        """Have observed nothing yet.

        Args:
            name: without the prefix.
            meaning: one line for people.
            labels: their names.
            bounds: the upper bounds of the buckets, rising, in the metric's unit; the last bucket,
                for all above them, comes by itself.
        """
        super().__init__(name, meaning, labels)
        self.bounds = tuple(bounds)
        self._names = (*(repr(float(bound)) for bound in bounds), "+Inf")
        self._counts: dict[Labels, list[int]] = {}
        self._sums: dict[Labels, float] = {}

    def begin(self, *labels: str) -> None:
        """Tell that there is nothing yet."""
        self._counts.setdefault(labels, [0] * len(self._names))
        self._sums.setdefault(labels, 0.0)

    def observe(self, *labels: str, value: float) -> None:
        """Take one value."""
        self.begin(*labels)
        self._counts[labels][bisect_left(self.bounds, value)] += 1
        self._sums[labels] += value

    def merge(self, *labels: str, counts: Iterable[int], total: float) -> None:
        """Take many values, sorted into these buckets already, which add up to ``total``."""
        self.begin(*labels)
        own = self._counts[labels]
        for index, count in enumerate(counts):
            own[index] += count
        self._sums[labels] += total

    def forget(self, pool: str) -> None:
        """Drop what was observed of a pool."""
        self._counts = _without(self._counts, pool)
        self._sums = _without(self._sums, pool)

    def family(self) -> Metric:
        """What was observed; each bucket holds those of the buckets below it too."""
        family = HistogramMetricFamily(self.name, self.meaning, labels=self.labels)
        for labels, counts in self._counts.items():
            below = 0
            buckets: list[tuple[str, float]] = []
            for name, count in zip(self._names, counts, strict=True):
                below += count
                buckets.append((name, below))
            family.add_metric(labels, buckets, self._sums[labels])
        return family


def _without(values: Mapping[Labels, V], pool: str) -> dict[Labels, V]:
    return {labels: value for labels, value in values.items() if labels[:1] != (pool,)}
