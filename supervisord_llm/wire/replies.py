"""One line from a worker to one reply: syntax alone, blind to what was asked.

Keys that are not known here are passed over, because models add their own; those that are known are
held to their types, strictly: ``true`` is no number. Which kind of reply a line is follows from the
one key of `_KINDS` in it; two of them, or none, make no sense.

An empty line is malformed like any other line that is not an object: stdout belongs to the
protocol, and a library that prints an empty line to it will print others.
"""

from __future__ import annotations

import json
from typing import Annotated

import msgspec

from supervisord_llm.core.words import Extension, FinishReason
from supervisord_llm.wire.messages import Count, Heartbeat, Milliseconds, Model, Pong, SessionOp

_SHOWN = 200
"""How many bytes of a malformed line are shown."""

_COMPLAINT = 500
"""How many characters of an error are kept: it stays with its request, and in the event log."""


class MalformedLine(Exception):
    """A line that breaks the protocol; the message says how, and shows the line's beginning."""

    def __init__(self, problem: str, line: bytes) -> None:
        super().__init__(f"{problem}: {show(line)}")


class ReadyLine(msgspec.Struct, frozen=True, kw_only=True):
    """The model is loaded; what the worker can do."""

    max_sessions: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] = 1
    max_named_sessions: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] = 0
    supports_cancel: bool = False
    multiplexed: bool = False
    extensions: tuple[Extension, ...] = ()
    """Those offered that are known, in the order of `Extension`."""
    model: Model | None = None


class TokenLine(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """A piece of output, in the one shape that almost every line has."""

    token: str


class DoneLine(msgspec.Struct, frozen=True, kw_only=True):
    """The terminal of a request that ran."""

    finish_reason: FinishReason
    prompt_tokens: Count
    completion_tokens: Count
    cancelled: bool = False
    reused_prompt_tokens: Count = 0
    prefill_ms: Milliseconds | None = None
    decode_ms: Milliseconds | None = None
    total_ms: Milliseconds | None = None


class ErrorLine(msgspec.Struct, frozen=True):
    """An operation was refused or failed."""

    error: str
    code: str | None = None


class SessionLine(msgspec.Struct, frozen=True):
    """An operation on a session was done; workers name the session, but need not."""

    op: SessionOp
    session_id: str | None = None


Reply = ReadyLine | TokenLine | DoneLine | ErrorLine | SessionLine | Pong | Heartbeat


class _Token(msgspec.Struct, frozen=True):
    token: str


class _Pong(msgspec.Struct, frozen=True):
    pong: Count


class _Heartbeat(msgspec.Struct, frozen=True):
    heartbeat: Heartbeat


class _Session(msgspec.Struct, frozen=True):
    session_id: str | None = None


class _Offered(msgspec.Struct, frozen=True):
    extensions: list[str] = []


_DONE_TO_A_SESSION = {
    "opened": SessionOp.OPEN,
    "closed": SessionOp.CLOSE,
    "reset": SessionOp.RESET,
}

_KINDS = frozenset(("ready", "token", "done", "error", "pong", "heartbeat", *_DONE_TO_A_SESSION))

_Object = dict[str, object]
_values = msgspec.json.Decoder()


def show(line: bytes) -> str:
    """Return the beginning of a line with everything but printable ASCII escaped."""
    if not line:
        return "(an empty line)"
    shown = line[:_SHOWN].decode("latin-1").encode("unicode_escape").decode("ascii")
    return f"{shown}…" if len(line) > _SHOWN else shown


def parse(line: bytes) -> Reply:
    """Return what a line says.

    Raises:
        MalformedLine: it says nothing, or something impossible.
    """
    fields = _read_object(line)
    kinds = _KINDS & fields.keys()
    if len(kinds) != 1:
        named = ", ".join(sorted(kinds))
        raise MalformedLine(
            f"a message of several kinds ({named})" if kinds else "an unknown message", line
        )
    (kind,) = kinds
    try:
        return _reply(kind, fields, line)
    except msgspec.ValidationError as error:
        raise MalformedLine(f"a malformed {kind!r} message ({error})", line) from None


def _read_object(line: bytes) -> _Object:
    try:
        value = _values.decode(line)
        # msgspec keeps the last of two equal keys; the standard library shows both.
        json.loads(line, object_pairs_hook=_refuse_repetition)
    except _Repeated as error:
        raise MalformedLine(f"a JSON object with the key {str(error)!r} twice", line) from None
    except RecursionError:
        raise MalformedLine("JSON nested too deep", line) from None
    except msgspec.ValidationError:
        raise MalformedLine("JSON with a number out of range", line) from None
    except ValueError:
        raise MalformedLine("not JSON", line) from None
    if not isinstance(value, dict):
        raise MalformedLine("not a JSON object", line)
    return value


class _Repeated(Exception):
    pass


def _refuse_repetition(pairs: list[tuple[str, object]]) -> None:
    seen = set()
    for key, _ in pairs:
        if key in seen:
            raise _Repeated(key[:40])
        seen.add(key)


def _reply(kind: str, fields: _Object, line: bytes) -> Reply:
    match kind:
        case "token":
            return TokenLine(msgspec.convert(fields, _Token).token)
        case "done":
            _acknowledge(kind, fields, line)
            return _done(msgspec.convert(fields, DoneLine), line)
        case "error":
            said = msgspec.convert(fields, ErrorLine)
            return ErrorLine(_cut(said.error), None if said.code is None else _cut(said.code))
        case "pong":
            return Pong(msgspec.convert(fields, _Pong).pong)
        case "heartbeat":
            return msgspec.convert(fields, _Heartbeat).heartbeat
        case "ready":
            return _ready(fields, line)
        case _:
            _acknowledge(kind, fields, line)
            session_id = msgspec.convert(fields, _Session).session_id
            return SessionLine(_DONE_TO_A_SESSION[kind], session_id)


def _cut(text: str) -> str:
    return text if len(text) <= _COMPLAINT else f"{text[:_COMPLAINT]}…"


def _acknowledge(kind: str, fields: _Object, line: bytes) -> None:
    if fields[kind] is not True:
        raise MalformedLine(f"the value of {kind!r} is not true", line)


def _done(done: DoneLine, line: bytes) -> DoneLine:
    if done.cancelled and done.finish_reason is not FinishReason.STOP:
        raise MalformedLine(f"cancelled, but with finish_reason {str(done.finish_reason)!r}", line)
    if done.reused_prompt_tokens > done.prompt_tokens:
        raise MalformedLine("reused more prompt tokens than the prompt has", line)
    return done


def _ready(fields: _Object, line: bytes) -> ReadyLine:
    """Read a ready line as upstream does: any truthy ``ready``, a literal ``true`` elsewhere."""
    if not fields["ready"]:
        raise MalformedLine("says that it is not ready", line)
    offered = msgspec.convert(fields, _Offered).extensions
    extensions = tuple(each for each in Extension if each in offered)
    used = dict(fields, extensions=extensions)
    for flag in ("supports_cancel", "multiplexed"):
        used[flag] = fields.get(flag) is True
    if Extension.MODEL not in extensions:
        used["model"] = None
    return msgspec.convert(used, ReadyLine)
