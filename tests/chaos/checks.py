"""What must hold whatever went wrong, judged from a complete event log alone.

A rule reads the whole log and yields what contradicts it. `RULES` and `BOUNDED` name all of them;
each has a log made by hand that breaks it (``test_checks.py``), since a check that cannot fail
checks nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise

from supervisord_llm.events import DaemonError, DaemonStarted, DaemonStopped, RequestFinished
from tests.chaos.log import Entry, Found, Log, Violation
from tests.chaos.request_rules import (
    Bounds,
    attempts_in_order,
    few_attempts,
    gauges_return,
    in_time,
    one_record,
    one_settlement,
    retried_when_lost,
)
from tests.chaos.worker_rules import (
    one_after_the_other,
    one_end,
    one_on_a_device,
    parked_is_told,
    states_join,
    to_the_fit,
)


def check(log: Log, bounds: Bounds) -> list[Violation]:
    """Everything in a complete log that breaks a rule."""
    found = [
        Violation(name, message, tuple(entry.line for entry in entries))
        for name, rule in RULES.items()
        for message, entries in rule(log)
    ]
    for name, bounded in BOUNDED.items():
        for message, entries in bounded(log, bounds):
            found.append(Violation(name, message, tuple(entry.line for entry in entries)))
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
        retried_when_lost,
        one_end,
        one_after_the_other,
        parked_is_told,
        states_join,
        gauges_return,
    )
}
"""Rules that need nothing but the log."""

BOUNDED: Mapping[str, Callable[[Log, Bounds], Found]] = {
    rule.__name__: rule for rule in (in_time, few_attempts, one_on_a_device)
}
"""Rules that need to know what was configured."""
