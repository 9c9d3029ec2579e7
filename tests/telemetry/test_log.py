from __future__ import annotations

import io
import json
import os
import select
from collections.abc import Callable, Iterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisord_llm.core.words import (
    Outcome,
    Resolution,
    SlotState,
    TeardownStage,
)
from supervisord_llm.events import (
    CancelSettled,
    DaemonError,
    DaemonStarted,
    DaemonStopped,
    DaemonWarning,
    Event,
    RequestAccepted,
    RequestFinished,
    RequestRejected,
    WorkerLog,
    WorkerParked,
    WorkerQuarantined,
    WorkerRestartScheduled,
    WorkerState,
    catalogue,
)
from supervisord_llm.telemetry.log import EventLog
from supervisord_llm.telemetry.render import Renderer, stderr_renderer
from supervisord_llm.telemetry.ring import Ring
from supervisord_llm.telemetry.sink import LineSink
from supervisord_llm.telemetry.totals import Totals

NOON = 1_767_268_800.123456  # 2026-01-01T12:00:00.123456Z
ACCEPTED = RequestAccepted(pool="smollm", request="req_1", queued=0)
STATE = WorkerState(
    pool="smollm", worker="smollm.0", generation=3, from_=SlotState.READY, to=SlotState.BUSY
)


class Stderr:
    """A pipe in the place of stderr, and what was written to it."""

    def __init__(self) -> None:
        self.read_fd, self.fd = os.pipe()

    def read(self) -> str:
        """What was written since the last time."""
        found = io.BytesIO()
        while select.select([self.read_fd], [], [], 0)[0]:
            if not (data := os.read(self.read_fd, 65536)):
                break
            found.write(data)
        return found.getvalue().decode()

    def close(self) -> None:
        """Close both ends."""
        os.close(self.read_fd)
        os.close(self.fd)


@pytest.fixture
def stderr(no_fd_leak: None) -> Iterator[Stderr]:
    """A pipe in the place of stderr."""
    pipe = Stderr()
    yield pipe
    pipe.close()


def console_line(stderr: Stderr, event: Event, *, colours: bool = False) -> str:
    """How a person sees an event, without the time of day, which depends on the place."""
    renderer = Renderer(LineSink(stderr.fd), style="console", level="debug", colours=colours)
    log = EventLog(boot="b", ring=Ring(10), renderer=renderer, wall_clock=lambda: NOON)
    log.publish(event)
    log.close()
    text = stderr.read()
    if not colours:
        assert text[2::3][:2] == "::"
        assert text[8:12] == ".123"
    return text.removesuffix("\n") if colours else text[13:].removesuffix("\n")


def test_an_event_is_written_as_one_json_object_in_a_fixed_order(stderr: Stderr) -> None:
    """When, which, how grave, what; then the event's own fields in the catalogue's order."""
    log = EventLog(
        boot="b",
        ring=Ring(10),
        renderer=stderr_renderer(style="json", level="info", fd=stderr.fd),
        wall_clock=lambda: NOON,
    )
    log.publish(ACCEPTED)
    log.close()
    assert stderr.read() == (
        '{"ts":"2026-01-01T12:00:00.123456Z","seq":1,"level":"info","event":"request.accepted",'
        '"pool":"smollm","request":"req_1","queued":0}\n'
    )


async def test_the_ring_keeps_exactly_what_was_written(stderr: Stderr) -> None:
    """An operator who reads the log and one who follows the API see the same bytes."""
    renderer = stderr_renderer(style="json", level="debug", fd=stderr.fd)
    log = EventLog(boot="b", ring=Ring(10), renderer=renderer)
    assert [log.publish(event) for event in (ACCEPTED, STATE)] == [1, 2]
    log.close()
    kept = await log.ring.follow(None, live=False).next_batch()
    assert isinstance(kept, list)
    assert stderr.read().encode() == b"".join(line + b"\n" for line in kept)


async def test_the_level_filters_what_is_written_and_nothing_else(stderr: Stderr) -> None:
    """Followers and counters see debug events however the log is set."""
    seen: list[tuple[int, Event]] = []
    log = EventLog(
        boot="b",
        ring=Ring(10),
        renderer=stderr_renderer(style="json", level="warning", fd=stderr.fd),
        consumers=[lambda seq, event: seen.append((seq, event))],
    )
    warning = DaemonWarning(topic="t", message="m", remedy="r")
    for event in (STATE, ACCEPTED, warning):
        log.publish(event)
    log.close()
    assert [json.loads(line)["seq"] for line in stderr.read().splitlines()] == [3]
    assert seen == [(1, STATE), (2, ACCEPTED), (3, warning)]
    assert log.ring.last_seq == 3


def test_an_optional_field_that_does_not_apply_is_left_out(stderr: Stderr) -> None:
    """Only what is known is said."""
    log = EventLog(
        boot="b", ring=Ring(1), renderer=stderr_renderer(style="json", level="info", fd=stderr.fd)
    )
    log.publish(DaemonWarning(topic="cores", message="m", remedy="r", pool="smollm"))
    log.close()
    record = json.loads(stderr.read())
    assert list(record) == ["ts", "seq", "level", "event", "topic", "message", "remedy", "pool"]


def test_a_failing_consumer_hurts_nobody_and_is_told_of_once() -> None:
    """Neither the publisher nor the other consumers notice, but the log does."""
    seen: list[tuple[int, str]] = []

    def broken(_seq: int, _event: Event) -> None:
        raise KeyError("gauge")

    def healthy(seq: int, event: Event) -> None:
        seen.append((seq, type(event).__name__))
        if isinstance(event, DaemonError):
            errors.append(event)

    errors: list[DaemonError] = []
    log = EventLog(boot="b", ring=Ring(10), consumers=[broken, healthy])
    assert log.publish(ACCEPTED) == 1
    assert log.publish(STATE) == 3
    assert seen == [(1, "RequestAccepted"), (2, "DaemonError"), (3, "WorkerState")]
    assert errors[0].error == "KeyError: 'gauge'"
    assert "broken" in errors[0].where
    assert "in broken" in errors[0].traceback


def test_lines_that_stderr_did_not_take_are_told_of_when_it_works_again(stderr: Stderr) -> None:
    """How many, as an event like any other; and not more often than every few seconds."""
    now = 100.0
    log = EventLog(
        boot="b",
        ring=Ring(100_000),
        renderer=stderr_renderer(style="json", level="info", fd=stderr.fd),
        clock=lambda: now,
    )

    def overflow() -> int:
        first = log.ring.last_seq
        for _ in range(5000):
            log.publish(ACCEPTED)
        written = [json.loads(line)["seq"] for line in stderr.read().splitlines()]
        return 5000 - len([seq for seq in written if seq > first])

    lost = overflow()
    assert lost > 0
    log.publish(ACCEPTED)
    events = [json.loads(line) for line in stderr.read().splitlines()]
    assert [event["event"] for event in events] == ["request.accepted", "daemon.warning"]
    assert events[1]["topic"] == "log"
    assert f"{lost} lines were dropped" in events[1]["message"]

    now += 1.0
    again = overflow()
    log.publish(ACCEPTED)
    assert "daemon.warning" not in stderr.read()
    now += 5.0
    log.publish(ACCEPTED)
    assert f"{again} lines were dropped" in stderr.read()
    log.close()


def test_without_a_renderer_events_are_kept_all_the_same() -> None:
    """Writing is one of the consumers, not the purpose."""
    log = EventLog(boot="b", ring=Ring(10))
    assert log.publish(ACCEPTED) == 1
    log.close()


def test_bytes_of_the_system_that_are_no_text_are_made_visible(stderr: Stderr) -> None:
    """A path need not be UTF-8; the log must be."""
    log = EventLog(
        boot="b", ring=Ring(1), renderer=stderr_renderer(style="json", level="info", fd=stderr.fd)
    )
    log.publish(DaemonStarted(version="1", boot="b", pid=1, config="/\udcff.toml", digest="d"))
    log.close()
    assert json.loads(stderr.read())["config"] == "/\\udcff.toml"


def any_value(kind: type[Event]) -> st.SearchStrategy[Event]:
    """Events of a class, with whatever values its fields may have."""
    fields = {each.name: st.from_type(each.type) for each in msgspec.structs.fields(kind)}
    return st.builds(kind, **fields)


@given(event=st.one_of([any_value(kind) for kind in catalogue().values()]))
def test_every_event_is_one_line_of_json_and_can_be_shown(event: Event) -> None:
    """Whatever is in its fields: one record, its name, and no way out of its line."""
    stderr = Stderr()
    ring = Ring(1)
    for style in ("json", "console"):
        renderer = stderr_renderer(style=style, level="debug", fd=stderr.fd)
        log = EventLog(boot="b", ring=ring, renderer=renderer)
        log.publish(event)
        log.close()
        text = stderr.read()
        if style == "json":
            assert text.count("\n") == 1
            record = json.loads(text)
            assert record["event"] == msgspec.json.decode(msgspec.json.encode(event))["event"]
            assert record["level"] == event.level
        else:
            assert all(each.isprintable() or each in "\n\t" for each in text)
    stderr.close()


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (
            STATE,
            "debug   worker.state             smollm.0/3 from=ready to=busy",
        ),
        (
            RequestFinished(
                pool="smollm",
                request="req_1",
                outcome=Outcome.COMPLETED,
                queued_ms=0.5,
                total_ms=12.25,
            ),
            (
                "info    request.finished         smollm req_1 "
                "outcome=completed queued_ms=0.5 total_ms=12.25"
            ),
        ),
        (
            WorkerLog(
                pool="smollm",
                worker="smollm.0",
                generation=3,
                stream="stderr",
                line="load: 12 = \x1b[2J\x9b31m\tü",
                dropped=4,
            ),
            "info    worker.log               smollm.0/3 load: 12 = \\x1b[2J\\x9b31m\tü dropped=4",
        ),
        (
            WorkerQuarantined(
                pool="smollm",
                worker="smollm.0",
                generation=3,
                reason="protocol_error",
                stage=TeardownStage.TERMINATING,
                detail='a "line"\nof garbage',
                requests=["req_1"],
                last_lines=["first line", "second\r"],
            ),
            (
                "warning worker.quarantined       smollm.0/3 reason=protocol_error "
                'stage=terminating detail="a \\"line\\"\\nof garbage" requests=["req_1"]\n'
                "    first line\n    second\\r"
            ),
        ),
        (
            WorkerParked(
                pool="smollm", worker="smollm.0", generation=3, reason="", exit=None, restarts=6
            ),
            'error   worker.parked            smollm.0/3 reason="" restarts=6',
        ),
        (
            DaemonError(id="1f", where="here", error="E: e", traceback="Traceback:\n  line\x07\n"),
            (
                'error   daemon.error             id=1f where=here error="E: e"\n'
                "Traceback:\n  line\\x07"
            ),
        ),
        (DaemonStopped(exit_code=0), "info    daemon.stopped           exit_code=0"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Event) else "",
)
def test_a_person_reads_columns(stderr: Stderr, event: Event, expected: str) -> None:
    """Level, event, who, then what is left; nothing in it can steer the terminal."""
    assert console_line(stderr, event) == expected


def test_colours_are_only_around_the_columns(stderr: Stderr) -> None:
    """The text is the same as without."""
    coloured = console_line(stderr, STATE, colours=True)
    assert "\033[1mworker.state" in coloured
    bare = coloured
    for code in (0, 1, 2, 31, 32, 33, 36):
        bare = bare.replace(f"\033[{code}m", "")
    assert bare[13:] == console_line(stderr, STATE)


@pytest.mark.parametrize(
    ("environ", "coloured"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False), ({"NO_COLOR": ""}, True)],
)
def test_a_terminal_gets_columns_by_itself(environ: dict[str, str], coloured: bool) -> None:
    """``auto`` looks at the descriptor; NO_COLOR and a dumb terminal are respected."""
    leader, terminal = os.openpty()
    log = EventLog(
        boot="b",
        ring=Ring(1),
        renderer=stderr_renderer(style="auto", level="info", fd=terminal, environ=environ),
    )
    log.publish(ACCEPTED)
    log.close()
    text = os.read(leader, 4096).decode()
    os.close(leader)
    os.close(terminal)
    assert "request.accepted" in text
    assert not text.startswith("{")
    assert coloured == ("\033[" in text)


def test_a_pipe_gets_json_by_itself(stderr: Stderr) -> None:
    """``auto`` is JSON where nobody is looking."""
    log = EventLog(
        boot="b", ring=Ring(1), renderer=stderr_renderer(style="auto", level="info", fd=stderr.fd)
    )
    log.publish(ACCEPTED)
    log.close()
    assert json.loads(stderr.read())["event"] == "request.accepted"


def test_a_daemon_without_stderr_still_publishes() -> None:
    """A closed descriptor is no reason to stop."""
    read, write = os.pipe()
    os.close(read)
    os.close(write)
    log = EventLog(
        boot="b", ring=Ring(1), renderer=stderr_renderer(style="auto", level="info", fd=write)
    )
    assert log.publish(ACCEPTED) == 1
    log.close()


def finished(outcome: Outcome) -> RequestFinished:
    """A request's end."""
    return RequestFinished(pool="p", request="r", outcome=outcome, queued_ms=0.0, total_ms=1.0)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: ACCEPTED, "accepted"),
        (lambda: finished(Outcome.COMPLETED), "completed"),
        (lambda: finished(Outcome.CANCELLED), "cancelled"),
        (lambda: finished(Outcome.FAILED), "failed"),
        (lambda: RequestRejected(code="queue_full"), "rejected"),
        (
            lambda: WorkerRestartScheduled(
                pool="p", worker="p.0", generation=1, attempt=1, delay_ms=0.0, reason="r"
            ),
            "restarts",
        ),
        (lambda: STATE, None),
    ],
)
def test_each_event_counts_in_at_most_one_total(
    make: Callable[[], Event], name: str | None
) -> None:
    """The totals of the status come from the same events as everything else."""
    totals = Totals()
    log = EventLog(boot="b", ring=Ring(1), consumers=[totals])
    log.publish(make())
    log.publish(make())
    expected = dict(vars(Totals()))
    if name is not None:
        expected[name] = 2
    assert vars(totals) == expected


def test_cancellations_are_counted_by_what_became_of_the_worker() -> None:
    """Those that never came about are not there."""
    totals = Totals()
    for resolution in (Resolution.KILLED, Resolution.COOPERATIVE, Resolution.KILLED):
        totals(1, CancelSettled(pool="p", request="r", resolution=resolution, elapsed_ms=1.0))
    assert {Resolution.KILLED: 2, Resolution.COOPERATIVE: 1} == totals.cancellations
