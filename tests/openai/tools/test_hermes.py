from __future__ import annotations

import pytest

from tests.openai.tools.answers import HERMES, Plain, parsed


def tagged(body: str) -> str:
    """A body with the tags around it."""
    return f"<tool_call>\n{body}\n</tool_call>"


@pytest.mark.parametrize(
    ("body", "arguments"),
    [
        ('{"name": "weather", "arguments": {"city": "Paris"}}', '{"city": "Paris"}'),
        ('{"arguments": {"city": "Paris"}, "name": "weather"}', '{"city": "Paris"}'),
        ('{"name":"weather","arguments":{}}', "{}"),
        (
            '{"name": "weather", "arguments": {\n  "days": 1.0,\n  "x": 12345678901234567890}}',
            '{\n  "days": 1.0,\n  "x": 12345678901234567890}',
        ),
        (r'{"name": "weather", "arguments": "{\"city\": \"Paris\"}"}', '{"city": "Paris"}'),
        ('{"name": "weather", "arguments": " {} "}', "{}"),
        (r'{"name": "weather", "arguments": {"city": "a\"}\\"}}', r'{"city": "a\"}\\"}'),
        (
            '{"name": "weather", "arguments": {"city": "</tool_call> {<tool_call>"}}',
            '{"city": "</tool_call> {<tool_call>"}',
        ),
        ('{"name": "weather", "arguments": {"city": "😀é"}}', '{"city": "😀é"}'),
        (
            '{"name": "weather", "arguments": {"x": [true, false, null, -1.5E+9, {}]}}',
            '{"x": [true, false, null, -1.5E+9, {}]}',
        ),
        ('{"id": 7, "name": "weather", "arguments": {}}', "{}"),
    ],
    ids=["usual", "turned", "dense", "spelling", "string", "spaces", "escapes", "tags", "emoji",
         "kinds", "more fields"],
)  # fmt: skip
def test_a_call(body: str, arguments: str) -> None:
    """The arguments are the model's own text of them, wherever it is cut and spaced."""
    expected: Plain = [("weather", arguments)]

    assert expected == parsed(HERMES, [tagged(body)])
    assert expected == parsed(HERMES, tagged(body))
    assert expected == parsed(HERMES, [f"<tool_call>{body}</tool_call>"])


@pytest.mark.parametrize(
    "body",
    [
        '{"name": "weather"}',
        '{"arguments": {}}',
        '{"name": 1, "arguments": {}}',
        '{"name": "weather", "arguments": null}',
        '{"name": "weather", "arguments": []}',
        '{"name": "weather", "arguments": "Paris"}',
        '{"name": "weather", "arguments": "[]"}',
        '{"name": "weather", "arguments": {"city": "Paris"}',
        '{"name": "weather", "arguments": {"city": "Paris"}}}',
        '{"name": "weather", "arguments": {"city": Paris}}',
        "{'name': 'weather', 'arguments': {}}",
        '{"name": "weather", "arguments": {"days": 1,}}',
        '{"name": "weather", "arguments": {"days": NaN}}',
        '{"name": "weather", "arguments": {"city": "a\nb"}}',
        '{"name": "weather", "arguments": {"city": "\\x"}}',
        '{"name": "weather", "arguments": {"city": "\\ud800"}}',
        '{"name": "weather", "arguments": {"city": "\ud800"}}',
        '{"name": "weather", "arguments": {]}}',
        '{"name": "weather", "arguments": {}} {}',
        '{"name": "weather", "arguments": {"x": ' + "[" * 200 + "]" * 200 + "}}",
        '{"name": "weather", "arguments": "{\\"x\\": ' + "[" * 2000 + "]" * 2000 + '}"}',
        '{"name": "weather ", "arguments": {}}',
        '[{"name": "weather", "arguments": {}}]',
        "{}",
        "",
    ],
)
def test_a_malformed_call_is_text(body: str) -> None:
    """What is not exactly a call is never guessed at."""
    assert [tagged(body)] == parsed(HERMES, [tagged(body)])
    assert [tagged(body)] == parsed(HERMES, tagged(body))


def test_prose_behind_a_tag_is_shown_at_once() -> None:
    """It is known for no JSON by its first letter outside of a string."""
    assert ['<tool_call>{"name" oh'] == parsed(HERMES, ['<tool_call>{"name" oh'])


def test_a_call_whose_end_was_forgotten_does_not_take_the_next_with_it() -> None:
    """The first is text, since nobody knows that it was complete; the second is a call."""
    first = '<tool_call>\n{"name": "now", "arguments": {}}\n'
    second = tagged('{"name": "weather", "arguments": {}}')

    assert [first, ("weather", "{}")] == parsed(HERMES, [first + second])
