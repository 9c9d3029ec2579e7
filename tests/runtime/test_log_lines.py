"""A worker's stderr as lines for people."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from supervisord_llm.runtime.log_lines import LogLines, LogRate


@given(st.lists(st.integers(0, 40)), st.just(b"one\ntwo\r\n\nthr\xffee\nfour"))
def test_lines_do_not_depend_on_how_they_arrive(cuts: list[int], data: bytes) -> None:
    """Any chunking gives the same lines; empty ones are left out, bad bytes are replaced."""
    log = LogLines()
    found: list[str] = []
    at = 0
    for cut in [*sorted(cuts), len(data)]:
        found += log.feed(data[at:cut])
        at = max(at, min(cut, len(data)))
    found += log.finish()
    assert found == ["one", "two", "thr\ufffdee", "four"]


def test_a_line_without_end_is_cut_and_told_once() -> None:
    """Its beginning is a line, the rest of it is not, the next line is itself again."""
    log = LogLines()
    found: list[str] = []
    for _ in range(100):
        found += log.feed(b"x" * 1000)
    found += log.feed(b"end\nnext\n")
    assert [len(text) for text in found] == [4096, 4]
    assert found[1] == "next"


def test_a_flood_is_limited_and_what_was_dropped_is_counted() -> None:
    """A burst passes, then lines by the second."""
    rate = LogRate(0.0)
    admitted = [rate.admit(0.0) for _ in range(1000)]
    assert admitted == [0] * 200 + [None] * 800
    assert rate.admit(1.0) == 800
    assert rate.admit(1.0) == 0
