"""The words of a configuration's problems: what was found, and what may be written instead."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import inspect

from supervisord_llm.config import units
from supervisord_llm.config.problems import join


def unwrap(kind: inspect.Type) -> tuple[inspect.Type, Mapping[str, Any]]:
    """The type without its metadata, and what ``schema`` said in ``extra``.

    Of a type that may be ``None``, the other one, and in ``extra`` that it is ``optional``.
    """
    if isinstance(kind, inspect.Metadata):
        return kind.type, kind.extra or {}
    if isinstance(kind, inspect.UnionType) and kind.includes_none:
        other = next(each for each in kind.types if not isinstance(each, inspect.NoneType))
        below, extra = unwrap(other)
        return below, {**extra, "optional": True}
    return kind, {}


def wanted(kind: inspect.Type, extra: Mapping[str, Any]) -> str:
    """What may be written, as the end of a sentence that begins with "write"."""
    if extra.get("optional"):
        return f'{wanted(kind, {**extra, "optional": False})}, or "" for none'
    if "wanted" in extra:
        return str(extra["wanted"])
    if quantity := _quantity(kind, extra.get("unit")):
        return quantity
    match kind:
        case inspect.IntType():
            return f"a whole number from {kind.ge} to {kind.le}"
        case inspect.FloatType():
            return f"a number from {kind.ge:g} to {kind.le:g}"
        case inspect.BoolType():
            return "true or false"
        case inspect.UnionType():
            return " or ".join(wanted(*unwrap(each)) for each in kind.types)
        case inspect.LiteralType() if len(kind.values) == 1:
            return f'"{kind.values[0]}"'
        case inspect.LiteralType():
            return "one of " + ", ".join(f'"{each}"' for each in kind.values)
        case inspect.VarTupleType():
            item, its_extra = unwrap(kind.item_type)
            return f"a list, each {wanted(item, its_extra)}"
        case inspect.DictType():
            return 'a table, such as { NAME = "value" }'
        case _:
            return "text in quotes"


def _quantity(kind: inspect.Type, unit: str | None) -> str:
    match kind, unit:
        case inspect.FloatType(), "duration":
            least, most = units.format_duration(kind.ge or 0), units.format_duration(kind.le or 0)
            return f'a duration from "{least}" to "{most}", such as "2s"'
        case inspect.IntType(), "size":
            least, most = units.format_size(kind.ge or 0), units.format_size(kind.le or 0)
            return f'a size from "{least}" to "{most}", such as "1MiB"'
        case inspect.VarTupleType(), "cpus":
            return 'cores, such as "0-3" or [0, 1, 2, 3]'
        case _:
            return ""


def closest(raw: object, words: Sequence[object]) -> str:
    """A question after the word that was meant, in brackets; empty if none is near."""
    known = [word for word in words if isinstance(word, str)]
    close = difflib.get_close_matches(raw, known, n=1) if isinstance(raw, str) else []
    return f' (did you mean "{close[0]}"?)' if close else ""


def unknown(key: str, kind: inspect.StructType, path: str) -> str:
    """What to do about a key that is not there: spell it rightly, move it, or take it out."""
    for field in kind.fields:
        below = unwrap(field.type)[0]
        if isinstance(below, inspect.StructType) and key in _names(below):
            return f"unknown here; move it to [{join(path, field.encode_name)}]"
    names = _names(kind)
    if close := difflib.get_close_matches(key, names, n=1):
        return f'unknown key; did you mean "{close[0]}"?'
    return f"unknown key; remove it (there are: {', '.join(names)})"


def _names(kind: inspect.StructType) -> list[str]:
    return [field.encode_name for field in kind.fields]


def shown(raw: object) -> str:
    """A value of the file as a message shows it: text and numbers, or what else it is."""
    if isinstance(raw, str):
        return units.show(raw)
    if isinstance(raw, bool):
        return "true" if raw else "false"
    if isinstance(raw, int | float):
        return str(raw) if isinstance(raw, float) or abs(raw) < 10**30 else "so large a number"
    return kind_of(raw)


def kind_of(raw: object) -> str:
    """What a value of the file is, without saying it."""
    match raw:
        case str():
            return "this text"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case dict():
            return "a table"
        case list():
            return "a list"
        case _:
            return "a date or time"
