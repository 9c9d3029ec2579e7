from __future__ import annotations

import pytest

from supervisord_llm.openai.tools import Text
from tests.openai.tools.answers import QWEN, parsed, parser

CALL = """\
<tool_call>
<function=weather>
<parameter=city>
New
York
</parameter>
<parameter=days>
3
</parameter>
</function>
</tool_call>"""

ARGUMENTS = r'{"city":"New\nYork","days":3}'


def called(inside: str, name: str = "weather") -> str:
    """A function with something in it, between its tags."""
    return f"<tool_call>\n<function={name}>\n{inside}\n</function>\n</tool_call>"


@pytest.mark.parametrize("newline", ["\n", "\n  ", "\r\n", ""], ids=["lines", "in", "crlf", "none"])
def test_a_call(newline: str) -> None:
    """White space between tags is the model's affair."""
    tags = CALL.replace(">\n<", f">{newline}<")

    assert [("weather", ARGUMENTS)] == parsed(QWEN, [tags])
    assert [("weather", ARGUMENTS)] == parsed(QWEN, tags)


def test_a_call_without_parameters() -> None:
    """Its arguments are an empty object."""
    assert [("now", "{}")] == parsed(QWEN, [called("", "now")])


@pytest.mark.parametrize("end", ["", "\n</tool_call>", "</tool_call>\n"], ids=["none", "one", "on"])
def test_a_call_without_its_first_tag(end: str) -> None:
    """The model forgets it often; the last tag, if it does come, is not shown."""
    bare = CALL.removeprefix("<tool_call>\n").removesuffix("\n</tool_call>")

    assert ["So:\n", ("weather", ARGUMENTS)] == parsed(QWEN, ["So:\n" + bare + end])
    assert ["So:\n", ("weather", ARGUMENTS)] == parsed(QWEN, "So:\n" + bare + end)


def test_only_one_tag_behind_a_call_is_dropped() -> None:
    """A second has nothing to do with it, nor has one behind text."""
    bare = "<function=now></function>"
    tag = "</tool_call>"

    assert [("now", "{}"), tag] == parsed(QWEN, [bare, tag, tag])
    assert [("now", "{}"), "\n."] == parsed(QWEN, [bare, "\n\n", tag, "\n."])
    assert [("now", "{}"), f"\n.{tag}"] == parsed(QWEN, [bare, "\n.", tag])
    assert [("now", "{}"), "\n</tool_"] == parsed(QWEN, [bare, "\n</tool_"])
    assert [("now", "{}"), "\n</tool_x"] == parsed(QWEN, [bare, "\n</tool_", "x"])
    assert [("now", "{}"), tag] == parsed(QWEN, [f"<tool_call>{bare}{tag}", tag])


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("\nParis\n", '"Paris"'),
        ("Paris", '"Paris"'),
        ("\n\n Paris \n\n", r'"\n Paris \n"'),
        ("\n", '""'),
        ("", '""'),
        ("\n3\n", '"3"'),
        ('\n"Paris"\n', r'"\"Paris\""'),
        ("\n<b> & </b>&amp;\n", '"<b> & </b>&amp;"'),
        ("\n</parameter> and </parameter>\n", '"</parameter> and </parameter>"'),
        ("\n</parameter></parameter>\n", '"</parameter></parameter>"'),
        ("\n</function>\n</tool_call>\n", r'"</function>\n</tool_call>"'),
        ("\n<tool_call><function=now>\n", '"<tool_call><function=now>"'),
        ("\n</param 😀\n", '"</param 😀"'),
    ],
)
def test_a_text_is_what_stands_between_the_lines(written: str, value: str) -> None:
    """One newline on each side is the format's; all else is the value, tags and all."""
    answer = called(f"<parameter=city>{written}</parameter>")

    assert [("weather", f'{{"city":{value}}}')] == parsed(QWEN, [answer])
    assert [("weather", f'{{"city":{value}}}')] == parsed(QWEN, answer)


@pytest.mark.parametrize(
    "inside",
    [
        "Paris",
        "<parameter=city>Paris",
        "<parameter=city>Paris</parameter> please",
        "<parameter=city",
        "<parameter=>Paris</parameter>",
        "<parameter=the city>Paris</parameter>",
        "<parameter>Paris</parameter>",
        "<parameter=city>Paris</parameter>\n<parameter=city>Rome</parameter>",
        "<parameter=city>\ud800</parameter>",
        '{"city": "Paris"}',
        "</function>",
    ],
)
def test_a_malformed_call_is_text(inside: str) -> None:
    """What is not exactly a call is never guessed at."""
    assert [called(inside)] == parsed(QWEN, [called(inside)])
    assert [called(inside)] == parsed(QWEN, called(inside))


@pytest.mark.parametrize("name", ["", " now", "now>", "now\n", "<now", "n" * 10_000])
def test_a_malformed_name_is_text(name: str) -> None:
    """Names are short and of one word."""
    assert [called("", name)] == parsed(QWEN, [called("", name)])


def test_a_long_name_is_not_waited_for() -> None:
    """One of a usual length is."""
    answer = "<function=" + "n" * 256
    under_way = parser(QWEN)

    assert [] == under_way.feed(answer)
    assert [Text(answer + "n")] == under_way.feed("n")


def test_a_call_without_its_last_tag_is_text() -> None:
    """The tag before it says that one behind it has to come."""
    answer = CALL.removesuffix("</tool_call>")

    assert [answer] == parsed(QWEN, [answer])
    assert [answer + "."] == parsed(QWEN, [answer, "."])
