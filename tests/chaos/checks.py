"""What must hold whatever went wrong, judged from a complete event log alone.

A rule reads the whole log and yields what contradicts it. `RULES` names all of them; each has a log
made by hand that breaks it (``test_checks.py``), since a check that cannot fail checks nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

import msgspec

from supervisord_llm.core.words import SlotState
from supervisord_llm.events import (
    CancelRequested,
    CancelSettled,
    DaemonError,
    DaemonStarted,
    DaemonStopped,
    RequestAccepted,
    RequestFinished,
    RequestFirstToken,
    RequestRetried,
    RequestStarted,
    WorkerExited,
    WorkerQuarantined,
    WorkerReady,
    WorkerReaped,
    WorkerSpawned,
    WorkerState,
)
from tests.chaos.log import Entry, Violation

Log = Sequence[Entry]
Found = Iterator[tuple[str, tuple[Entry, ...]]]
"""What is wrong, and the entries that show it."""

FIT = frozenset({SlotState.READY, SlotState.BUSY, SlotState.CANCELLING})
DOWN = frozenset({SlotState.STOPPED, SlotState.PARKED})


class Bounds(msgspec.Struct, frozen=True):
    """How long things may take at most, in seconds, stops of the daemon itself included."""

    answer: float
    """From the asking for a cancellation to the request's record."""
    settlement: float
    """From the asking to the worker's fate."""


def check(log: Log, bounds: Bounds) -> list[Violation]:
    """Everything in a complete log that breaks a rule."""
    found = [
        Violation(name, message, tuple(entry.line for entry in entries))
        for name, rule in RULES.items()
        for message, entries in rule(log)
    ]
    for message, entries in in_time(log, bounds):
        found.append(Violation("in_time", message, tuple(entry.line for entry in entries)))
    return found


def agree(log: Log, outcomes: Mapping[str, str]) -> list[Violation]:
    """Contradictions between the log and what clients were told, by the request's id."""
    told = {entry.event.request: entry for entry in log if isinstance(entry.event, RequestFinished)}
    return [
        Violation("agree", f"the client of {request} was told {outcome!r}", lines)
        for request, outcome in outcomes.items()
        if (lines := _otherwise(told.get(request), outcome)) is not None
    ]


def _otherwise(entry: Entry | None, outcome: str) -> tuple[str, ...] | None:
    if entry is None:
        return ()
    assert isinstance(entry.event, RequestFinished)
    return None if entry.event.outcome == outcome else (entry.line,)


def numbered(log: Log) -> Found:
    """Events are numbered from 1 without a gap."""
    if log and log[0].seq != 1:
        yield f"the log begins with number {log[0].seq}", (log[0],)
    for before, after in pairwise(log):
        if after.seq != before.seq + 1:
            yield f"number {after.seq} follows {before.seq}", (before, after)


def from_start_to_stop(log: Log) -> Found:
    """The daemon starts once, and its last word is that it stopped with exit code 0."""
    if not log or not isinstance(log[0].event, DaemonStarted):
        yield "the log does not begin with daemon.started", tuple(log[:1])
    last = log[-1].event if log else None
    if not isinstance(last, DaemonStopped) or last.exit_code != 0:
        yield "the log does not end with daemon.stopped and exit code 0", tuple(log[-1:])


def no_bug(log: Log) -> Found:
    """Nothing unexpected happened inside the daemon."""
    for entry in log:
        if isinstance(entry.event, DaemonError):
            yield "the daemon met a bug of its own", (entry,)


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


def to_the_fit(log: Log) -> Found:
    """Work goes only to a worker that said it was ready and was not lost or judged since."""
    fit: dict[str, int] = {}
    state: dict[str, Entry] = {}
    lost: dict[str, Entry] = {}
    for entry in log:
        match entry.event:
            case WorkerReady(worker=worker, generation=generation):
                fit[worker] = generation
            case WorkerQuarantined(worker=worker) | WorkerExited(worker=worker):
                fit.pop(worker, None)
                lost[worker] = entry
            case WorkerState(worker=worker):
                state[worker] = entry
            case RequestStarted(worker=worker, generation=generation, request=request):
                if fit.get(worker) != generation:
                    shown = (*([lost[worker]] if worker in lost else []), entry)
                    yield f"{request} was given to unfit {worker}/{generation}", shown
                elif (told := state.get(worker)) is not None and not _serves(told):
                    yield f"{request} was given to {worker}, which does not serve", (told, entry)
            case _:
                pass


def _serves(entry: Entry) -> bool:
    return isinstance(entry.event, WorkerState) and entry.event.to in FIT


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


def one_end(log: Log) -> Found:
    """Each worker exits once and is reaped once; a slot never holds two, and numbers go up."""
    living: dict[str, Entry] = {}
    exited: dict[str, Entry] = {}
    last: dict[str, int] = {}
    for entry in log:
        match entry.event:
            case WorkerSpawned(worker=worker, generation=generation):
                if worker in living:
                    yield (
                        f"{worker}/{generation} was started beside another",
                        (
                            living[worker],
                            entry,
                        ),
                    )
                if generation <= last.get(worker, 0) and generation != 1:
                    yield f"{worker}/{generation} follows {worker}/{last[worker]}", (entry,)
                living[worker], last[worker] = entry, generation
                exited.pop(worker, None)
            case WorkerExited(worker=worker, generation=generation):
                if _generation(living.get(worker)) != generation:
                    yield f"{worker}/{generation} exited and was not there", (entry,)
                elif worker in exited:
                    yield f"{worker}/{generation} exited twice", (exited[worker], entry)
                exited[worker] = entry
            case WorkerReaped(worker=worker, generation=generation):
                if _generation(living.pop(worker, None)) != generation:
                    yield f"{worker}/{generation} was reaped and was not there", (entry,)
                elif worker not in exited:
                    yield f"{worker}/{generation} was reaped without an exit", (entry,)
            case _:
                pass
    for worker, entry in living.items():
        yield f"{worker}/{last[worker]} was never reaped", (entry,)


def _generation(entry: Entry | None) -> int | None:
    return entry.event.generation if entry and isinstance(entry.event, WorkerSpawned) else None


def states_join(log: Log) -> Found:
    """A slot moves from the state that it was in, and is down at the end."""
    states: dict[str, Entry] = {}
    for entry in log:
        match entry.event:
            case WorkerState(worker=worker, from_=from_):
                before = states.get(worker)
                was = _to(before)
                if before is not None and from_ is not was:
                    yield f"{worker} moves from {from_}, and was {was}", (before, entry)
                states[worker] = entry
            case _:
                pass
    for worker, entry in states.items():
        if _to(entry) not in DOWN:
            yield f"{worker} is {_to(entry)} at the end", (entry,)


def _to(entry: Entry | None) -> SlotState | None:
    return entry.event.to if entry and isinstance(entry.event, WorkerState) else None


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


RULES: Mapping[str, Callable[[Log], Found]] = {
    rule.__name__: rule
    for rule in (
        numbered,
        from_start_to_stop,
        no_bug,
        one_record,
        one_settlement,
        to_the_fit,
        attempts_in_order,
        one_end,
        states_join,
        gauges_return,
    )
}
"""Rules that need nothing but the log; `in_time` needs bounds too."""
