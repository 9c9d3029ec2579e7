"""The configuration file's tables and keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

from msgspec import inspect as kinds

from supervisord_llm.config.dump import effective
from supervisord_llm.config.schema import Config, PoolConfig
from supervisord_llm.config.toml import render_value
from supervisord_llm.config.wording import unwrap, wanted
from tools.reference import docstrings, markdown

NAME = "NAME"
"""Stands for a pool's name."""


class Key(NamedTuple):
    """One key of a table; texts are Markdown."""

    name: str
    may_be: str
    default: str
    """As TOML; ``required`` where there is none, empty for an empty one."""
    meaning: str


class TableOfKeys(NamedTuple):
    """One table of the file."""

    title: str
    """How it is written."""
    meaning: str
    keys: Sequence[Key]


def configuration() -> str:
    """The section on the configuration."""
    return markdown.section(
        2,
        "Configuration",
        "A TOML file. Durations and sizes are text with a unit. An unknown key is refused, and "
        "`supervisord-llm check` lists every problem at once.",
        *(_section(table) for table in tables()),
    )


def tables() -> Iterator[TableOfKeys]:
    """Every table of the configuration, those below a table after it."""
    pool = PoolConfig(command=("PROGRAM",))
    defaults = effective(Config(pool={NAME: pool}))
    kind = cast("kinds.StructType", kinds.type_info(Config))
    return _below(kind, defaults)


def _section(table: TableOfKeys) -> str:
    rows = [
        (f"`{key.name}`", key.may_be, key.default if key.default == "required"
         else markdown.code(key.default), key.meaning)
        for key in table.keys
    ]  # fmt: skip
    keys = markdown.table(("key", "may be", "default", "meaning"), rows)
    return markdown.section(3, table.title, table.meaning, keys)


def _below(kind: kinds.StructType, values: Mapping[str, Any]) -> Iterator[TableOfKeys]:
    for field in kind.fields:
        below, _ = unwrap(field.type)
        value = values[field.encode_name]
        match below:
            case kinds.StructType():
                yield from _table(below, value)
            case kinds.VarTupleType(item_type=kinds.StructType() as item):
                yield from _table(item, value[0])
            case kinds.DictType(value_type=kinds.StructType() as item):
                yield from _table(item, value[NAME])
            case _:
                pass


def _table(kind: kinds.StructType, values: Mapping[str, Any]) -> Iterator[TableOfKeys]:
    documented = docstrings.members_of(kind.cls)
    keys = []
    for field in kind.fields:
        if isinstance(unwrap(field.type)[0], kinds.StructType):
            continue
        name = field.encode_name
        default = "required" if field.required else render_value(values[name])
        may_be = wanted(*unwrap(field.type))
        keys.append(Key(name, may_be, default, markdown.line(documented.get(field.name))))
    # A class's docstring begins with how its table is written.
    title, _, meaning = markdown.line(kind.cls.__doc__).partition(": ")
    yield TableOfKeys(title, meaning[:1].upper() + meaning[1:], keys)
    yield from _below(kind, values)
