"""What a day of chaos amounted to, counted in its event log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from supervisord_llm.events import (
    CancelRequested,
    CancelSettled,
    ConfigRejected,
    ConfigReloaded,
    RequestAccepted,
    RequestFinished,
    RequestRejected,
    RequestRetried,
    WorkerDraining,
    WorkerParked,
    WorkerQuarantined,
    WorkerRestartScheduled,
    WorkerSpawned,
    WorkerUnreapable,
)
from tests.chaos.log import Entry


class Figures(msgspec.Struct):
    """Counts by kind, and the longest waits in seconds."""

    events: int = 0
    requests: Counter[str] = msgspec.field(default_factory=Counter)
    cancellations: Counter[str] = msgspec.field(default_factory=Counter)
    workers: Counter[str] = msgspec.field(default_factory=Counter)
    judged: Counter[str] = msgspec.field(default_factory=Counter)
    drained: Counter[str] = msgspec.field(default_factory=Counter)
    """Replaced or taken down, as planned."""
    files: Counter[str] = msgspec.field(default_factory=Counter)
    longest_answer: float = 0.0
    """From the asking for a cancellation to the request's record."""
    longest_settlement: float = 0.0
    """From the asking to the worker's fate."""

    def lines(self) -> list[str]:
        """Say it in lines."""
        rows = {
            "requests": self.requests,
            "cancellations": self.cancellations,
            "workers": self.workers,
            "judged": self.judged,
            "drained": self.drained,
            "files": self.files,
        }
        longest = f"longest answer to a cancellation {self.longest_answer * 1000:.0f} ms"
        settled = f"longest settlement {self.longest_settlement * 1000:.0f} ms"
        told = [f"{name}: {in_words(row)}" for name, row in rows.items() if row]
        return [f"{self.events:,} events", *told, f"{longest}, {settled}"]


def in_words(counts: Counter[str]) -> str:
    """Name each kind with its count, the commonest first."""
    return ", ".join(f"{name} {count:,}" for name, count in counts.most_common())


def count(log: Sequence[Entry]) -> Figures:
    """Count a log."""
    figures = Figures(events=len(log))
    asked: dict[str, float] = {}
    for entry in log:
        _count_request(figures, entry, asked)
        _count_worker(figures, entry)
    return figures


def _count_request(figures: Figures, entry: Entry, asked: dict[str, float]) -> None:
    match entry.event:
        case RequestAccepted():
            figures.requests["accepted"] += 1
        case RequestRejected(code=code):
            figures.requests[f"rejected: {code}"] += 1
        case RequestRetried():
            figures.requests["retried"] += 1
        case RequestFinished(
            outcome=outcome, error=error, cancelled_by=by, request=request, suspect=suspect
        ):
            cause = "suspect" if suspect else error or by
            figures.requests[f"{outcome}: {cause}" if cause else str(outcome)] += 1
            took = entry.at - asked.get(request, entry.at)
            figures.longest_answer = max(figures.longest_answer, took)
        case CancelRequested(request=request):
            asked[request] = entry.at
        case CancelSettled(resolution=resolution, request=request):
            figures.cancellations[resolution] += 1
            took = entry.at - asked.get(request, entry.at)
            figures.longest_settlement = max(figures.longest_settlement, took)
        case _:
            pass


def _count_worker(figures: Figures, entry: Entry) -> None:
    match entry.event:
        case WorkerSpawned():
            figures.workers["spawned"] += 1
        case WorkerRestartScheduled():
            figures.workers["restarts"] += 1
        case WorkerParked():
            figures.workers["parked"] += 1
        case WorkerUnreapable():
            figures.workers["unreapable for a while"] += 1
        case WorkerQuarantined(reason=reason):
            figures.judged[reason] += 1
        case WorkerDraining(reason=reason):
            figures.drained[reason] += 1
        case ConfigReloaded():
            figures.files["reloaded"] += 1
        case ConfigRejected():
            figures.files["rejected"] += 1
        case _:
            pass
