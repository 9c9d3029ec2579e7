from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import pytest

from supervisord_llm.errors import InvalidRequest, OperatorError
from supervisord_llm.openai.templates import RESERVED, ChatTemplate, TemplateBroken
from tests.openai import goldens

NOW = datetime(2024, 2, 29, 12, 0, tzinfo=UTC)


def said(role: str, content: str, **fields: object) -> dict[str, object]:
    """A turn of a conversation."""
    return {"role": role, "content": content, **fields}


QUESTION = [said("user", "Why is the sky blue?")]

CONVERSATION = [
    said("system", "Be brief."),
    said("user", "Hi"),
    said("assistant", "Hello."),
    said("user", 'Why <b>"so"</b>?'),
]


def compiled(source: str, max_prompt: int = 1000) -> ChatTemplate:
    """A template of a model that has special tokens."""
    return ChatTemplate(source, "<s>", "</s>", name="toy", max_prompt=max_prompt)


def rendered(source: str, messages: Sequence[Mapping[str, object]] = QUESTION) -> str:
    """What a template makes of a conversation."""
    return compiled(source).render(messages, now=NOW)


def test_smollm2_puts_its_system_prompt_before_a_question() -> None:
    """The model was trained with it, and a prompt without it gets worse answers."""
    assert goldens.SMOLLM2_PROMPT == rendered(goldens.SMOLLM2)


def test_smollm2_takes_the_systems_words_where_there_are_some() -> None:
    """Text passes through unescaped: it is no HTML."""
    assert goldens.SMOLLM2_PROMPT_WITH_SYSTEM == rendered(goldens.SMOLLM2, CONVERSATION)


def test_a_template_with_headers_and_a_date() -> None:
    """Trimmed blocks, the special tokens, the date, and variables that are there but empty."""
    template = ChatTemplate(goldens.HEADERS, "<|begin|>")

    assert goldens.HEADERS_PROMPT == template.render(CONVERSATION, now=NOW)


def test_a_template_with_brackets_and_rules() -> None:
    """Loop controls, namespaces, attributes for keys, and marked generations."""
    assert goldens.BRACKETS_PROMPT == rendered(goldens.BRACKETS, CONVERSATION)


CALLS = [
    {"id": "1", "type": "function", "function": {"name": "weather", "arguments": arguments}}
    for arguments in ({"city": "Paris", "<unit>": "°C"}, {"city": "Zürich"})
]
TOOLS = [
    {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}},
]
ABOUT_WEATHER = [
    said("system", "Be brief."),
    said("user", "Paris or Zürich?"),
    said("assistant", "<think>\nHm.\n</think>\n\nI look.", tool_calls=CALLS),
    said("tool", "21", tool_call_id="1", name="weather"),
    said("tool", "17", tool_call_id="2", name="weather"),
    said("assistant", "Paris."),
    said("user", "Why?"),
]


def test_a_template_with_tools_their_calls_and_their_results() -> None:
    """And a variable that the request gives; JSON is in the order and the letters given."""
    prompt = compiled(goldens.TOOLS, 10_000).render(
        ABOUT_WEATHER, tools=TOOLS, kwargs={"enable_thinking": False}, now=NOW
    )
    assert goldens.TOOLS_PROMPT == prompt


def test_a_template_without_tools_says_nothing_of_them() -> None:
    """No tools are none, not an empty list of them."""
    assert "<tools>" not in compiled(goldens.TOOLS, 10_000).render(ABOUT_WEATHER, now=NOW)
    assert "True" == rendered("{{ tools is none }}")


def test_a_template_that_tells_of_tools_in_its_own_words() -> None:
    """A macro that calls itself walks through the schema."""
    parameters = {
        "type": "object",
        "properties": {
            "days": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
            "at": {"type": "object", "properties": {"x": {}}, "required": ["x"]},
        },
        "required": ["days"],
    }
    tools = [{"type": "function", "function": {"name": "f", "parameters": parameters}}]
    prompt = compiled(goldens.SCHEMA).render(QUESTION, tools=tools, now=NOW)
    assert "f({ at?: { x: any }, days: integer[][] })" == prompt


@pytest.mark.parametrize("name", sorted(RESERVED))
def test_a_request_cannot_give_what_the_daemon_does(name: str) -> None:
    """Else whoever checks the messages would have checked others than the model is told."""
    with pytest.raises(InvalidRequest, match=f"{name!r} is not to be given there") as caught:
        compiled("x").render(QUESTION, kwargs={name: "x"}, now=NOW)

    assert "chat_template_kwargs" == caught.value.param


def test_a_compiled_template_serves_many_conversations() -> None:
    """One leaves no trace in the next."""
    template = compiled(goldens.BRACKETS)

    first = template.render(CONVERSATION, now=NOW)
    template.render(QUESTION, now=NOW)

    assert first == template.render(CONVERSATION, now=NOW)


def test_special_tokens_that_a_model_lacks_are_empty() -> None:
    """Nothing is written for them, least of all ``None``."""
    template = ChatTemplate("[{{ bos_token }}{{ eos_token }}]")

    assert "[]" == template.render(QUESTION, now=NOW)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ('{"a": "<é>"} | tojson', '{"a": "<é>"}'),
        ('{"b": 1, "a": 2} | tojson', '{"b": 1, "a": 2}'),
        ('{"b": [1]} | tojson(indent=2)', '{\n  "b": [\n    1\n  ]\n}'),
        ('{"b": 1, "a": 2} | tojson(separators=(",", ":"), sort_keys=True)', '{"a":2,"b":1}'),
        ('"é" | tojson(True)', '"\\u00e9"'),
    ],
)
def test_tojson_writes_what_models_were_trained_on(expression: str, expected: str) -> None:
    """Plain JSON in the order given; Jinja2's own would escape it for HTML and sort it."""
    assert expected == rendered("{{ " + expression + " }}")


def test_messages_are_mappings() -> None:
    """A template may ask whether a message has a key."""
    source = "{% for m in messages %}{{ m.get('name', '-') }}{{ 'tool_calls' in m }}{% endfor %}"

    assert "-False" == rendered(source)


def test_a_template_that_refuses_a_conversation_is_heard() -> None:
    """Its words reach the client, whose conversation it is."""
    with pytest.raises(InvalidRequest, match="roles must alternate: user is out of turn") as caught:
        rendered(goldens.BRACKETS, [said("user", "Hi"), said("user", "Hi?")])

    assert "messages" == caught.value.param


def test_a_refusal_without_end_is_cut() -> None:
    """A message for people stays one."""
    with pytest.raises(InvalidRequest) as caught:
        rendered("{{ raise_exception('no! ' * 10000) }}")

    assert 500 > len(str(caught.value))


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{% if x %}\n{{ x }", "line 2: unexpected '}'"),
        ("{% unknown %}", "line 1: Encountered unknown tag 'unknown'"),
        ("{{ 'a' | shout }}", "No filter named 'shout'"),
        ("{% generation %}", "line 1: Unexpected end of template"),
    ],
)
def test_a_template_that_cannot_be_compiled(source: str, reason: str) -> None:
    """The operator is told where it breaks, and what to do."""
    with pytest.raises(TemplateBroken) as caught:
        compiled(source)

    assert isinstance(caught.value, OperatorError)
    assert str(caught.value).startswith("cannot apply the chat template of toy: ")
    assert reason in str(caught.value)
    assert "serve a model with a sound template" in str(caught.value)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{{ tools[0].name }}", "None has no element 0"),
        ("{{ nothing.name }}", "'nothing' is undefined"),
        ("{{ messages[0].content + 1 }}", "TypeError: "),
        ("{{ 1 // 0 }}", "ZeroDivisionError: "),
        ("{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}", "RecursionError: "),
        ("{{ '\\ud800' }}", "UnicodeEncodeError: "),
    ],
)
def test_a_template_that_fails_by_itself(source: str, reason: str) -> None:
    """No conversation is to blame for it."""
    with pytest.raises(TemplateBroken) as caught:
        rendered(source)

    assert reason in str(caught.value)


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ raise_exception.__globals__['json'] }}",
        "{{ strftime_now.__self__.__class__.__base__ }}",
        "{% do messages.append(1) %}",
        "{% set x = messages.append(messages[0]) %}{{ x }}",
        "{% include '/etc/passwd' %}",
    ],
)
def test_a_template_reaches_nothing_but_its_variables(source: str) -> None:
    """Neither the interpreter, nor the files, nor the conversation itself."""
    with pytest.raises(TemplateBroken):
        rendered(source)


def test_a_format_reaches_nothing_either() -> None:
    """What it may not see cannot be written."""
    assert "" == rendered("{{ '{0.__class__.__init__}'.format(messages) }}")
    assert "" == rendered("{{ '{a.__class__.__init__}'.format_map({'a': messages}) }}")


def test_a_prompt_may_be_as_long_as_the_limit() -> None:
    """The limit counts bytes, not characters."""
    assert "é" * 10 == compiled("{{ messages[0].content }}", 20).render(
        [said("user", "é" * 10)], now=NOW
    )


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages[0].content }}x",
        "{% for _ in range(99) %}{{ messages[0].content }}{% endfor %}{{ never.reached }}",
    ],
)
def test_a_prompt_over_the_limit(source: str) -> None:
    """It is noticed while it grows, and the client is told to send less."""
    with pytest.raises(
        InvalidRequest, match="longer than 20 bytes; send fewer or shorter"
    ) as caught:
        compiled(source, 20).render([said("user", "é" * 10)], now=NOW)

    assert "messages" == caught.value.param
