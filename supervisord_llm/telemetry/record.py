"""One published event with what the log adds to it, and its one encoding.

The encoding is made once; the log in JSON and the ring share its bytes, so that what an operator
reads and what a follower is sent cannot differ.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from supervisord_llm.events import Event, Level

PRIORITIES: Mapping[Level, int] = {"debug": 7, "info": 6, "warning": 4, "error": 3}
"""How grave the levels are, as syslog(3) counts: the lower, the graver."""

_encoder = msgspec.json.Encoder()

_CONTROLS = re.compile(rb"\xc2[\x80-\x9f]|\x7f")
"""The control characters that JSON leaves as they are, U+007F to U+009F, in UTF-8.

Some terminals obey them like escape sequences, and logs are looked at on terminals.
"""


class Record(msgspec.Struct, frozen=True):
    """An event, when it was published, and as which."""

    seq: int
    time: float
    """Seconds since the Unix epoch on the wall clock, which may be set back; ``seq`` may not."""
    event: Event
    encoded: bytes
    """One JSON object without a newline: ``ts``, ``seq``, ``level``, ``event``, its fields.

    Nothing in it is obeyed by a terminal.
    """


def make_record(seq: int, time: float, event: Event) -> Record:
    """Encode an event as number ``seq``, published at ``time`` (seconds since the Unix epoch)."""
    moment = datetime.fromtimestamp(time, UTC).isoformat(timespec="microseconds")
    head = f'{{"ts":"{moment.removesuffix("+00:00")}Z","seq":{seq},"level":"{event.level}",'
    encoded = head.encode() + _encode(event)[1:]
    if b"\xc2" in encoded or b"\x7f" in encoded:
        encoded = _CONTROLS.sub(lambda found: b"\\u%04x" % found[0][-1], encoded)
    return Record(seq, time, event, encoded)


def fields(event: Event) -> dict[str, Any]:
    """An event's name under ``event`` and its fields, as plain values that can be encoded."""
    found = _clean(msgspec.to_builtins(event))
    assert isinstance(found, dict)
    return found


def _encode(event: Event) -> bytes:
    try:
        return _encoder.encode(event)
    except UnicodeEncodeError:
        # Arguments and paths of the system are bytes; what was not UTF-8 came here as surrogates.
        return _encoder.encode(fields(event))


def _clean(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_clean(key): _clean(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_clean(entry) for entry in value]
    return value
