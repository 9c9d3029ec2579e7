from __future__ import annotations

import array
import fcntl
import json
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from supervisord_llm.config.schema import LogConfig
from supervisord_llm.events import (
    ConfigReloaded,
    DaemonStarted,
    DaemonStopping,
    DaemonWarning,
    Event,
    HttpRefused,
    RequestAccepted,
    RequestFinished,
    WorkerLog,
    WorkerQuarantined,
    catalogue,
)
from supervisord_llm.telemetry.journal import encode
from supervisord_llm.telemetry.log import EventLog, Output
from supervisord_llm.telemetry.output import open_output
from supervisord_llm.telemetry.record import PRIORITIES, fields, make_record
from supervisord_llm.telemetry.ring import Ring
from supervisord_llm.telemetry.wording import SENTENCES, sentence

ACCEPTED = RequestAccepted(pool="smollm", request="req_1", queued=0)
QUARANTINED = WorkerQuarantined(
    pool="smollm",
    worker="smollm.0",
    generation=3,
    reason="protocol_error",
    stage="terminating",  # type: ignore[arg-type]
    detail="a line [no fields] {pool}",
    requests=["req_1"],
    last_lines=["first", "second=2"],
)


class Journal:
    """A socket in the place of the journal's."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "journal"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(self.path))
        self.socket.settimeout(0)

    def receive(self) -> dict[str, str]:
        """The next entry; one that came as a file must be sealed."""
        data, ancillary, _flags, _ = self.socket.recvmsg(1 << 20, 64)
        for _level, _kind, rights in ancillary:
            [fd] = array.array("i", rights)
            assert not data
            seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
            assert seals & fcntl.F_SEAL_WRITE and seals & fcntl.F_SEAL_SHRINK
            data = os.pread(fd, 1 << 26, 0)
            os.close(fd)
        return parsed(data)


def parsed(data: bytes) -> dict[str, str]:
    """An entry of the native protocol, read as its description says."""
    entry: dict[str, str] = {}
    while data:
        head, _, rest = data.partition(b"\n")
        name, equals, value = head.partition(b"=")
        if not equals:
            [length] = struct.unpack("<Q", rest[:8])
            value, rest = rest[8 : 8 + length], rest[8 + length :]
            assert rest[:1] == b"\n"
            rest = rest[1:]
        assert name.decode() not in entry
        entry[name.decode()] = value.decode()
        data = rest
    return entry


@pytest.fixture
def journal(tmp_path: Path, no_fd_leak: None) -> Iterator[Journal]:
    """A journal."""
    made = Journal(tmp_path)
    yield made
    made.socket.close()


@pytest.fixture
def stderr(no_fd_leak: None) -> Iterator[tuple[int, int]]:
    """A pipe in the place of stderr: where it is read, and where it is written."""
    read, write = os.pipe()
    yield read, write
    os.close(read)
    os.close(write)


def log_to(output: Output) -> EventLog:
    """An event log that writes there."""
    return EventLog(boot="b", ring=Ring(10), renderer=output)


def opened(journal: Path, fd: int, *, style: str = "journald", level: str = "info") -> Output:
    """What the configuration comes to."""
    config = LogConfig(format=style, level=level)  # type: ignore[arg-type]
    return open_output(config, journal=True, fd=fd, socket=str(journal))


def test_the_journal_gets_a_sentence_and_every_field(
    journal: Journal, stderr: tuple[int, int]
) -> None:
    """With the priority, and nothing on stderr: it would be there twice."""
    log = log_to(opened(journal.path, stderr[1]))
    log.publish(ACCEPTED)
    log.publish(QUARANTINED)
    log.close()
    assert journal.receive() == {
        "MESSAGE": "req_1 waits in pool smollm, 0 before it",
        "PRIORITY": "6",
        "SYSLOG_IDENTIFIER": "supervisord-llm",
        "SEQ": "1",
        "EVENT": "request.accepted",
        "POOL": "smollm",
        "REQUEST": "req_1",
        "QUEUED": "0",
    }
    assert journal.receive() == {
        "MESSAGE": "smollm.0/3 was judged unfit: protocol_error, a line [no fields] {pool}",
        "PRIORITY": "4",
        "SYSLOG_IDENTIFIER": "supervisord-llm",
        "SEQ": "2",
        "EVENT": "worker.quarantined",
        "POOL": "smollm",
        "WORKER": "smollm.0",
        "GENERATION": "3",
        "REASON": "protocol_error",
        "STAGE": "terminating",
        "DETAIL": "a line [no fields] {pool}",
        "REQUESTS": "req_1",
        "LAST_LINES": "first\nsecond=2",
    }
    os.set_blocking(stderr[0], False)
    with pytest.raises(BlockingIOError):
        os.read(stderr[0], 1)


def test_less_than_the_level_is_not_written(journal: Journal, stderr: tuple[int, int]) -> None:
    """The ring takes it all the same."""
    log = log_to(opened(journal.path, stderr[1], level="warning"))
    log.publish(ACCEPTED)
    log.publish(QUARANTINED)
    log.close()
    assert (2, "2") == (log.ring.last_seq, journal.receive()["SEQ"])


def test_what_is_too_long_for_a_datagram_goes_as_a_sealed_file(
    journal: Journal, stderr: tuple[int, int]
) -> None:
    """Nothing of it is cut off, and small entries go on as datagrams."""
    log = log_to(opened(journal.path, stderr[1]))
    long = DaemonWarning(topic="t", message="m" * 2_000_000, remedy="r")
    log.publish(long)
    log.publish(ACCEPTED)
    log.close()
    assert f"{long.message}; r" == journal.receive()["MESSAGE"]
    assert "request.accepted" == journal.receive()["EVENT"]


def test_a_journal_that_does_not_read_is_not_waited_for(
    journal: Journal, stderr: tuple[int, int]
) -> None:
    """What it does not take is dropped, and how much that was is told once it reads again."""
    log = EventLog(boot="b", ring=Ring(10), renderer=opened(journal.path, stderr[1]))
    for _ in range(2000):
        log.publish(ACCEPTED)
    taken = 0
    while True:
        try:
            taken = int(journal.receive()["SEQ"])
        except BlockingIOError:
            break
    assert 0 < taken < 2000
    log.publish(ACCEPTED)
    assert "2001" == journal.receive()["SEQ"]
    told = journal.receive()
    log.close()
    assert ("daemon.warning", "log", "4") == (told["EVENT"], told["TOPIC"], told["PRIORITY"])
    expected = f"cannot write all events to the journal: {2000 - taken} lines were dropped; "
    assert told["MESSAGE"].startswith(expected)


def test_without_a_journal_lines_with_priorities_go_to_stderr(
    tmp_path: Path, stderr: tuple[int, int]
) -> None:
    """All that the entry would have had; and the journal is used again as soon as it is there."""
    log = log_to(opened(tmp_path / "journal", stderr[1]))
    log.publish(QUARANTINED)
    line = os.read(stderr[0], 65536)
    assert b"<4>{" == line[:4]
    assert "smollm.0" == json.loads(line[3:])["worker"]
    back = Journal(tmp_path)
    log.publish(ACCEPTED)
    log.close()
    assert "request.accepted" == back.receive()["EVENT"]
    back.socket.close()


@pytest.mark.parametrize(
    ("style", "journal", "expected"),
    [
        ("auto", True, b"<6>{"),
        ("auto", False, b"{"),
        ("json", True, b"{"),
        ("journald", False, b"<6>{"),
    ],
)
def test_the_journal_is_chosen_where_stderr_leads_there(
    tmp_path: Path, stderr: tuple[int, int], style: str, journal: bool, expected: bytes
) -> None:
    """By ``auto``; a format that was asked for by name is that format anywhere."""
    config = LogConfig(format=style)  # type: ignore[arg-type]
    output = open_output(config, journal=journal, fd=stderr[1], socket=str(tmp_path / "none"))
    log = log_to(output)
    log.publish(ACCEPTED)
    log.close()
    assert expected == os.read(stderr[0], 65536)[: len(expected)]


def any_value(kind: type[Event]) -> st.SearchStrategy[Event]:
    """Events of a class, with whatever values its fields may have."""
    return st.builds(
        kind, **{each.name: st.from_type(each.type) for each in msgspec.structs.fields(kind)}
    )


# Events are made of many parts, which takes its time on a machine that is shared.
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(event=st.one_of([any_value(kind) for kind in catalogue().values()]))
def test_every_event_is_an_entry_whose_fields_cannot_be_forged(event: Event) -> None:
    """Whatever is in its values: the names are those of its own fields, the message is one line."""
    entry = parsed(encode(make_record(7, 0.0, event)))
    own = {name.upper() for name, value in fields(event).items() if value is not None}
    assert entry.keys() == own | {"MESSAGE", "PRIORITY", "SYSLOG_IDENTIFIER", "SEQ"}
    assert (str(PRIORITIES[event.level]), "7") == (entry["PRIORITY"], entry["SEQ"])
    assert all(each.isprintable() or each == "\t" for each in entry["MESSAGE"])


def test_every_event_has_its_sentence() -> None:
    """Each name of the catalogue, and no other."""
    assert catalogue().keys() == SENTENCES.keys()


@pytest.mark.parametrize("kind", catalogue().values())
def test_a_sentence_speaks_of_fields_that_exist(kind: type[Event]) -> None:
    """Each name in braces is a field of that event, or stands for the worker."""
    names = {each.encode_name for each in msgspec.structs.fields(kind)}
    if {"worker", "generation"} <= names:
        names |= {"who"}
    template = SENTENCES[str(kind.__struct_config__.tag)]
    assert {part.partition("}")[0] for part in template.split("{")[1:]} <= names


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (DaemonStopping(reason="SIGTERM"), "it stops because of SIGTERM"),
        (
            DaemonStopping(reason="SIGTERM", forced=True),
            "it stops because of SIGTERM, and waits for nothing",
        ),
        (
            ConfigReloaded(digest="d", differences=["pool a: added", "pool b: removed"]),
            "the configuration was read again: pool a: added, pool b: removed",
        ),
        (
            DaemonStarted(version="1", boot="b", pid=1, config="/\udcff.toml", digest="d"),
            "supervisord-llm 1 has started with /\\udcff.toml",
        ),
        (
            WorkerLog(
                pool="a", worker="a.0", generation=2, stream="stderr", line="\x1b[2J\nMESSAGE=x"
            ),
            "a.0/2: \\x1b[2J\\nMESSAGE=x",
        ),
        (
            RequestFinished(
                pool="a",
                request="r",
                outcome="cancelled",  # type: ignore[arg-type]
                cancelled_by="client",  # type: ignore[arg-type]
                queued_ms=0.0,
                total_ms=12.3456,
            ),
            "r is over after 12.346 ms: cancelled by client",
        ),
        (HttpRefused(status=0, reason="why", peer="p"), "p was refused with status 0: why"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Event) else "",
)
def test_a_sentence_leaves_out_what_does_not_apply(event: Event, expected: str) -> None:
    """And holds nothing that could end its line."""
    assert expected == sentence(fields(event))
