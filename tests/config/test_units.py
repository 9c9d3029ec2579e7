from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisord_llm.config.units import (
    CPU_MAX,
    DURATION_MAX,
    SIZE_MAX,
    format_cpus,
    format_duration,
    format_size,
    parse_cpus,
    parse_duration,
    parse_size,
)


# Far below a nanosecond, where the text would be longer than what is read.
@given(st.just(0.0) | st.floats(1e-9, DURATION_MAX))
def test_a_duration_survives_being_written_and_read(seconds: float) -> None:
    """Writing a duration loses nothing, however odd the number."""
    assert seconds == parse_duration(format_duration(seconds))


def refusal(parse: Callable[[str], object], text: str) -> str:
    """What reading the text is refused with, empty if it is not."""
    try:
        parse(text)
    except ValueError as error:
        return str(error)
    return ""


@given(st.integers(1, SIZE_MAX))
def test_a_size_survives_being_written_and_read(count: int) -> None:
    """Writing a size loses no byte."""
    assert count == parse_size(format_size(count))


@given(st.sets(st.integers(0, CPU_MAX), min_size=1))
def test_a_list_of_cores_survives_being_written_and_read(cpus: set[int]) -> None:
    """Writing a list of cores loses none and adds none."""
    assert tuple(sorted(cpus)) == parse_cpus(format_cpus(sorted(cpus)))


@given(st.text() | st.from_regex(r"[0-9.]{0,8} ?[a-zA-Z]{0,4}", fullmatch=True))
def test_any_text_is_read_or_refused_with_a_remedy(text: str) -> None:
    """Whatever is written gives a number within bounds, or a sentence that says what to write."""
    for parse, most in ((parse_duration, DURATION_MAX), (parse_size, SIZE_MAX)):
        if refused := refusal(parse, text):
            assert refused.startswith(("cannot read ", "cannot use "))
            assert "; " in refused
        else:
            assert 0 <= parse(text) <= most
    if not refusal(parse_cpus, text):
        assert all(0 <= cpu <= CPU_MAX for cpu in parse_cpus(text))


@given(st.from_regex(r"[1-9][0-9]?(\.5)? ?[a-zA-Z]{0,4}", fullmatch=True))
def test_what_an_error_tells_to_write_can_be_read(text: str) -> None:
    """The suggestion at the end of a message is right, be it the writer's number or an example."""
    for parse in (parse_duration, parse_size):
        refused = refusal(parse, text)
        if refused.startswith("cannot read "):
            assert parse(refused.rsplit('"', 2)[1]) > 0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0s", 0.0),
        ("250ms", 0.25),
        ("2s", 2.0),
        ("1.5h", 5400.0),
        ("1m30s", 90.0),
        ("5m", 300.0),
        ("2d", 172800.0),
        ("0.1ms", 0.0001),
        ("365d", DURATION_MAX),
    ],
)
def test_a_duration_is_in_seconds(text: str, seconds: float) -> None:
    """A number with its unit, or several in a row, is the sum in seconds."""
    assert seconds == parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0s"),
        (0.25, "250ms"),
        (2.0, "2s"),
        (90.0, "90s"),
        (300.0, "5m"),
        (86400.0, "24h"),
        (172800.0, "2d"),
        (0.00001, "0.00001s"),
    ],
)
def test_a_duration_is_written_in_its_largest_whole_unit(seconds: float, text: str) -> None:
    """The unit is chosen so that the number is whole and short."""
    assert text == format_duration(seconds)


@pytest.mark.parametrize(
    ("text", "count"),
    [("1B", 1), ("64KiB", 65536), ("1.5GiB", 3 * 2**29), ("1024TiB", SIZE_MAX)],
)
def test_a_size_is_in_bytes(text: str, count: int) -> None:
    """Units are powers of 1024."""
    assert count == parse_size(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("2 secs", 'cannot read "2 secs" as a duration; write "2s"'),
        ("2", 'cannot read "2" as a duration; write "2s"'),
        ("5 Minutes", 'cannot read "5 Minutes" as a duration; write "5m"'),
        ("2S", 'cannot read "2S" as a duration; write "2s"'),
        (
            "soon",
            (
                'cannot read "soon" as a duration; write a number and a unit (ms, s, m, h, d), '
                'such as "2s"'
            ),
        ),
        (
            "-2s",
            (
                'cannot read "-2s" as a duration; write a number and a unit (ms, s, m, h, d), '
                'such as "2s"'
            ),
        ),
        ("366d", 'cannot use "366d": too long; write at most a year, 365d'),
        (
            "٣s",
            (
                'cannot read "٣s" as a duration; write a number and a unit (ms, s, m, h, d), '
                'such as "2s"'
            ),
        ),
    ],
)
def test_a_wrong_duration_is_refused_with_the_right_one(text: str, message: str) -> None:
    """The message names what was written and what was probably meant."""
    assert message == refusal(parse_duration, text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("10MB", 'cannot read "10MB" as a size; write "10MiB"'),
        ("512", 'cannot read "512" as a size; write "512B"'),
        ("1 kib", 'cannot read "1 kib" as a size; write "1KiB"'),
        (
            "big",
            (
                'cannot read "big" as a size; write a number and a unit (B, KiB, MiB, GiB, TiB), '
                'such as "1MiB"'
            ),
        ),
        (
            f"1{28 * '0'}",
            f'cannot read "1{28 * "0"}" as a size; write "1{28 * "0"}B"',
        ),
        (
            f"1.{29 * '0'}1B",
            f'cannot use "1.{29 * "0"}1B": it is no whole number of bytes; write one',
        ),
        ("0.5B", 'cannot use "0.5B": it is no whole number of bytes; write one'),
        ("1025TiB", 'cannot use "1025TiB": too large; write at most 1024TiB'),
    ],
)
def test_a_wrong_size_is_refused_with_the_right_one(text: str, message: str) -> None:
    """The message names what was written and what was probably meant."""
    assert message == refusal(parse_size, text)


@pytest.mark.parametrize("text", ["", "a", "3-1", "1,,2", "-1", "0-9999", "1-2-3"])
def test_a_wrong_list_of_cores_is_refused_with_an_example(text: str) -> None:
    """Anything but numbers and ascending ranges is refused."""
    expected = f'cannot read "{text}" as a list of cores; write numbers and ranges, such as "0-3,8"'
    assert expected == refusal(parse_cpus, text)
