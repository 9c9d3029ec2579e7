from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from supervisord_llm import events
from supervisord_llm.core.words import QuarantineReason, Resolution, SlotState
from supervisord_llm.events import Event
from supervisord_llm.telemetry.metrics import KEPT_POOLS, Metrics
from tests.prometheus import needs, promtool
from tests.telemetry import metric_history as history

GOLDEN = Path(__file__).with_name("metrics.txt")

METRICS = {
    "build_info": ("gauge", {"version"}),
    "workers": ("gauge", {"pool", "state"}),
    "worker_restarts_total": ("counter", {"pool", "reason"}),
    "worker_load_seconds": ("histogram", {"pool"}),
    "worker_resident_bytes": ("gauge", {"pool", "worker"}),
    "worker_cpu_seconds_total": ("counter", {"pool", "worker"}),
    "queue_depth": ("gauge", {"pool"}),
    "requests_in_flight": ("gauge", {"pool"}),
    "requests_total": ("counter", {"pool", "outcome"}),
    "queue_seconds": ("histogram", {"pool"}),
    "time_to_first_token_seconds": ("histogram", {"pool"}),
    "inter_token_seconds": ("histogram", {"pool"}),
    "request_seconds": ("histogram", {"pool"}),
    "tokens_total": ("counter", {"pool", "kind"}),
    "cancellations_total": ("counter", {"pool", "resolution"}),
    "cancellation_seconds": ("histogram", {"pool", "resolution"}),
    "event_loop_lag_seconds": ("histogram", set()),
    "events_total": ("counter", {"event"}),
}
"""The promise: each metric's type and labels, by its name without the prefix."""


def take(metrics: Metrics, happened: Iterable[Event]) -> None:
    """Let the metrics hear of these events."""
    for seq, event in enumerate(happened, 1):
        metrics(seq, event)


async def told(metrics: Metrics) -> dict[str, float]:
    """Every value, by its name and labels as they are written."""
    lines = (await metrics.render()).decode().splitlines()
    pairs = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name.removeprefix("supervisord_llm_"): float(value) for name, _, value in pairs}


async def after_a_morning() -> Metrics:
    """The metrics of the scripted history."""
    metrics = Metrics()
    take(metrics, history.morning())
    return metrics


async def test_the_exposition_is_exactly_this() -> None:
    """A scripted history, worked out by hand; only the events that did not happen are left out."""
    text = (await (await after_a_morning()).render()).decode()
    lines = [
        line
        for line in text.splitlines()
        if not (line.startswith("supervisord_llm_events_total") and line.endswith(" 0.0"))
    ]
    assert GOLDEN.read_text(encoding="utf-8").splitlines() == lines


async def test_every_promised_metric_is_there_and_no_other() -> None:
    """Names, types and labels are an interface; a time of making beside each would be noise."""
    text = (await (await after_a_morning()).render()).decode()
    found = {}
    for family in text_string_to_metric_families(text):
        suffix = "_total" if family.type == "counter" else ""
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        found[family.name.removeprefix("supervisord_llm_") + suffix] = (family.type, labels)
        assert family.documentation
    assert METRICS == found
    assert "_created" not in text


@needs("promtool")
async def test_promtool_has_nothing_to_complain_about() -> None:
    """Neither before anything has happened nor after."""
    for metrics in (Metrics(), await after_a_morning()):
        assert (0, "") == promtool("check", "metrics", stdin=await metrics.render())


def one_of_each(number: int) -> list[Event]:
    """What one request and its cancellation are, and a restart now and then."""
    request = f"req_{number}"
    found = [
        history.accepted(request),
        history.started(request, 1.0),
        history.first_token(request, 2.0),
        history.completed(request),
    ]
    if number % 100 == 0:
        reason = list(QuarantineReason)[number // 100 % len(QuarantineReason)]
        generation = number // 100 + 1
        found += [
            history.settled(request, list(Resolution)[number // 100 % len(Resolution)], 3.0),
            history.moved("smollm.0", SlotState.READY, SlotState.BACKOFF),
            history.reaped("smollm.0"),
            history.restarted("smollm.0", reason),
            *history.loaded("smollm.0", 10.0),
            history.used("smollm.0", generation, 4096, 0.25),
        ]
    return found


async def test_traffic_and_restarts_make_no_new_series() -> None:
    """100,000 requests and 1,000 restarts are told by as many lines as some thousands of them."""
    metrics = Metrics()
    take(metrics, history.added("smollm", 0))
    for number in range(5_000):
        take(metrics, one_of_each(number))
    before = (await told(metrics)).keys()
    for number in range(5_000, 100_000):
        take(metrics, one_of_each(number))
    after = await told(metrics)

    assert before == after.keys()
    assert 100_000 == after['requests_total{outcome="completed",pool="smollm"}']
    restarts = [after[name] for name in after if name.startswith("worker_restarts_total")]
    assert 1_000 == sum(restarts)
    assert 250.0 == after['worker_cpu_seconds_total{pool="smollm",worker="smollm.0"}']
    assert 0 == after['queue_depth{pool="smollm"}'] == after['requests_in_flight{pool="smollm"}']


async def test_a_slot_that_is_no_more_takes_its_series_along() -> None:
    """A pool that surges gives its slots new names again and again."""
    metrics = Metrics()
    take(metrics, history.added("smollm", 0))
    for index in range(1, 50):
        slot = f"smollm.{index}"
        take(metrics, history.added("smollm", index))
        take(metrics, [*history.loaded(slot, 10.0), history.used(slot, 1, 4096, 0.5)])
        take(metrics, history.removed("smollm", index))
    values = await told(metrics)
    assert not [name for name in values if "smollm." in name]
    assert 1 == values['workers{pool="smollm",state="stopped"}']
    assert 0 == values['workers{pool="smollm",state="ready"}']


def pool_passes(name: str) -> list[Event]:
    """A pool that is there for one request."""
    return [
        *history.added(name, 0),
        *history.loaded(f"{name}.0", 10.0),
        history.accepted("req_1", name),
        history.started("req_1", 1.0, pool=name),
        history.completed("req_1", name),
        *history.removed(name, 0),
    ]


async def test_a_pool_that_is_gone_keeps_its_counters_until_many_others_are() -> None:
    """What it did last can still be scraped; what it does is over at once; nothing piles up."""
    metrics = Metrics()
    for number in range(KEPT_POOLS + 1):
        take(metrics, pool_passes(f"p{number}"))
    before = await told(metrics)
    assert not [name for name in before if name.startswith(("workers", "queue_depth", "requests_"))
                and 'pool="p1"' in name and not name.startswith("requests_total")]  # fmt: skip
    assert 1 == before['requests_total{outcome="completed",pool="p1"}']
    assert 'requests_total{outcome="completed",pool="p0"}' not in before

    for number in range(1_000):
        take(metrics, pool_passes(f"q{number}"))
    after = await told(metrics)
    assert len(before) == len(after)
    assert not [name for name in after if 'pool="p' in name]


async def test_a_pool_that_comes_back_goes_on_counting() -> None:
    """A counter that is still told never goes back."""
    metrics = Metrics()
    take(metrics, pool_passes("p"))
    take(metrics, pool_passes("p"))
    take(metrics, history.added("p", 0))
    for number in range(KEPT_POOLS + 1):
        take(metrics, pool_passes(f"q{number}"))
    values = await told(metrics)
    assert 2 == values['requests_total{outcome="completed",pool="p"}']
    assert 1 == values['workers{pool="p",state="stopped"}']


async def test_a_client_cannot_make_up_pools() -> None:
    """A rejected request counts for the pool that it named only if there is such a pool."""
    metrics = Metrics()
    take(metrics, [events.RequestRejected(code="unknown_model", pool="x" * 1000)])
    values = await told(metrics)
    assert {'requests_total{outcome="rejected",pool=""}': 1} == {
        name: value for name, value in values.items() if name.startswith("requests_total")
    }


@pytest.mark.parametrize(
    ("reports", "expected"),
    [
        ([(1, 1.0), (1, 2.5)], 2.5),
        ([(1, 2.0), (2, 0.5), (2, 0.75)], 2.75),
        ([(1, 2.0), (3, 2.0)], 4.0),
        ([(1, 2.0), (1, 1.5), (1, 2.5)], 2.5),
    ],
)
async def test_cpu_time_adds_up_over_generations(
    reports: list[tuple[int, float]], expected: float
) -> None:
    """Each process begins at zero, and the counter of its slot does not."""
    metrics = Metrics()
    take(metrics, [history.used("smollm.0", number, 1, used) for number, used in reports])
    values = await told(metrics)
    assert expected == values['worker_cpu_seconds_total{pool="smollm",worker="smollm.0"}']
