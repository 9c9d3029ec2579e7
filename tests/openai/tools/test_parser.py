from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from supervisord_llm.openai.tools import MAX_CALL, Text, ToolCall, parser_for
from supervisord_llm.openai.tools.parts import Format
from tests.openai.tools.answers import EITHER, HERMES, QWEN, TOOLS, parsed, parser, plain

NOW = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
CODER_NOW = "<tool_call>\n<function=now>\n</function>\n</tool_call>"
BARE_NOW = "<function=now>\n</function>\n"

FRAGMENTS = [
    NOW, CODER_NOW, BARE_NOW, "<tool_call>", "</tool_call>", '{"name": "now", "arguments": ', "{}",
    "}", '"', "\\", "[", "<function=", "weather", ">", "<parameter=", "city", "</parameter>",
    "</function>", "<function=weather>\n<parameter=days>\n3\n</parameter>", "<", " ", "\n", "text",
    "😀", "\ud83d", "\x00", "1e9", '<tool_call>{"name": "nowhere", "arguments": {}}</tool_call>',
]  # fmt: skip
ANSWERS = st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=5), max_size=12).map("".join)
FORMATS = st.sampled_from([HERMES, QWEN, EITHER])


@given(
    formats=FORMATS,
    answer=ANSWERS,
    cuts=st.lists(st.integers(0, 300)),
    max_call=st.sampled_from([30, 60, 10_000]),
)
def test_the_cuts_make_no_difference(
    formats: Sequence[Format], answer: str, cuts: list[int], max_call: int
) -> None:
    """Whole, character by character or anyhow, the same parts come of an answer."""
    edges = [0, *sorted(min(cut, len(answer)) for cut in cuts), len(answer)]
    pieces = [answer[begin:end] for begin, end in pairwise(edges)]
    whole = parsed(formats, [answer], max_call)

    assert whole == parsed(formats, pieces, max_call)
    assert whole == parsed(formats, answer, max_call)


@given(formats=FORMATS, answer=ANSWERS)
@example(formats=HERMES, answer="\n <tool_call> \n")
def test_where_no_call_is_every_byte_is_shown(formats: Sequence[Format], answer: str) -> None:
    """Whatever a model writes, text is not lost, changed or moved."""
    parts = parsed(formats, [answer])
    texts = [part for part in parts if isinstance(part, str)]
    if texts == parts:
        assert answer == "".join(texts)
    rest = answer
    for text in texts:
        _, found, rest = rest.partition(text)
        assert text == found


@given(formats=FORMATS, text=st.text("<tool_cal>function=pr \n{", max_size=60))
def test_no_more_is_held_back_than_may_become_a_call(formats: Sequence[Format], text: str) -> None:
    """After each character, what is missing is white space or begins like a call."""
    under_way = parser(formats)
    shown = ""
    for at, char in enumerate(text, 1):
        shown += "".join(each.text for each in under_way.feed(char) if isinstance(each, Text))
        held = text[len(shown) : at].lstrip()
        assert text[:at].startswith(shown)
        starts = ("<tool_call>", "<function=") if formats is not HERMES else ("<tool_call>",)
        assert any(held.startswith(each) or each.startswith(held) for each in starts)


@given(formats=FORMATS, answer=ANSWERS)
def test_no_more_is_read_again_than_a_tag(formats: Sequence[Format], answer: str) -> None:
    """So the cost of an answer is in its length, however much of it is held back."""
    under_way = parser(formats)
    for char in answer:
        under_way.feed(char)
        assert len(under_way._unread) < len("</parameter>")


@pytest.mark.parametrize("call", [NOW, CODER_NOW, BARE_NOW], ids=["hermes", "qwen", "bare"])
def test_text_and_calls_keep_their_order(call: str) -> None:
    """Calls come where they stood, and white space behind them only before text."""
    answer = f"Let me see.\n\n{call}\n{call}\n and {call}\n\n"

    expected = ["Let me see.\n\n", ("now", "{}"), ("now", "{}"), "\n and ", ("now", "{}")]
    if call == BARE_NOW:
        expected[3] = "\n\n and "
    assert expected == parsed(EITHER, [answer])


def test_white_space_around_calls_alone_is_not_shown() -> None:
    """An answer that only calls has no text, so a client is told of none."""
    assert [("now", "{}")] == parsed(HERMES, [f"\n\n{NOW}\n"])


def test_white_space_alone_is_text() -> None:
    """Without a call it is part of no format."""
    assert ["\n \n"] == parsed(HERMES, ["\n ", "\n"])


def test_much_white_space_is_text_at_once() -> None:
    """A model that has lost its way is not waited for."""
    under_way = parser(HERMES)

    assert [] == under_way.feed(" " * 256)
    assert [Text(" " * 257)] == under_way.feed(" ")
    assert [("now", "{}")] == plain(under_way.feed(NOW))
    assert [" " * 257 + "."] == plain([*under_way.feed(" " * 257), *under_way.feed(".")])


def test_each_call_has_its_own_id() -> None:
    """The id is what the factory gives, behind the prefix that clients know."""
    calls = parser(HERMES).feed(NOW + NOW)

    assert [ToolCall("call_1", "now", "{}"), ToolCall("call_2", "now", "{}")] == calls


def test_a_call_is_handed_on_when_it_is_complete() -> None:
    """Its last character is enough; text before it is not kept for it."""
    under_way = parser(HERMES)

    assert [Text("So: ")] == under_way.feed("So: " + NOW[:-1])
    assert [("now", "{}")] == plain(under_way.feed(">"))


@pytest.mark.parametrize(
    "answer",
    [
        NOW[:-1],
        CODER_NOW[:-1],
        "<function=now>\n</function",
        "<tool_call>",
        "<tool_call>\n{",
        "<tool_",
        "Use <tool_call> for calls.",
        "<tool_call>now</tool_call>",
        "<tool_call><tool_call></tool_call></tool_call>",
        "</tool_call>",
        "<TOOL_CALL>{}</TOOL_CALL>",
        NOW.replace("now", "later"),
        CODER_NOW.replace("now", "later"),
        BARE_NOW.replace("now", "later"),
    ],
)
def test_what_is_no_call_stays_text(answer: str) -> None:
    """Unfinished, malformed and unknown calls are shown as the model wrote them."""
    assert [answer] == parsed(EITHER, [answer])
    assert [answer] == parsed(EITHER, answer)


def test_a_call_behind_a_broken_one_is_made() -> None:
    """A tag that is only spoken of, or was written twice, does not hide what comes behind it."""
    assert ["A <tool_call> is: ", ("now", "{}")] == parsed(HERMES, ["A <tool_call> is: ", NOW])
    assert ["<tool_call>\n", ("now", "{}")] == parsed(HERMES, ["<tool_call>\n", NOW])


@pytest.mark.parametrize(
    "around",
    [
        ("<function=save><parameter=text>", "</parameter></function>"),
        ("<tool_call><function=save><parameter=text>", "</parameter></function></tool_call>"),
        (
            "<function=weather><parameter=city>",
            "</parameter><parameter=city></parameter></function>",
        ),
    ],
    ids=["unknown", "unknown, wrapped", "malformed"],
)
def test_a_call_that_a_refused_one_quotes_is_not_made(around: tuple[str, str]) -> None:
    """What a file is about is not what the model wants done."""
    answer = NOW.join(around)

    assert [answer] == parsed(EITHER, [answer])


def test_a_long_call_is_text_and_is_not_waited_for() -> None:
    """A call that never ends is shown from its limit on; one of just that length is made."""
    assert [("now", "{}")] == parsed(HERMES, [NOW], max_call=len(NOW))
    under_way = parser(HERMES, max_call=len(NOW) - 1)
    assert [] == under_way.feed(NOW[:-2])
    assert [Text(NOW[:-1])] == under_way.feed(NOW[-2])
    assert [Text(">"), Text("!")] == [*under_way.feed(">"), *under_way.feed("!")]


@pytest.mark.parametrize(
    "begin",
    ['<tool_call>{"name": "', "<function=now><parameter=x>", "<tool_call>{" + '"a": [' * 9],
    ids=["string", "value", "brackets"],
)
def test_the_cost_of_a_call_is_in_its_length(begin: str) -> None:
    """Token by token, as long a call as there may be takes a fraction of a second."""
    under_way = parser_for(None, TOOLS, new_id=str)
    start = time.process_time()
    parts = under_way.feed(begin)
    for _ in range(MAX_CALL // 4):
        parts += under_way.feed("1111")

    assert time.process_time() - start < 5
    assert [begin + "1" * MAX_CALL] == plain([*parts, *under_way.finish()])


@pytest.mark.parametrize(
    ("template", "hermes", "qwen"),
    [
        ("<tool_call>\n{{ call | tojson }}\n</tool_call>", True, False),
        ("<tool_call>\n<function=x>\n<parameter=y>", False, True),
        ("<function=x>{{ call.arguments | tojson }}</function>", True, True),
        ("{{ messages[0].content }}", True, True),
        (None, True, True),
    ],
    ids=["hermes", "qwen", "neither", "no tools", "no template"],
)
def test_the_template_tells_the_format(template: str | None, hermes: bool, qwen: bool) -> None:
    """A call in a format that the model was not shown is text, unless none is known."""
    for call, expected in [(NOW, hermes), (CODER_NOW, qwen), (BARE_NOW, qwen)]:
        parts = parser_for(template, TOOLS, new_id=str).feed(call)
        assert expected == any(isinstance(each, ToolCall) for each in parts)
