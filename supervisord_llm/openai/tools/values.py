"""What a tool's schema makes of an argument that was written as plain text."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

_MAX_SCHEMAS = 64
"""How many schemas are looked at for one argument; they may refer to each other in circles."""


def as_json(value: str, key: str, schema: Mapping[str, object]) -> str | msgspec.Raw:
    """The value of an argument, as the tool's schema has it.

    Where the schema allows something else than a string and the value is JSON of such a type, it is
    that, in its own spelling; truth values may be written as Python does. All else stays text: for
    a tool's complaint about it, the model has to be shown what it wrote.

    Args:
        value: what the model wrote.
        key: the name of the argument.
        schema: the JSON schema of all arguments.
    """
    properties = schema.get("properties")
    known = properties.get(key) if isinstance(properties, Mapping) else None
    types = _types(known, schema)
    if not types - {"string"}:
        return value
    bare = value.strip(" \t\r\n")
    if "boolean" in types and bare in {"True", "False"}:
        bare = bare.lower()
    try:
        parsed = msgspec.json.decode(bare)
    except (ValueError, RecursionError):
        return value
    return msgspec.Raw(bare.encode()) if _names(parsed) & types else value


def _types(schema: object, root: Mapping[str, object]) -> set[str]:
    """The types that a schema allows, as far as it says so by itself or by what it refers to."""
    found: set[str] = set()
    pending, looked_at = [schema], 0
    while pending and looked_at < _MAX_SCHEMAS:
        looked_at += 1
        each = pending.pop()
        if not isinstance(each, Mapping):
            continue
        kinds = each.get("type")
        if isinstance(kinds, str):
            found.add(kinds)
        elif isinstance(kinds, list):
            found.update(kind for kind in kinds if isinstance(kind, str))
        else:
            pending.append(_referred(each.get("$ref"), root))
            for word in ("anyOf", "oneOf"):
                choices = each.get(word)
                pending += choices[:_MAX_SCHEMAS] if isinstance(choices, list) else []
    return found


def _referred(reference: object, root: Mapping[str, object]) -> object:
    """What ``#/$defs/NAME`` or ``#/definitions/NAME`` means, which is what generators write."""
    if not isinstance(reference, str):
        return None
    start, _, rest = reference.partition("/")
    group, _, name = rest.partition("/")
    definitions = root.get(group) if start == "#" else None
    return definitions.get(name) if isinstance(definitions, Mapping) else None


def _names(value: object) -> set[str]:
    """What JSON Schema calls the type of a value; a string's is left out, it is text anyway."""
    match value:
        case None:
            return {"null"}
        case bool():
            return {"boolean"}
        case int():
            return {"integer", "number"}
        case float():
            return {"integer", "number"} if value.is_integer() else {"number"}
        case list():
            return {"array"}
        case dict():
            return {"object"}
        case _:
            return set()
