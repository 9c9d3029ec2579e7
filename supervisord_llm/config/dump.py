"""The configuration in force as plain values, for people and for the control API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from msgspec import inspect

from supervisord_llm.config import units
from supervisord_llm.config.arguments import HIDDEN, hide_arguments
from supervisord_llm.config.schema import Config
from supervisord_llm.config.wording import unwrap

_WRITERS: dict[str, Callable[[Any], str]] = {
    "duration": units.format_duration,
    "size": units.format_size,
    "cpus": units.format_cpus,
    "template": lambda file: str(file.path),
}


def effective(config: Config) -> dict[str, object]:
    """Every key with the value in force, quantities as in the file, secrets hidden.

    Only dicts, lists, strings, numbers and booleans are in it.
    """
    return cast("dict[str, object]", plain(inspect.type_info(Config), config))


def plain(kind: inspect.Type, value: Any) -> object:
    """A value of this kind as the file has it, secrets hidden; ``kind`` as msgspec inspects it."""
    kind, extra = unwrap(kind)
    if value is None:
        return ""
    if isinstance(kind, inspect.UnionType):
        kind = next(
            each
            for each in kind.types
            if isinstance(each, inspect.VarTupleType) is isinstance(value, tuple)
        )
    if extra.get("secret"):
        return HIDDEN
    if extra.get("arguments"):
        return hide_arguments(value)
    if written := _WRITERS.get(extra.get("unit", "")):
        return written(value)
    if isinstance(kind, inspect.StructType):
        return {
            field.encode_name: plain(field.type, getattr(value, field.name))
            for field in kind.fields
        }
    if isinstance(kind, inspect.DictType):
        return {name: plain(kind.value_type, each) for name, each in value.items()}
    if isinstance(kind, inspect.VarTupleType):
        return [plain(kind.item_type, each) for each in value]
    return value
