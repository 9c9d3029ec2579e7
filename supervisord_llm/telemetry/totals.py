"""Counts since the daemon started, for its status: one more consumer of the events."""

from __future__ import annotations

from collections import Counter

from supervisord_llm.core.words import Outcome, Resolution
from supervisord_llm.events import (
    CancelSettled,
    Event,
    RequestAccepted,
    RequestFinished,
    RequestRejected,
    WorkerRestartScheduled,
)


class Totals:
    """Requests by how they went, cancellations, and the starts of workers that were not planned."""

    def __init__(self) -> None:
        """Begin at zero."""
        self.accepted = 0
        self.completed = 0
        self.cancelled = 0
        self.failed = 0
        self.rejected = 0
        self.restarts = 0
        self.cancellations: Counter[Resolution] = Counter()
        """By what became of the worker."""

    def __call__(self, _seq: int, event: Event) -> None:
        """Count an event."""
        match event:
            case RequestAccepted():
                self.accepted += 1
            case RequestFinished(outcome=Outcome.COMPLETED):
                self.completed += 1
            case RequestFinished(outcome=Outcome.CANCELLED):
                self.cancelled += 1
            case RequestFinished(outcome=Outcome.FAILED):
                self.failed += 1
            case RequestRejected():
                self.rejected += 1
            case CancelSettled(resolution=resolution):
                self.cancellations[resolution] += 1
            case WorkerRestartScheduled():
                self.restarts += 1
            case _:
                pass
