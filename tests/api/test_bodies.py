from __future__ import annotations

import msgspec
import pytest

from supervisord_llm.api.bodies import decode_body
from supervisord_llm.errors import InvalidRequest
from supervisord_llm.schema import GenerateRequest

decoder = msgspec.json.Decoder(GenerateRequest)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"{}", "pool"),
        (b'{"pool": 1}', "pool"),
        (b'{"pool": "a", "prompt": ""}', "prompt"),
        (b'{"pool": "a", "urgency": 1}', "urgency"),
        (b'{"pool": "a", "max_new_tokens": 0}', "max_new_tokens"),
        (b'{"pool": "a", "max_new_tokens": 2147483648}', "max_new_tokens"),
        (b'{"pool": "a", "max_new_tokens": 1.5}', "max_new_tokens"),
        (b'{"pool": "a", "temperature": 1e400}', "temperature"),
        (b'{"pool": "a", "temperature": "1"}', "temperature"),
        (b'{"pool": "a", "temperature": -0.1}', "temperature"),
        (b'{"pool": "a", "top_p": 0}', "top_p"),
        (b'{"pool": "a", "seed": -1}', "seed"),
        (b'{"pool": "a", "stop": ["x", ""]}', "stop[1]"),
        (b'{"pool": "a", "messages": []}', "messages"),
        (b'{"pool": "a", "messages": [{"role": "user"}]}', "messages[0].content"),
        (b'{"pool": "a", "messages": [{"role": "u", "content": "", "x": 1}]}', "messages[0].x"),
        (b'{"pool": "a", "x": ' + b"[" * 100_000, "x"),
    ],
)
def test_the_offending_field_is_named(body: bytes, param: str) -> None:
    """A field with the wrong type, out of range, missing or unknown is in ``param`` and message."""
    with pytest.raises(InvalidRequest) as caught:
        decode_body(body, decoder)
    assert param == caught.value.param
    assert f"cannot use field '{param}': " in str(caught.value)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{}", "cannot use field 'pool': it is missing; add it"),
        (b'{"pool": "a", "x": 1}', "cannot use field 'x': there is no such field; leave it out"),
        (b'{"pool": "a", "seed": -1}', "cannot use field 'seed': expected `int` >= 0"),
        (
            b'{"pool": "a", "seed": ' + b"9" * 5000 + b"}",
            "cannot use field 'seed': its number is too large; send a smaller one",
        ),
        (
            b'{"pool": "a", "top_p": 1e999}',
            "cannot use field 'top_p': its number is too large; send a smaller one",
        ),
        (b'{"pool": 1}', "cannot use field 'pool': expected `str`, got `int`"),
    ],
)
def test_the_message_says_what_to_send(body: bytes, message: str) -> None:
    """In words of this project where msgspec's have no remedy."""
    with pytest.raises(InvalidRequest) as caught:
        decode_body(body, decoder)
    assert message == str(caught.value)


def test_a_field_of_any_length_is_named_in_a_few_words() -> None:
    """Its name is the client's to choose, but not what it costs in messages and events."""
    with pytest.raises(InvalidRequest) as caught:
        decode_body(b'{"pool": "a", "' + b"x" * 1_000_000 + b'": 1}', decoder)
    assert "x" * 80 + "…" == caught.value.param
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "it is empty; send a JSON object"),
        (b" \n", "it is empty; send a JSON object"),
        (b"[]", "expected `object`, got `array`"),
        (b'{"pool": "a"} {}', "trailing characters"),
        (b'{"pool": "a"', "truncated"),
        (b'{"pool": "\xff"}', "UTF-8"),
        (b'{"pool": "a", "prompt": "\xed\xa0\x80"}', "UTF-8"),
        (b'{"pool": "a", "temperature": NaN}', "invalid character"),
        (b"pool=a&prompt=b", "invalid character"),
    ],
)
def test_what_is_not_json_is_said_so(body: bytes, message: str) -> None:
    """A body that cannot be read at all blames no field."""
    with pytest.raises(InvalidRequest, match=message) as caught:
        decode_body(body, decoder)
    assert caught.value.param is None


def test_deep_nesting_is_a_refusal() -> None:
    """Where a value may be anything, its depth is bounded by the decoder."""
    anything = msgspec.json.Decoder(dict[str, object])
    with pytest.raises(InvalidRequest, match="nested too deeply"):
        decode_body(b'{"a": ' + b"[" * 100_000, anything)
