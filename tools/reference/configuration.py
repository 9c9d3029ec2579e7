"""The configuration file's tables and keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from msgspec import inspect as kinds

from supervisord_llm.config.dump import effective
from supervisord_llm.config.schema import Config, PoolConfig
from supervisord_llm.config.toml import render_value
from supervisord_llm.config.wording import unwrap, wanted
from tools.reference import docstrings, markdown

NAME = "NAME"
"""Stands for a pool's name."""


def configuration() -> str:
    """The section on the configuration."""
    pool = PoolConfig(command=("PROGRAM",))
    defaults = effective(Config(pool={NAME: pool}))
    kind = cast("kinds.StructType", kinds.type_info(Config))
    return markdown.section(
        2,
        "Configuration",
        "A TOML file. Durations and sizes are text with a unit. An unknown key is refused, and "
        "`supervisord-llm check` lists every problem at once.",
        *_below(kind, defaults, ""),
    )


def _below(kind: kinds.StructType, values: Mapping[str, Any], path: str) -> Iterator[str]:
    for field in kind.fields:
        below, _ = unwrap(field.type)
        where = f"{path}.{field.encode_name}" if path else field.encode_name
        value = values[field.encode_name]
        match below:
            case kinds.StructType():
                yield from _table(below, value, where)
            case kinds.VarTupleType(item_type=kinds.StructType() as item):
                yield from _table(item, value[0], where)
            case kinds.DictType(value_type=kinds.StructType() as item):
                yield from _table(item, value[NAME], f"{where}.{NAME}")
            case _:
                pass


def _table(kind: kinds.StructType, values: Mapping[str, Any], path: str) -> Iterator[str]:
    documented = docstrings.members_of(kind.cls)
    rows = []
    for field in kind.fields:
        if isinstance(unwrap(field.type)[0], kinds.StructType):
            continue
        name = field.encode_name
        given = "required" if field.required else markdown.code(render_value(values[name]))
        may_be = wanted(*unwrap(field.type))
        rows.append((f"`{name}`", may_be, given, markdown.line(documented.get(field.name))))
    # A class's docstring begins with how its table is written.
    title, _, meaning = markdown.line(kind.cls.__doc__).partition(": ")
    keys = markdown.table(("key", "may be", "default", "meaning"), rows)
    yield markdown.section(3, title, meaning[:1].upper() + meaning[1:], keys)
    yield from _below(kind, values, path)
