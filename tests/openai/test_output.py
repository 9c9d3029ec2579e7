"""From a worker's tokens to what a client is shown."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import msgspec
import pytest

from supervisord_llm.core import words
from supervisord_llm.openai.answers import Chat, Label, Produced, Text
from supervisord_llm.openai.output import Output
from supervisord_llm.openai.shapes import Call, CalledFunction
from supervisord_llm.openai.tools import ToolParser, parser_for

CALL = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'
LABEL = Label(id="x-1", model="m", created=5, with_usage=False)
COUNTED = words.Usage(3, 1, 2)


def parser() -> Callable[[], ToolParser]:
    """Makes a parser of calls of ``f``, which are numbered."""
    numbers = itertools.count(1)
    return lambda: parser_for(None, {"f": {}}, new_id=lambda: str(next(numbers)))


def call(number: int) -> Call:
    """The call that ``CALL`` is, counted from 0."""
    function = CalledFunction(name="f", arguments='{"a": 1}')
    return Call(index=number, id=f"call_{number + 1}", function=function)


def shown(output: Output, texts: Sequence[str]) -> tuple[str, list[Call]]:
    """Feed each text alone: all the text and all the calls."""
    found = [part for text in texts for part in output.feed([text])] + output.finish()
    assert "" not in found
    said = "".join(part for part in found if isinstance(part, str))
    return said, [part for part in found if not isinstance(part, str)]


def test_plain_text_passes() -> None:
    """A batch is one text; nothing is held."""
    output = Output(())
    assert output.plain
    assert ["ab"] == output.feed(["a", "b"])
    assert [] == output.finish()


@pytest.mark.parametrize("texts", ["one STOP two", ["one ST", "OP", " two"]])
def test_a_stop_string_ends_what_is_shown(texts: Sequence[str]) -> None:
    """However it is cut."""
    output = Output(("STOP",))
    assert not output.plain
    assert ("one ", []) == shown(output, texts)
    assert output.stopped
    assert "stop" == output.reason(words.FinishReason.LENGTH)


def test_half_a_stop_string_is_shown_in_the_end() -> None:
    """It was none."""
    output = Output(("STOP",))
    assert ("one ST", []) == shown(output, "one ST")
    assert "length" == output.reason(words.FinishReason.LENGTH)


@pytest.mark.parametrize("pieces", [[f"Look. {CALL}\n{CALL}"], f"Look. {CALL}\n{CALL}"])
def test_calls_are_counted_and_are_the_reason(pieces: Sequence[str]) -> None:
    """However they are cut, and whatever else ended it."""
    output = Output((), parser())
    assert not output.plain
    said, calls = shown(output, pieces)
    assert ("Look.", [call(0), call(1)]) == (said.strip(), calls)
    assert "tool_calls" == output.reason(words.FinishReason.LENGTH)


def test_a_stop_string_is_found_in_a_call_too() -> None:
    """What there is of the call is text."""
    output = Output(("}}",), parser())
    assert (CALL[: CALL.index("}}")], []) == shown(output, CALL)
    assert "stop" == output.reason(None)


def test_the_parser_is_made_when_output_comes() -> None:
    """Only then the model is known for sure."""
    made: list[int] = []

    def make() -> ToolParser:
        made.append(1)
        return parser()()

    output = Output((), make)
    assert [] == made
    output.feed(["a"])
    output.feed(["b"])
    assert [1] == made


def _plain(value: msgspec.Struct) -> object:
    return msgspec.to_builtins(value)["choices"][0]


def test_a_message_that_only_calls_has_no_content() -> None:
    """And its calls have no index."""
    produced = Produced(text="", calls=[call(0)], finish_reason="tool_calls", usage=COUNTED)
    function = {"name": "f", "arguments": '{"a": 1}'}
    message = {
        "role": "assistant",
        "content": None,
        "refusal": None,
        "tool_calls": [{"id": "call_1", "type": "function", "function": function}],
    }
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "tool_calls"}
    assert choice == _plain(Chat().whole(LABEL, [produced]))


def test_an_empty_message_has_an_empty_content() -> None:
    """It says nothing, which is not the same as calling."""
    produced = Produced(text="", calls=[], finish_reason="stop", usage=COUNTED)
    message = {"role": "assistant", "content": "", "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    assert choice == _plain(Chat().whole(LABEL, [produced]))


def test_texts_keep_the_order_of_their_prompts() -> None:
    """Their usage is summed."""
    produced = [Produced(text=text, calls=[], finish_reason="stop", usage=COUNTED) for text in "ab"]
    got = msgspec.to_builtins(Text().whole(LABEL, produced))
    assert [(0, "a"), (1, "b")] == [(each["index"], each["text"]) for each in got["choices"]]
    assert 10 == got["usage"]["total_tokens"]
