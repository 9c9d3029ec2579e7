"""Strict decoding of what clients send, bodies and query strings, naming the offending field."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request

from supervisord_llm.errors import InvalidRequest

T = TypeVar("T")

_PATH = re.compile(r" - at `\$\.?(?P<path>.*)`$")
_FIELD = re.compile(r"Object (?P<what>contains unknown|missing required) field `(?P<name>.*?)`")
_LONGEST_NAME = 80
"""Characters of a name that a client made up, in messages and events."""


def decode_body(body: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    """Decode a JSON body. Raises ``InvalidRequest`` with the field's path in ``param``."""
    if not body.strip():
        raise InvalidRequest("cannot read the body: it is empty; send a JSON object")
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise _invalid_field(str(error)) from None
    except RecursionError:
        raise InvalidRequest(
            "cannot read the body: it is nested too deeply; send a flatter one"
        ) from None
    except (msgspec.DecodeError, UnicodeError) as error:
        raise InvalidRequest(
            f"cannot read the body as JSON: {error}; send one JSON object in UTF-8"
        ) from None


def _invalid_field(text: str) -> InvalidRequest:
    """Turn msgspec's sentence into ours: where, what, and the field's name in ``param``."""
    at = _PATH.search(text)
    path = at["path"] if at else ""
    what = text[: at.start()] if at else text
    if field := _FIELD.match(what):
        path = f"{path}.{field['name']}" if path else field["name"]
        missing = field["what"] == "missing required"
        what = "it is missing; add it" if missing else "there is no such field; leave it out"
    elif "out of range" in what:
        what = "its number is too large; send a smaller one"
    path = _shortened(path)
    where = f"field {path!r}" if path else "the body"
    return InvalidRequest(f"cannot use {where}: {what[0].lower()}{what[1:]}", param=path or None)


def _shortened(name: str) -> str:
    """Cut what the client made up to what a message or an event has room for."""
    return name if len(name) <= _LONGEST_NAME else name[:_LONGEST_NAME] + "…"


Parser = Callable[[str, str], Any]
"""From a query parameter's name and text to its value; raises ``InvalidRequest``."""


def read_query(request: Request, **parsers: Parser) -> dict[str, Any]:
    """Parse the query string. Raises ``InvalidRequest`` for unknown, repeated or bad parameters."""
    found: dict[str, Any] = {}
    for name, text in request.query_params.multi_items():
        if name not in parsers:
            known = f"; there are: {', '.join(parsers)}" if parsers else ""
            unknown = _shortened(name)
            raise InvalidRequest(
                f"cannot use query parameter {unknown!r}: there is no such one here; leave it out"
                f"{known}",
                param=unknown,
            )
        if name in found:
            raise InvalidRequest(
                f"cannot use query parameter {name!r}: given twice; give it once", param=name
            )
        found[name] = parsers[name](name, text)
    return found


def as_bool(name: str, text: str) -> bool:
    """``true`` or ``false``; a bare ``?name`` is true."""
    if text in {"", "true"}:
        return True
    if text == "false":
        return False
    raise InvalidRequest(
        f"cannot use query parameter {name!r}: {text[:40]!r} is neither true nor false", param=name
    )


def as_seq(name: str, text: str) -> int:
    """Return a sequence number: 0 to 2**63 - 1, in decimal digits."""
    if re.fullmatch(r"[0-9]{1,19}", text) and (number := int(text)) < 2**63:
        return number
    raise InvalidRequest(
        f"cannot use query parameter {name!r}: {text[:40]!r} is not a sequence number; write "
        "decimal digits",
        param=name,
    )


def as_count(name: str, text: str) -> int:
    """Return how many of something: 0 to 1,000,000, in decimal digits."""
    if re.fullmatch(r"[0-9]{1,7}", text) and (number := int(text)) <= 1_000_000:
        return number
    raise InvalidRequest(
        f"cannot use query parameter {name!r}: {text[:40]!r} is not a count; write decimal digits, "
        "at most 1000000",
        param=name,
    )
