"""Types of fields in words, with links to the words and records that they name."""

from __future__ import annotations

from msgspec import inspect as kinds

_PLAIN: dict[type[kinds.Type], str] = {
    kinds.BoolType: "true or false",
    kinds.NoneType: "null",
    kinds.CustomType: "any value",
}


def in_words(kind: kinds.Type) -> str:
    """What a field's value is, for a table's cell."""
    match kind:
        case kinds.Metadata():
            return in_words(kind.type)
        case kinds.StrType():
            return "text" + _length(kind.min_length, kind.max_length, "characters")
        case kinds.IntType():
            return "whole number" + _bounds(kind)
        case kinds.FloatType():
            return "number" + _bounds(kind)
        case kinds.LiteralType():
            return " or ".join(f'`"{value}"`' for value in kind.values)
        case kinds.EnumType() | kinds.StructType():
            return f"[{kind.cls.__name__}](#{kind.cls.__name__.lower()})"
        case kinds.ListType():
            items = _length(kind.min_length, kind.max_length, "entries")
            return f"list of {in_words(kind.item_type)}{items}"
        case kinds.DictType():
            return f"table of {in_words(kind.value_type)} by {in_words(kind.key_type)}"
        case kinds.UnionType():
            return " or ".join(in_words(each) for each in kind.types)
        case _:
            return _PLAIN[type(kind)]


def _bounds(kind: kinds.IntType | kinds.FloatType) -> str:
    parts = [
        f"above {kind.gt:g}" if kind.gt is not None else "",
        f"from {kind.ge:g}" if kind.ge is not None else "",
        f"to {_figure(kind.le)}" if kind.le is not None else "",
    ]
    return "".join(f" {part}" for part in parts if part)


def _figure(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"


def _length(least: int | None, most: int | None, what: str) -> str:
    parts = [
        f"at least {least}" if least is not None else "",
        f"at most {most}" if most is not None else "",
    ]
    told = " and ".join(part for part in parts if part)
    return f" ({told} {what})" if told else ""
