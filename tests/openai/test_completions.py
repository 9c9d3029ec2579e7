"""The body of a text completion."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from supervisord_llm.errors import ClientError, InvalidRequest
from supervisord_llm.openai.completions import MAX_PROMPTS, CompletionRequest


def request(**fields: Any) -> CompletionRequest:
    """Decode a body."""
    body = {"model": "m", "prompt": "p", **fields}
    return msgspec.json.decode(json.dumps(body), type=CompletionRequest)


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("once", ["once"]),
        (["once", "twice"], ["once", "twice"]),
        ([1, 0, 2], [(1, 0, 2)]),
        ([0], [(0,)]),
        ([[1, 2], [3]], [(1, 2), (3,)]),
    ],
)
def test_each_form_of_a_prompt_is_understood(prompt: object, expected: object) -> None:
    """Text, texts, token ids, and lists of token ids."""
    assert expected == request(prompt=prompt).prompts


@pytest.mark.parametrize("prompt", ["", [], [""], ["a", ""], [[]], [[1], []]])
def test_an_empty_prompt_is_refused(prompt: object) -> None:
    """A model has to begin with something."""
    with pytest.raises(InvalidRequest, match="empty") as caught:
        _ = request(prompt=prompt).prompts
    assert "prompt" == caught.value.param


@pytest.mark.parametrize("prompt", [["a", 1], [1, [1]], ["a", [1]]])
def test_texts_and_ids_are_not_mixed(prompt: object) -> None:
    """Nobody could tell how many prompts these are."""
    with pytest.raises(InvalidRequest, match="mixes"):
        _ = request(prompt=prompt).prompts


def test_prompts_are_counted() -> None:
    """16 at most; of token ids there may be more, for they are one prompt."""
    assert MAX_PROMPTS == len(request(prompt=["a"] * MAX_PROMPTS).prompts)
    assert 1 == len(request(prompt=[1] * 100).prompts)
    with pytest.raises(InvalidRequest, match="17 prompts are too many"):
        _ = request(prompt=["a"] * (MAX_PROMPTS + 1)).prompts


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": 2.1},
        {"temperature": -0.1},
        {"temperature": "1"},
        {"top_p": 0},
        {"top_p": 1.01},
        {"top_k": -2},
        {"seed": -1},
        {"seed": 2**63},
        {"max_tokens": 0},
        {"max_tokens": True},
        {"stop": ""},
        {"stop": ["a"] * 5},
        {"stop": ["x" * 1025]},
        {"prompt": [-1]},
        {"prompt": [1.5]},
        {"prompt": None},
        {"model": ""},
        {"stream": 1},
        {"session_id": 1},
    ],
)
def test_a_field_out_of_its_range_is_refused(fields: dict[str, Any]) -> None:
    """The decoder names the field."""
    with pytest.raises(msgspec.ValidationError, match=next(iter(fields))):
        request(**fields)


def test_what_is_left_out_and_what_is_null_is_the_same() -> None:
    """Many clients send every field that they know."""
    names = [
        field for field in CompletionRequest.__struct_fields__ if field not in {"model", "prompt"}
    ]
    assert request() == request(**dict.fromkeys(names))


@pytest.mark.parametrize(
    ("stop", "expected"), [(None, ()), ("a", ("a",)), (["a", "b"], ("a", "b")), ([], ())]
)
def test_stops_are_a_list_whatever_was_sent(stop: object, expected: object) -> None:
    """One string, up to four, or none."""
    assert expected == request(stop=stop).stops


@pytest.mark.parametrize(("top_k", "expected"), [(None, None), (-1, 0), (0, 0), (40, 40)])
def test_no_limit_of_tokens_may_be_written_in_two_ways(top_k: object, expected: object) -> None:
    """Other servers write -1, workers 0."""
    assert expected == request(top_k=top_k).best_tokens


def test_stream_options_belong_to_a_stream() -> None:
    """Usage is asked for with them."""
    asked = request(stream=True, stream_options={"include_usage": True})
    asked.check()
    assert asked.include_usage
    plain = request(stream=True, stream_options={})
    plain.check()
    assert not plain.include_usage
    with pytest.raises(ClientError, match="stream_options"):
        request(stream_options={"include_usage": True}).check()
