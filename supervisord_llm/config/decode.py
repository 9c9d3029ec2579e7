"""Turns what a TOML parser gives into the Structs of ``schema`` and names everything that is wrong.

msgspec's own conversion stops at the first problem and does not say under which name of a table it
was found, so the Structs' fields are walked here, and their annotations read through
``msgspec.inspect``. What cannot be used is replaced by its default: the checks that follow then
still see all the rest, and the operator every problem at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

import msgspec
from msgspec import inspect

from supervisord_llm.config import units
from supervisord_llm.config.problems import Problems, join
from supervisord_llm.config.templates import read_template
from supervisord_llm.config.wording import closest, kind_of, shown, unknown, unwrap, wanted

S = TypeVar("S", bound=msgspec.Struct)

_UNUSABLE = object()

_PARSERS: dict[str, Callable[[str], object]] = {
    "duration": units.parse_duration,
    "size": units.parse_size,
    "template": read_template,
}


def decode(kind: type[S], raw: Mapping[str, Any], problems: Problems) -> S:
    """Build the Struct for a whole file.

    Args:
        kind: the Struct.
        raw: the file's tables.
        problems: takes what is wrong; unless it stays empty, the Struct is good for checks only.
    """
    struct = cast("inspect.StructType", inspect.type_info(kind))
    return cast("S", _Decoder(problems).table(struct, raw, ""))


class _Decoder:
    """One walk through a file; what it returns for a faulty key is `_UNUSABLE`."""

    def __init__(self, problems: Problems) -> None:
        self._problems = problems

    def table(self, kind: inspect.StructType, raw: Mapping[str, Any], path: str) -> object:
        fields = {field.encode_name: field for field in kind.fields}
        for key in raw:
            if key not in fields:
                self._problems.add(join(path, key), unknown(key, kind, path))
        values: dict[str, Any] = {}
        for key, field in fields.items():
            where = join(path, key)
            value = _UNUSABLE
            if key in raw:
                value = self._value(field.type, raw[key], where)
            elif field.required:
                self._problems.add(
                    where, f"cannot be left out; write {wanted(*unwrap(field.type))}"
                )
            if value is not _UNUSABLE:
                values[field.name] = value
            elif field.required:
                values[field.name] = ()  # the one required key is a list
        return kind.cls(**values)

    def _value(self, kind: inspect.Type, raw: object, path: str) -> object:
        kind, extra = unwrap(kind)
        if extra.get("optional") and raw == "":
            return None
        if isinstance(kind, inspect.UnionType):
            # Of a word and a list; a list is told by its elements what is wrong with them.
            if not isinstance(raw, list):
                known = any(_fits(unwrap(each)[0], raw) for each in kind.types)
                return raw if known else self._refuse(path, raw, extra, f"write {wanted(kind, {})}")
            kind, extra = next(
                unwrapped
                for unwrapped in map(unwrap, kind.types)
                if isinstance(unwrapped[0], inspect.VarTupleType)
            )
        if isinstance(kind, inspect.StructType):
            if isinstance(raw, dict):
                return self.table(kind, raw, path)
            return self._refuse(path, raw, extra, f"write a table, [{path}]")
        if isinstance(kind, inspect.DictType):
            return self._mapping(kind, raw, path, extra)
        if isinstance(kind, inspect.VarTupleType):
            return self._sequence(kind, raw, path, extra)
        return self._leaf(kind, raw, path, extra)

    def _mapping(
        self, kind: inspect.DictType, raw: object, path: str, extra: Mapping[str, Any]
    ) -> object:
        if not isinstance(raw, dict):
            of_tables = isinstance(kind.value_type, inspect.StructType)
            remedy = f"[{path}.NAME]" if of_tables else 'such as { NAME = "value" }'
            return self._refuse(path, raw, extra, f"write a table, {remedy}")
        items = {key: self._value(kind.value_type, raw[key], join(path, key)) for key in raw}
        return {key: value for key, value in items.items() if value is not _UNUSABLE}

    def _sequence(
        self, kind: inspect.VarTupleType, raw: object, path: str, extra: Mapping[str, Any]
    ) -> object:
        if extra.get("unit") == "cpus" and isinstance(raw, str):
            return self._parsed(units.parse_cpus, raw, path)
        if not isinstance(raw, list):
            if isinstance(kind.item_type, inspect.StructType):
                return self._refuse(path, raw, extra, f"write tables, each under [[{path}]]")
            return self._refuse(path, raw, extra, f"write {wanted(kind, extra)}")
        if len(raw) < (kind.min_length or 0):
            self._problems.add(path, f"cannot be empty; write {wanted(kind, extra)}")
            return _UNUSABLE
        items = [
            self._value(kind.item_type, item, f"{path}[{index}]") for index, item in enumerate(raw)
        ]
        return _UNUSABLE if any(item is _UNUSABLE for item in items) else tuple(items)

    def _leaf(self, kind: inspect.Type, raw: object, path: str, extra: Mapping[str, Any]) -> object:
        value: object = raw
        if parse := _PARSERS.get(extra.get("unit", "")):
            if not isinstance(raw, str):
                return self._refuse(path, raw, extra, f"write {wanted(kind, extra)}")
            value = self._parsed(parse, raw, path)
            if value is _UNUSABLE:
                return value
        if not _fits(kind, value):
            hint = closest(raw, kind.values) if isinstance(kind, inspect.LiteralType) else ""
            if isinstance(raw, str) and "\0" in raw:
                hint = ", without a zero byte"
            return self._refuse(path, raw, extra, f"write {wanted(kind, extra)}{hint}")
        return float(cast("float", value)) if isinstance(kind, inspect.FloatType) else value

    def _parsed(self, parse: Callable[[str], object], text: str, path: str) -> object:
        try:
            return parse(text)
        except ValueError as error:
            self._problems.add(path, str(error))
            return _UNUSABLE

    def _refuse(self, path: str, raw: object, extra: Mapping[str, Any], remedy: str) -> object:
        what = kind_of(raw) if extra.get("secret") else shown(raw)
        self._problems.add(path, f"cannot use {what}; {remedy}")
        return _UNUSABLE


def _fits(kind: inspect.Type, value: object) -> bool:
    match kind:
        case inspect.BoolType():
            return isinstance(value, bool)
        case inspect.LiteralType():
            return isinstance(value, str) and value in kind.values
        case inspect.DataclassType():
            return isinstance(value, kind.cls)
        case inspect.StrType():
            # A zero byte ends a string for the kernel, and nothing here goes anywhere else.
            return (
                isinstance(value, str)
                and "\0" not in value
                and (kind.pattern is None or bool(re.fullmatch(kind.pattern, value)))
            )
        case inspect.IntType() if isinstance(value, int) and not isinstance(value, bool):
            return _in_range(kind, value)
        case inspect.FloatType() if isinstance(value, int | float) and not isinstance(value, bool):
            return _in_range(kind, value)
    return False


def _in_range(kind: inspect.IntType | inspect.FloatType, value: float) -> bool:
    # A number that is none (nan) compares false with every bound.
    return (kind.ge is None or value >= kind.ge) and (kind.le is None or value <= kind.le)
