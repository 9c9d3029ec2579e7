"""Every metric with its name, its labels, its buckets and what it means; no values but these.

The texts are what `/metrics` says of each, and what the reference shows.
"""

from __future__ import annotations

from collections.abc import Iterator

from supervisord_llm.events import GAP_BUCKETS
from supervisord_llm.telemetry.series import Counter, Gauge, Histogram, Series

REJECTED = "rejected"
"""The outcome of a request that was never accepted, in addition to those of the others."""

TOKEN_KINDS = ("prompt", "reused", "generated")

_POOL = ("pool",)
_WAITS = (0.001, 0.005, 0.025, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_LOADS = (0.1, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600, 1200)
_FIRST_TOKENS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_REQUESTS = (0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)
_CANCELLATIONS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_LAGS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class MetricList:
    """The metrics of one daemon, without values at first."""

    def __init__(self) -> None:
        """Name them."""
        self.build_info = Gauge("build_info", "Always 1; the version of the daemon.", ["version"])
        self.workers = Gauge("workers", "Slots by what they do.", ["pool", "state"])
        self.restarts = Counter(
            "worker_restarts_total",
            "Workers that were replaced because they failed, by why.",
            ["pool", "reason"],
        )
        self.load_seconds = Histogram(
            "worker_load_seconds",
            "From the start of a worker's process until it was ready.",
            _POOL,
            bounds=_LOADS,
        )
        self.resident_bytes = Gauge(
            "worker_resident_bytes",
            "Resident memory of the worker in a slot, when it was last looked at.",
            ["pool", "worker"],
        )
        self.cpu_seconds = Counter(
            "worker_cpu_seconds_total",
            "CPU time of a slot's workers, one after the other, as far as it was looked at.",
            ["pool", "worker"],
        )
        self.queue_depth = Gauge("queue_depth", "Requests that wait for a worker.", _POOL)
        self.in_flight = Gauge(
            "requests_in_flight",
            "Requests that a worker was given and that are not answered yet.",
            _POOL,
        )
        self.requests = Counter(
            "requests_total",
            "Requests that ended, by how. The rejected ones were never accepted; their pool is "
            "empty where they named none that there is.",
            ["pool", "outcome"],
        )
        self.queue_seconds = Histogram(
            "queue_seconds",
            "How long requests waited until a worker first took them, or until they ended without.",
            _POOL,
            bounds=_WAITS,
        )
        self.first_token = Histogram(
            "time_to_first_token_seconds",
            "From a request's acceptance to its first output.",
            _POOL,
            bounds=_FIRST_TOKENS,
        )
        self.inter_token = Histogram(
            "inter_token_seconds",
            "Gaps between the tokens of ended requests.",
            _POOL,
            bounds=GAP_BUCKETS,
        )
        self.request_seconds = Histogram(
            "request_seconds",
            "From a request's acceptance to its answer's end.",
            _POOL,
            bounds=_REQUESTS,
        )
        self.tokens = Counter(
            "tokens_total",
            "Tokens of ended requests: of their prompts, those of them that a session had "
            "already, and the generated ones.",
            ["pool", "kind"],
        )
        self.cancellations = Counter(
            "cancellations_total",
            "Cancellations by what became of the worker.",
            ["pool", "resolution"],
        )
        self.cancellation_seconds = Histogram(
            "cancellation_seconds",
            "From the wish to cancel a request until it was known what became of the worker.",
            ["pool", "resolution"],
            bounds=_CANCELLATIONS,
        )
        self.loop_lag = Histogram(
            "event_loop_lag_seconds",
            "How late the event loop woke for its own timer, where that was 50 ms or more.",
            bounds=_LAGS,
        )
        self.events = Counter("events_total", "Events, logged or not.", ["event"])

    def all(self) -> Iterator[Series]:
        """Every one of them."""
        return (value for value in vars(self).values() if isinstance(value, Series))

    def of_pools(self) -> Iterator[Histogram]:
        """The histograms with no label but the pool."""
        return (
            series
            for series in self.all()
            if isinstance(series, Histogram) and series.labels == _POOL
        )
