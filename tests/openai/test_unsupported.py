"""Fields that would change the output: refused by name, unless they do nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from supervisord_llm.errors import UnsupportedParameter
from supervisord_llm.openai.unsupported import NO_OPS, check_unsupported

_HARMLESS = {
    "store": True,
    "metadata": {"a": "b"},
    "service_tier": "auto",
    "safety_identifier": "x",
}


def _body(**fields: Any) -> bytes:
    return json.dumps({"model": "m", **fields}).encode()


@pytest.mark.parametrize("name", NO_OPS)
def test_a_field_that_would_do_something_is_refused_by_name(name: str) -> None:
    """Whatever value is not listed as doing nothing."""
    for value in (7, "yes", ["x"], {"x": 1}):
        with pytest.raises(UnsupportedParameter, match=name) as caught:
            check_unsupported(_body(**{name: value}))
        assert name == caught.value.param


@pytest.mark.parametrize("name", NO_OPS)
def test_a_field_that_does_nothing_is_taken(name: str) -> None:
    """Null, and each value of the list."""
    for value in (None, *NO_OPS[name]):
        check_unsupported(_body(**{name: value}))


@pytest.mark.parametrize(
    ("name", "value"), [("n", True), ("logprobs", 0), ("logprobs", True), ("min_p", False)]
)
def test_a_boolean_is_no_number(name: str, value: object) -> None:
    """As numbers and booleans are two kinds in JSON; logprobs of 0 is one that is told."""
    with pytest.raises(UnsupportedParameter):
        check_unsupported(_body(**{name: value}))


def test_a_number_may_be_written_either_way() -> None:
    """0.0 is 0."""
    check_unsupported(_body(presence_penalty=0.0, repetition_penalty=1.0, n=1))


def test_harmless_fields_are_not_looked_at() -> None:
    """What nobody here knows, and what changes no output."""
    check_unsupported(_body(**_HARMLESS, temperature=1, unheard_of=[{}]))
