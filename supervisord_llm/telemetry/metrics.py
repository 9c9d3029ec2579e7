"""What `/metrics` tells: one more consumer of the events, which counts nothing by other means.

How many series there are depends on the configuration, never on the traffic. Labels are pools,
slots and words of closed sets. A slot that is no more takes its series along. A pool that is no
more keeps its counters, so that a scraper still gets what came last, until `KEPT_POOLS` others are
gone after it.
"""

from __future__ import annotations

from collections import deque

import trio
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from supervisord_llm import events
from supervisord_llm.core.words import (
    Outcome,
    PoolName,
    QuarantineReason,
    RequestId,
    Resolution,
    SlotName,
    SlotState,
)
from supervisord_llm.events import Event
from supervisord_llm.telemetry.metric_list import REJECTED, TOKEN_KINDS, MetricList

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
"""Of what `Metrics.render` gives."""

KEPT_POOLS = 32
"""How many pools that are gone have their counters kept."""

_RESTART_REASONS = (*QuarantineReason, "spawn_failed")


class Metrics:
    """Keeps every metric up to date, and renders them; for the event loop's thread only."""

    def __init__(self) -> None:
        """Nothing has happened yet."""
        self.list = MetricList()
        self._slots: dict[PoolName, dict[SlotName, SlotState]] = {}
        self._gone: deque[PoolName] = deque()
        self._waiting: set[RequestId] = set()
        self._running: set[RequestId] = set()
        self._cpu: dict[SlotName, tuple[int, float]] = {}
        """By slot: the generation that was looked at last, and the seconds that it had used."""
        for name in events.catalogue():
            self.list.events.begin(name)

    async def render(self) -> bytes:
        """The metrics as they are now, in the text format that `CONTENT_TYPE` names.

        With many pools that is some work, so the event loop turns between two metrics.
        """
        parts = []
        for series in self.list.all():
            parts.append(generate_latest(series))
            await trio.lowlevel.checkpoint()
        return b"".join(parts)

    def __call__(self, _seq: int, event: Event) -> None:
        """Take an event."""
        self.list.events.add(str(event.__struct_config__.tag))
        match event:
            case events.DaemonStarted():
                self.list.build_info.set(event.version, to=1.0)
            case events.DaemonLoopLag():
                self.list.loop_lag.observe(value=event.seconds)
            case events.CancelSettled():
                labels = (event.pool, event.resolution)
                self.list.cancellations.add(*labels)
                self.list.cancellation_seconds.observe(*labels, value=event.elapsed_ms / 1000)
            case _:
                self._take_request(event)
                self._take_worker(event)

    # Requests -----------------------------------------------------------------

    def _take_request(self, event: Event) -> None:
        match event:
            case events.RequestAccepted():
                self._queue(event.pool, event.request)
            case events.RequestRejected():
                pool = event.pool if event.pool in self._slots else None
                self.list.requests.add(pool or "", REJECTED)
            case events.RequestStarted():
                self._unqueue(event.pool, event.request)
                self._running.add(event.request)
                self.list.in_flight.change(event.pool, by=1)
                if event.attempt == 1:
                    self.list.queue_seconds.observe(event.pool, value=event.queued_ms / 1000)
            case events.RequestRetried():
                self._stop_running(event.pool, event.request)
                self._queue(event.pool, event.request)
            case events.RequestFirstToken():
                self.list.first_token.observe(event.pool, value=event.ttft_ms / 1000)
            case events.RequestFinished():
                self._finish(event)
            case _:
                pass

    def _finish(self, event: events.RequestFinished) -> None:
        pool = event.pool
        self._unqueue(pool, event.request)
        self._stop_running(pool, event.request)
        self.list.requests.add(pool, event.outcome)
        self.list.request_seconds.observe(pool, value=event.total_ms / 1000)
        if event.worker is None:
            self.list.queue_seconds.observe(pool, value=event.queued_ms / 1000)
        if event.gaps:
            total = event.gaps_ms / 1000
            self.list.inter_token.merge(pool, counts=event.gaps, total=total)
        # A worker that had no say at the end leaves what was seen of its output.
        generated = event.tokens if event.generated_tokens is None else event.generated_tokens
        counts = (event.prompt_tokens or 0, event.reused_tokens or 0, generated)
        for kind, count in zip(TOKEN_KINDS, counts, strict=True):
            self.list.tokens.add(pool, kind, by=count)

    def _queue(self, pool: PoolName, request: RequestId) -> None:
        self._waiting.add(request)
        self.list.queue_depth.change(pool, by=1)

    def _unqueue(self, pool: PoolName, request: RequestId) -> None:
        if request in self._waiting:
            self._waiting.remove(request)
            self.list.queue_depth.change(pool, by=-1)

    def _stop_running(self, pool: PoolName, request: RequestId) -> None:
        if request in self._running:
            self._running.remove(request)
            self.list.in_flight.change(pool, by=-1)

    # Workers ------------------------------------------------------------------

    def _take_worker(self, event: Event) -> None:
        match event:
            case events.WorkerUsage():
                self._use(event)
            case events.WorkerState():
                self._move(event.pool, event.worker, event.to)
            case events.WorkerReady():
                self.list.load_seconds.observe(event.pool, value=event.load_ms / 1000)
            case events.WorkerRestartScheduled():
                self.list.restarts.add(event.pool, event.reason)
            case events.WorkerReaped():
                self.list.resident_bytes.remove(event.pool, event.worker)
            case events.WorkerAdded():
                self._move(event.pool, event.worker, SlotState.STOPPED)
            case events.WorkerRemoved():
                self._remove(event.pool, event.worker)
            case _:
                pass

    def _use(self, event: events.WorkerUsage) -> None:
        labels = (event.pool, event.worker)
        self.list.resident_bytes.set(*labels, to=event.rss)
        generation, before = self._cpu.get(event.worker, (event.generation, 0.0))
        if generation != event.generation:
            before = 0.0
        self._cpu[event.worker] = event.generation, max(before, event.cpu_seconds)
        self.list.cpu_seconds.add(*labels, by=max(0.0, event.cpu_seconds - before))

    def _move(self, pool: PoolName, slot: SlotName, to: SlotState) -> None:
        if pool not in self._slots:
            self._begin(pool)
        before = self._slots[pool].get(slot)
        if before is not None:
            self.list.workers.change(pool, before, by=-1)
        self._slots[pool][slot] = to
        self.list.workers.change(pool, to, by=1)

    def _begin(self, pool: PoolName) -> None:
        """Tell of a pool that is new, or is back: everything is there from the start, as zero."""
        self._slots[pool] = {}
        if pool in self._gone:
            self._gone.remove(pool)
        mine = self.list
        for state in SlotState:
            mine.workers.set(pool, state, to=0)
        for gauge in (mine.queue_depth, mine.in_flight):
            gauge.set(pool, to=0)
        for reason in _RESTART_REASONS:
            mine.restarts.begin(pool, reason)
        for outcome in (*Outcome, REJECTED):
            mine.requests.begin(pool, outcome)
        for kind in TOKEN_KINDS:
            mine.tokens.begin(pool, kind)
        for resolution in Resolution:
            mine.cancellations.begin(pool, resolution)
        for histogram in mine.of_pools():
            histogram.begin(pool)

    def _remove(self, pool: PoolName, slot: SlotName) -> None:
        state = self._slots.get(pool, {}).pop(slot, None)
        if state is None:
            return
        self.list.workers.change(pool, state, by=-1)
        self.list.resident_bytes.remove(pool, slot)
        self.list.cpu_seconds.remove(pool, slot)
        self._cpu.pop(slot, None)
        if not self._slots[pool]:
            self._end(pool)

    def _end(self, pool: PoolName) -> None:
        """A pool is gone: so is what it does now, and in time what it did."""
        del self._slots[pool]
        for gauge in (self.list.workers, self.list.queue_depth, self.list.in_flight):
            gauge.forget(pool)
        self._gone.append(pool)
        while len(self._gone) > KEPT_POOLS:
            forgotten = self._gone.popleft()
            for series in self.list.all():
                if series.labels[:1] == ("pool",):
                    series.forget(forgotten)
