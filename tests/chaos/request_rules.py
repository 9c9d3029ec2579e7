"""Rules about requests: one record each, one settlement, attempts in order, nothing left over."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from supervisord_llm.events import (
    CancelRequested,
    CancelSettled,
    RequestAccepted,
    RequestFinished,
    RequestFirstToken,
    RequestRetried,
    RequestStarted,
    WorkerExited,
    WorkerQuarantined,
)
from tests.chaos.log import Entry, Found, Log


class Bounds(msgspec.Struct, frozen=True):
    """How long things may take at most, in seconds, stops of the daemon itself included.

    And what else only the configuration tells.
    """

    answer: float
    """From the asking for a cancellation to the request's record."""
    settlement: float
    """From the asking to the worker's fate."""
    attempts: int = 2
    """How many workers a request may have."""
    groups: Mapping[str, str] = {}
    """The device by pool, for those that share one."""


def one_record(log: Log) -> Found:
    """Each accepted request has exactly one terminal record, after its acceptance."""
    open_: dict[str, Entry] = {}
    ended: dict[str, Entry] = {}
    for entry in log:
        match entry.event:
            case RequestAccepted(request=request):
                if request in open_ or request in ended:
                    yield f"{request} was accepted twice", (entry,)
                open_[request] = entry
            case RequestFinished(request=request):
                if request in ended:
                    yield f"{request} was finished twice", (ended[request], entry)
                elif open_.pop(request, None) is None:
                    yield f"{request} was finished and never accepted", (entry,)
                ended[request] = entry
            case _:
                pass
    for request, entry in open_.items():
        yield f"{request} was accepted and never finished", (entry,)


def one_settlement(log: Log) -> Found:
    """Each cancellation that was asked for is settled exactly once, and none that was not."""
    open_: dict[str, Entry] = {}
    settled: dict[str, Entry] = {}
    for entry in log:
        match entry.event:
            case CancelRequested(request=request):
                if request in open_ or request in settled:
                    yield f"the cancellation of {request} was told twice", (entry,)
                open_[request] = entry
            case CancelSettled(request=request):
                if request in settled:
                    yield f"{request} was settled twice", (settled[request], entry)
                elif open_.pop(request, None) is None:
                    yield f"{request} was settled and nobody had asked", (entry,)
                settled[request] = entry
            case _:
                pass
    for request, entry in open_.items():
        yield f"the cancellation of {request} was never settled", (entry,)


def in_time(log: Log, bounds: Bounds) -> Found:
    """Who cancels is answered, and the worker's fate known, within bounds."""
    asked: dict[str, Entry] = {}
    for entry in log:
        match entry.event:
            case CancelRequested(request=request):
                asked.setdefault(request, entry)
            case RequestFinished(request=request) if request in asked:
                took = entry.at - asked[request].at
                if took > bounds.answer:
                    yield f"{request} was answered after {took:.3f} s", (asked[request], entry)
            case CancelSettled(request=request) if request in asked:
                took = entry.at - asked[request].at
                if took > bounds.settlement:
                    yield f"{request} was settled after {took:.3f} s", (asked[request], entry)
            case _:
                pass


def few_attempts(log: Log, bounds: Bounds) -> Found:
    """Nobody is tried more often than is allowed."""
    for entry in log:
        match entry.event:
            case RequestStarted(request=request, attempt=attempt) if attempt > bounds.attempts:
                yield f"{request} is tried for the {attempt}. time", (entry,)
            case _:
                pass


def retried_when_lost(log: Log) -> Found:
    """A request is tried again only when its worker was judged, or has ended, and it was silent."""
    lost: set[tuple[str, int]] = set()
    spoken: dict[str, Entry] = {}
    given: dict[str, Entry] = {}
    for entry in log:
        match entry.event:
            case (
                WorkerQuarantined(worker=worker, generation=generation)
                | WorkerExited(worker=worker, generation=generation)
            ):
                lost.add((worker, generation))
            case RequestStarted(request=request):
                given[request] = entry
            case RequestFirstToken(request=request):
                spoken[request] = entry
            case RequestRetried(request=request, worker=worker, generation=generation):
                had = given.get(request)
                shown = (*([had] if had else []), entry)
                if (worker, generation) not in lost:
                    yield f"{request} is tried again and {worker}/{generation} lives", shown
                elif had is not None and _worker(had) != (worker, generation):
                    yield f"{request} lost a worker that did not have it", shown
                if request in spoken:
                    yield f"{request} is tried again after output", (spoken[request], entry)
            case _:
                pass


def _worker(entry: Entry) -> tuple[str, int]:
    assert isinstance(entry.event, RequestStarted)
    return entry.event.worker, entry.event.generation


def attempts_in_order(log: Log) -> Found:
    """Attempts count up by one; each but the first is a retry, and none follows output."""
    attempts: dict[str, Entry] = {}
    spoken: dict[str, Entry] = {}
    failed: dict[str, int] = {}
    for entry in log:
        match entry.event:
            case RequestStarted(request=request, attempt=attempt):
                before = attempts.get(request)
                was = _attempt(before)
                shown = (*([before] if before else []), entry)
                if attempt != was + 1:
                    yield f"attempt {attempt} of {request} follows attempt {was}", shown
                elif failed.get(request, 0) != was:
                    yield f"attempt {attempt} of {request} is no retry of the one before", shown
                if request in spoken:
                    yield f"{request} was started again after output", (spoken[request], entry)
                attempts[request] = entry
            case RequestRetried(request=request, attempt=attempt):
                if attempt != _attempt(attempts.get(request)):
                    yield f"{request} is tried again after attempt {attempt}, not begun", (entry,)
                failed[request] = attempt
            case RequestFirstToken(request=request):
                if request in spoken:
                    yield f"{request} had its first output twice", (spoken[request], entry)
                spoken[request] = entry
            case _:
                pass


def _attempt(entry: Entry | None) -> int:
    return entry.event.attempt if entry and isinstance(entry.event, RequestStarted) else 0


def gauges_return(log: Log) -> Found:
    """What waits, and what is on workers, is counted up and down by turns, and is 0 at the end."""
    waiting: dict[str, Entry] = {}
    running: dict[str, Entry] = {}
    for entry in log:
        match entry.event:
            case RequestAccepted(request=request):
                waiting[request] = entry
            case RequestStarted(request=request):
                if waiting.pop(request, None) is None:
                    yield f"{request} was started and did not wait", (entry,)
                running[request] = entry
            case RequestRetried(request=request):
                if running.pop(request, None) is None:
                    yield f"{request} is tried again and did not run", (entry,)
                waiting[request] = entry
            case RequestFinished(request=request):
                waiting.pop(request, None)
                running.pop(request, None)
            case _:
                pass
    for name, gauge in (("waiting", waiting), ("running", running)):
        if gauge:
            yield f"{len(gauge)} requests are {name} at the end", tuple(gauge.values())[:10]
