"""A worker's stderr as lines for people."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from supervisord_llm.runtime.log_lines import LogLine, LogLines


def texts(lines: list[LogLine]) -> list[str]:
    """What the lines say."""
    return [line.text for line in lines]


@given(st.lists(st.integers(0, 40)), st.just(b"one\ntwo\r\n\nthr\xffee\nfour"))
def test_lines_do_not_depend_on_how_they_arrive(cuts: list[int], data: bytes) -> None:
    """Any chunking gives the same lines; empty ones are left out, bad bytes are replaced."""
    log = LogLines(0.0)
    found: list[LogLine] = []
    at = 0
    for cut in [*sorted(cuts), len(data)]:
        found += log.feed(data[at:cut], 0.0)
        at = max(at, min(cut, len(data)))
    found += log.finish(0.0)
    assert texts(found) == ["one", "two", "thr\ufffdee", "four"]
    assert log.last() == texts(found)


def test_a_line_without_end_is_cut_and_told_once() -> None:
    """Its beginning is a line, the rest of it is not, the next line is itself again."""
    log = LogLines(0.0)
    found: list[LogLine] = []
    for _ in range(100):
        found += log.feed(b"x" * 1000, 0.0)
    found += log.feed(b"end\nnext\n", 0.0)
    assert [len(text) for text in texts(found)] == [4096, 4]
    assert texts(found)[1] == "next"


def test_a_flood_is_limited_and_what_was_dropped_is_counted() -> None:
    """A burst passes, then lines by the second; the last lines are kept whatever was dropped."""
    log = LogLines(0.0)
    flood = b"".join(b"line %d\n" % number for number in range(1000))
    passed = log.feed(flood, 0.0)
    assert len(passed) == 200
    assert log.last()[-1] == "line 999"
    [after] = log.feed(b"later\n", 1.0)
    assert (after.text, after.dropped) == ("later", 800)
