from __future__ import annotations

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from supervisord_llm.openai.stops import StopGuard

PIECES = st.lists(st.text("ab\n😀", max_size=4), max_size=12)
STOPS = st.lists(st.text("ab\n😀", min_size=1, max_size=4), max_size=5)


def whole(stops: list[str], text: str) -> tuple[str, bool]:
    """What is to be shown of a text, found by looking for each stop string in all of it."""
    found = [(text.find(stop) + len(stop), text.find(stop)) for stop in stops if stop in text]
    return (text[: min(found)[1]], True) if found else (text, False)


def run(stops: list[str], pieces: list[str]) -> tuple[str, bool]:
    """What a guard shows of a text that comes in pieces, and whether it stopped."""
    guard = StopGuard(stops)
    shown = "".join([guard.feed(piece) for piece in pieces])
    return shown + guard.finish(), guard.stopped


@given(stops=STOPS, pieces=PIECES)
@example(stops=["abc", "b"], pieces=["a", "b", "c"])
@example(stops=["bc", "abc"], pieces=["ab", "c"])
def test_the_cuts_make_no_difference(stops: list[str], pieces: list[str]) -> None:
    """A text in pieces is shown up to where the whole would be."""
    assert whole(stops, "".join(pieces)) == run(stops, pieces)


@given(stops=STOPS, pieces=PIECES)
def test_no_more_is_held_back_than_may_become_a_stop(stops: list[str], pieces: list[str]) -> None:
    """After each piece, exactly the longest end that begins a stop string is missing."""
    guard = StopGuard(stops)
    text = shown = ""
    for piece in pieces:
        text += piece
        shown += guard.feed(piece)
        if guard.stopped:
            break
        begun = [size for stop in stops for size in range(len(stop)) if text.endswith(stop[:size])]
        assert text[: len(text) - max(begun, default=0)] == shown


@pytest.mark.parametrize(
    ("stops", "pieces", "expected"),
    [
        (["END"], ["on", "e E", "N", "D two"], "one "),
        (["END"], ["one E", "N", "X"], "one ENX"),
        (["\n\n"], ["a\n", "b\n", "\nc"], "a\nb"),
        (["aab"], ["a", "a", "a", "b"], "a"),
        (["aabaaac"], ["aabaaabaaac."], "aaba"),
        (["abcd", "bc"], ["abcd"], "a"),
        (["bcd", "abcd"], ["abcd"], ""),
        (["😀"], ["so 😁", "😀!"], "so 😁"),
        (["\ud83d\ude00"], ["a\ud83d", "\ude00b"], "a"),
        (["]", "^", "-", "\\"], ["a-b"], "a"),
        (["é"], ["e\u0301é"], "e\u0301"),
    ],
    ids=["split", "almost", "lines", "overlap", "overlap twice", "first complete", "same end",
         "emoji", "surrogates", "special", "not normalized"],
)  # fmt: skip
def test_where_a_text_ends(stops: list[str], pieces: list[str], expected: str) -> None:
    """The stop string that is complete first ends it, and nothing of it is shown."""
    assert expected == run(stops, pieces)[0]


def test_nothing_is_shown_after_a_stop() -> None:
    """Tokens that a worker makes until it has heard are for nobody."""
    guard = StopGuard(["."])

    assert "one" == guard.feed("one. two")
    assert guard.stopped
    assert "" == guard.feed("three")
    assert "" == guard.finish()


def test_what_was_held_back_is_shown_at_the_end() -> None:
    """A stop string that was not completed was text."""
    guard = StopGuard(["END"])

    assert "the " == guard.feed("the EN")
    assert "EN" == guard.finish()
    assert not guard.stopped
    assert "" == guard.finish()


def test_without_stops_text_passes() -> None:
    """The usual request pays nothing: the text that comes out is the one that went in."""
    guard = StopGuard([])
    text = "any text"

    assert text is guard.feed(text)
    assert "" == guard.finish()
    assert not guard.stopped


def test_stops_made_to_be_slow_are_not() -> None:
    """Sixteen long strings that nearly match everywhere take a fraction of a second.

    Searching what is held anew at each token takes longer than the bound.
    """
    guard = StopGuard(["a" * (1023 - each) + "b" for each in range(16)])
    start = time.process_time()
    for _ in range(5_000):
        guard.feed("aaaa")

    assert time.process_time() - start < 5
    assert 1023 == len(guard.finish())
