"""The daemon's event log, read back: every line is an event of the catalogue, or evidence."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import reduce
from typing import Any

import msgspec

from supervisord_llm import events
from supervisord_llm.events import Event


class Entry(msgspec.Struct, frozen=True):
    """One line of the log."""

    seq: int
    at: float
    """Seconds since the Unix epoch, on the daemon's wall clock."""
    event: Event
    line: str
    """As it was written, for a report."""


class Violation(msgspec.Struct, frozen=True):
    """Something that must never happen, and the lines that show it."""

    rule: str
    message: str
    lines: tuple[str, ...] = ()


Log = Sequence[Entry]
Found = Iterator[tuple[str, tuple[Entry, ...]]]
"""What a rule finds: what is wrong, and the entries that show it."""


class _Head(msgspec.Struct, frozen=True):
    ts: datetime
    seq: int


_KINDS: Any = reduce(operator.or_, events.catalogue().values())
_HEADS = msgspec.json.Decoder(_Head)
_EVENTS: msgspec.json.Decoder[Event] = msgspec.json.Decoder(_KINDS)


def read(lines: Iterable[bytes]) -> tuple[list[Entry], list[Violation]]:
    """Decode the lines of a log that is complete; what is no event is a violation each."""
    entries: list[Entry] = []
    violations: list[Violation] = []
    for line in lines:
        try:
            entries.append(parse(line))
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            shown = line[:2000].decode("utf-8", "replace").rstrip("\n")
            violations.append(Violation("log", f"a line is no event: {error}", (shown,)))
    return entries, violations


def parse(line: bytes) -> Entry:
    """Decode one line.

    Raises:
        msgspec.MsgspecError: if it is not an event of the catalogue.
    """
    head = _HEADS.decode(line)
    return Entry(head.seq, head.ts.timestamp(), _EVENTS.decode(line), line.decode().rstrip("\n"))


def make(seq: int, at: float, event: Event) -> Entry:
    """Make the entry that the log would have for an event; for logs made by hand."""
    return Entry(seq, at, event, msgspec.json.encode(event).decode())
