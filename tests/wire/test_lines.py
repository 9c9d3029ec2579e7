from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisord_llm.wire.lines import LineSplitter


def split_all(splitter: LineSplitter, chunks: list[bytes]) -> list[bytes]:
    """Every line that the chunks complete."""
    return [line for chunk in chunks for line in splitter.feed(chunk)]


@given(lines=st.lists(st.binary(max_size=30)), cuts=st.lists(st.integers(0, 400)))
def test_lines_do_not_depend_on_the_reads(lines: list[bytes], cuts: list[int]) -> None:
    """Wherever the stream is cut, the same lines come out of it."""
    lines = [each.replace(b"\n", b"") for each in lines]
    stream = b"".join(each + b"\n" for each in lines)
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    chunks = [stream[start:end] for start, end in pairwise(edges)]

    assert lines == split_all(LineSplitter(max_line=31), chunks)


def test_a_line_may_be_as_long_as_the_limit_with_its_newline() -> None:
    """The limit counts the newline."""
    splitter = LineSplitter(max_line=4)

    assert [b"abc"] == splitter.feed(b"abc\n")
    assert splitter.too_long is None


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
def test_a_line_over_the_limit(size: int) -> None:
    """As much of it as the limit allows is known, however the bytes arrive."""
    splitter = LineSplitter(max_line=4)
    stream = b"ab\nabcdefgh\nij\n"
    chunks = [stream[at : at + size] for at in range(0, len(stream), size)]

    assert [b"ab"] == split_all(splitter, chunks)
    assert b"abcd" == splitter.too_long


def test_one_byte_more_is_too_long() -> None:
    """A line of the limit has no room for its newline."""
    splitter = LineSplitter(max_line=4)

    assert [] == splitter.feed(b"abcd\n")
    assert b"abcd" == splitter.too_long


def test_a_line_is_too_long_before_its_newline_comes() -> None:
    """An endless line is noticed as soon as it passes the limit, and no byte is kept after it."""
    splitter = LineSplitter(max_line=8)

    assert [b"x"] == splitter.feed(b"x\n1234567")
    assert b"1234567" == splitter.started
    assert [] == splitter.feed(b"8")
    assert b"12345678" == splitter.too_long
    assert [] == splitter.feed(b"9\nmore\n")
    assert b"" == splitter.started


def test_what_has_begun_is_known() -> None:
    """The beginning of an unfinished line can be shown."""
    splitter = LineSplitter(max_line=8)
    splitter.feed(b"one\ntw")

    assert b"tw" == splitter.started
    assert [b"two"] == splitter.feed(b"o\n")
    assert b"" == splitter.started
