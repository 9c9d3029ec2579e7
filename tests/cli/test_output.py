from __future__ import annotations

import pytest

from supervisord_llm.cli.output import duration, printable, size, span


@pytest.mark.parametrize(
    ("milliseconds", "expected"),
    [
        (0.0, "<0.1 ms"),
        (0.44, "0.4 ms"),
        (0.96, "1 ms"),
        (3.2, "3 ms"),
        (999.4, "999 ms"),
        (999.6, "1.0 s"),
        (2014.0, "2.0 s"),
        (59_900.0, "59.9 s"),
        (61_000.0, "1m01s"),
    ],
)
def test_durations_have_the_digits_that_matter(milliseconds: float, expected: str) -> None:
    """A tenth of a millisecond matters below one, a tenth of a second above one."""
    assert expected == duration(milliseconds)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (-3.0, "0s"),
        (59.9, "59s"),
        (60.0, "1m00s"),
        (3599.0, "59m59s"),
        (15_030.0, "4h10m"),
        (200_000.0, "2d07h"),
    ],
)
def test_spans_are_one_word(seconds: float, expected: str) -> None:
    """Two units tell enough, a clock that was set back tells nothing."""
    assert expected == span(seconds)


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (None, None),
        (512, "512B"),
        (1536, "1.5KiB"),
        (178_257_920, "170.0MiB"),
        (3 * 2**30, "3.0GiB"),
        (2**41, "2.0TiB"),
    ],
)
def test_sizes_are_one_word(count: int | None, expected: str | None) -> None:
    """Binary units, as the kernel's tools use them."""
    assert expected == size(count)


def test_control_characters_are_shown_not_obeyed() -> None:
    """Text from elsewhere cannot move the cursor, change colours, or ring the bell."""
    assert "␛[2J␇␍␡\ufffd" == printable("\x1b[2J\x07\r\x7f\x9b")
    assert "a\tb\nc é🙂" == printable("a\tb\nc é🙂")
