"""Writes plain values as TOML; the standard library only reads it.

A library for this was not taken: the values are ours, so a page is all that is needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from supervisord_llm.config.problems import join, quote


def render(table: Mapping[str, object]) -> str:
    """The table as a TOML document: its plain values first, then a section for each table in it.

    Takes dicts, lists, strings, whole and finite numbers and booleans; raises ``TypeError`` for
    anything else.
    """
    return "\n".join(_lines(table, "")).strip("\n") + "\n"


def _lines(table: Mapping[str, object], path: str) -> Iterator[str]:
    sections: list[tuple[str, Mapping[str, object], bool]] = []
    for key, value in table.items():
        where = join(path, key)
        if isinstance(value, Mapping) and value:
            sections.append((where, value, False))
        elif isinstance(value, list) and value and all(isinstance(v, Mapping) for v in value):
            sections += [(where, each, True) for each in value]
        else:
            yield f"{join('', key)} = {render_value(value)}"
    for where, section, in_array in sections:
        lines = list(_lines(section, where))
        # A table of nothing but tables is there without being named.
        if in_array or lines[0]:
            yield ""
            yield f"[[{where}]]" if in_array else f"[{where}]"
        yield from lines


def render_value(value: object) -> str:
    """One value as TOML writes it behind a key; raises like `render`."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return quote(value)
        case int() | float():
            return repr(value)
        case Mapping():
            inner = ", ".join(
                f"{join('', key)} = {render_value(each)}" for key, each in value.items()
            )
            return f"{{ {inner} }}" if inner else "{}"
        case Sequence():
            return f"[{', '.join(render_value(each) for each in value)}]"
        case _:
            pass
    raise TypeError(f"cannot write {type(value).__name__} as TOML; make it a string first")
