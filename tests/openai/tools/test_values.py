from __future__ import annotations

import msgspec
import pytest

from supervisord_llm.openai.tools.values import as_json

NODE = {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]}


def converted(value: str, schema: object, **root: object) -> str:
    """The JSON that a value becomes."""
    return msgspec.json.encode(as_json(value, "x", {"properties": {"x": schema}, **root})).decode()


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("integer", "3", "3"),
        ("integer", " -3\n", "-3"),
        ("integer", "3.0", "3.0"),
        ("integer", "3.5", '"3.5"'),
        ("integer", "123456789012345678901234567890", "123456789012345678901234567890"),
        ("integer", "true", '"true"'),
        ("integer", "three", '"three"'),
        ("integer", "", '""'),
        ("integer", "3 days", '"3 days"'),
        ("number", "3", "3"),
        ("number", "1.50", "1.50"),
        ("number", "1e999", '"1e999"'),
        ("number", "NaN", '"NaN"'),
        ("boolean", "true", "true"),
        ("boolean", "False", "false"),
        ("boolean", "1", '"1"'),
        ("boolean", '"true"', r'"\"true\""'),
        ("object", '{"a": [1]}', '{"a": [1]}'),
        ("object", "[1]", '"[1]"'),
        ("object", "{'a': 1}", "\"{'a': 1}\""),
        ("array", "[1, 2]", "[1, 2]"),
        ("array", "[" * 100_000 + "]" * 100_000, '"' + "[" * 100_000 + "]" * 100_000 + '"'),
        ("null", "null", "null"),
        ("string", "3", '"3"'),
        ("string", "null", '"null"'),
        ("date", "3", '"3"'),
        (["string", "null"], "null", "null"),
        (["string", "null"], "3", '"3"'),
        (["string", "integer"], "3", "3"),
        (["integer", 4], "3", "3"),
        (4, "3", '"3"'),
    ],
)
def test_a_value_by_its_type(kind: object, value: str, expected: str) -> None:
    """JSON of an allowed type is that; all else is text, as it was written."""
    assert expected == converted(value, {"type": kind})


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "null", "null"),
        ({"oneOf": [{"type": "integer"}, {"type": "string"}]}, "3", "3"),
        (NODE, '{"next": null}', '{"next": null}'),
        (NODE, "[]", '"[]"'),
        ({"$ref": "#/$defs/Loop"}, "3", '"3"'),
        ({"anyOf": [{"$ref": "#/$defs/Wide"}, {"type": "integer"}]}, "3", "3"),
        ({"$ref": "#/$defs/None"}, "3", '"3"'),
        ({"$ref": "other.json#/$defs/Node"}, "{}", '"{}"'),
        ({"$ref": 3}, "3", '"3"'),
        ({"anyOf": 3}, "3", '"3"'),
        ({}, "3", '"3"'),
        (None, "3", '"3"'),
    ],
)
def test_a_value_by_what_its_schema_refers_to(schema: object, value: str, expected: str) -> None:
    """Choices and definitions are followed, and a schema that is none allows text."""
    node = {"type": "object", "properties": {"next": NODE}}
    wide = {"anyOf": [{"$ref": "#/$defs/Wide"}] * 1000}
    definitions = {"Node": node, "Loop": {"$ref": "#/$defs/Loop"}, "Wide": wide}

    assert expected == converted(value, schema, **{"$defs": definitions})


def test_a_value_that_no_schema_knows() -> None:
    """It is text, whatever the tool says of others."""
    assert "3" == as_json("3", "y", {"properties": {"x": {"type": "integer"}}})
    assert "3" == as_json("3", "x", {"properties": []})
    assert "3" == as_json("3", "x", {})
