"""Durations, sizes and lists of cores, as people write them in a configuration file.

A quantity in a file is text with its unit, so that ``timeout = 500`` cannot mean one thing to the
writer and another to the reader. In memory it is a plain number of seconds or bytes: subclasses of
``float`` and ``int`` were not taken, because encoders refuse them and arithmetic loses them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise

_DURATION_UNITS = {
    "ms": Decimal("0.001"),
    "s": Decimal(1),
    "m": Decimal(60),
    "h": Decimal(3600),
    "d": Decimal(86400),
}
_SIZE_UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}

DURATION_MAX = 365 * 86400.0
"""Seconds; a longer wait is a slip of the pen, and no clock arithmetic overflows below it."""

SIZE_MAX = 2**50
"""Bytes; likewise."""

CPU_MAX = 8191
"""The highest core number that Linux can be built for."""

_DURATION = re.compile(r"(?:[0-9]{1,30}(?:\.[0-9]{1,30})?(?:ms|[smhd]))+")
_DURATION_PART = re.compile(r"([0-9.]+)(ms|[smhd])")
_SIZE = re.compile(r"([0-9]{1,30}(?:\.[0-9]{1,30})?)([KMGT]iB|B)")
_LOOSE = re.compile(r"([0-9]{1,30}(?:\.[0-9]{1,30})?) *([A-Za-z]*)")
_CPU_RANGE = re.compile(r"([0-9]{1,4})(?:-([0-9]{1,4}))?")

_DURATION_ALIASES = {
    **dict.fromkeys(("msec", "msecs", "millis", "millisecond", "milliseconds"), "ms"),
    **dict.fromkeys(("", "sec", "secs", "second", "seconds"), "s"),
    **dict.fromkeys(("min", "mins", "minute", "minutes"), "m"),
    **dict.fromkeys(("hr", "hrs", "hour", "hours"), "h"),
    **dict.fromkeys(("day", "days"), "d"),
}
_SIZE_ALIASES = {
    **dict.fromkeys(("", "byte", "bytes"), "B"),
    **{alias: f"{p.upper()}iB" for p in "kmgt" for alias in (p, f"{p}b", f"{p}ib")},
}


def parse_duration(text: str) -> float:
    """Seconds from a duration such as ``250ms``, ``2s``, ``1.5h`` or ``1m30s``.

    Raises:
        ValueError: if it is none, or more than a year; the message says what to write.
    """
    if not _DURATION.fullmatch(text):
        remedy = _suggest(text, _DURATION_UNITS, _DURATION_ALIASES, whole=False)
        remedy = remedy or 'a number and a unit (ms, s, m, h, d), such as "2s"'
        raise ValueError(f"cannot read {show(text)} as a duration; write {remedy}")
    parts = _DURATION_PART.findall(text)
    seconds = float(sum(Decimal(number) * _DURATION_UNITS[unit] for number, unit in parts))
    if seconds > DURATION_MAX:
        raise ValueError(f"cannot use {show(text)}: too long; write at most a year, 365d")
    return seconds


def format_duration(seconds: float) -> str:
    """The duration in the largest unit in which it is a whole number; `parse_duration` inverts it.

    Days are used from two of them on: ``24h`` is read faster than ``1d``.
    """
    exact = Decimal(repr(float(seconds)))
    for unit in ("d", "h", "m", "s", "ms"):
        count = exact / _DURATION_UNITS[unit]
        least = {"d": 2, "s": 0}.get(unit, 1)
        if count == count.to_integral_value() and count >= least:
            return f"{count:.0f}{unit}"
    return f"{exact:f}s"


def parse_size(text: str) -> int:
    """Bytes from a size such as ``512MiB``, ``1.5GiB`` or ``100B``.

    Only powers of 1024 are units: memory and pipes are measured in them, and ``MB`` is read both
    ways.

    Raises:
        ValueError: if it is none, no whole number of bytes, or over 1024 TiB; the message says what
            to write.
    """
    match = _SIZE.fullmatch(text)
    if match is None:
        remedy = _suggest(text, _SIZE_UNITS, _SIZE_ALIASES, whole=True)
        remedy = remedy or 'a number and a unit (B, KiB, MiB, GiB, TiB), such as "1MiB"'
        raise ValueError(f"cannot read {show(text)} as a size; write {remedy}")
    # Decimal would round what has more than 28 digits, and refuse to tell its remainder.
    count = Fraction(match[1]) * _SIZE_UNITS[match[2]]
    if count.denominator != 1:
        raise ValueError(f"cannot use {show(text)}: it is no whole number of bytes; write one")
    if count > SIZE_MAX:
        raise ValueError(f"cannot use {show(text)}: too large; write at most 1024TiB")
    return int(count)


def format_size(count: int) -> str:
    """The size in the largest unit in which it is a whole number; `parse_size` inverts it."""
    units = [unit for unit, factor in _SIZE_UNITS.items() if count % factor == 0 and count]
    unit = units[-1] if units else "B"
    return f"{count // _SIZE_UNITS[unit]}{unit}"


def parse_cpus(text: str) -> tuple[int, ...]:
    """Core numbers, ascending, from a list such as ``0-3,8`` (the kernel's notation).

    Raises:
        ValueError: if it is none; the message says what to write.
    """
    found: set[int] = set()
    for part in text.split(","):
        match = _CPU_RANGE.fullmatch(part.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if first > last or last > CPU_MAX:
            raise ValueError(
                f"cannot read {show(text)} as a list of cores; "
                'write numbers and ranges, such as "0-3,8"'
            )
        found.update(range(first, last + 1))
    return tuple(sorted(found))


def format_cpus(cpus: Sequence[int]) -> str:
    """The cores in the kernel's notation; `parse_cpus` inverts it unless there are none."""
    ordered = sorted(set(cpus))
    if not ordered:
        return ""
    breaks = [index for index, (a, b) in enumerate(pairwise(ordered), 1) if b != a + 1]
    runs = [ordered[a:b] for a, b in pairwise([0, *breaks, len(ordered)])]
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def show(text: str) -> str:
    """The text in quotes, shortened, as a message shows it."""
    shown = text if len(text) <= 60 else text[:59] + "…"
    escaped = "".join(c if c.isprintable() else f"\\u{ord(c):04X}" for c in shown)
    return f'"{escaped}"'


def _suggest(
    text: str, units: Mapping[str, Decimal | int], aliases: Mapping[str, str], *, whole: bool
) -> str:
    """What the writer seems to have meant, in quotes; empty if that is a guess too far."""
    match = _LOOSE.fullmatch(text.strip())
    if match is None:
        return ""
    exact = {unit.lower(): unit for unit in units}
    unit = exact.get(match[2].lower()) or aliases.get(match[2].lower())
    if unit is None or (whole and (Fraction(match[1]) * Fraction(units[unit])).denominator != 1):
        return ""
    return f'"{match[1]}{unit}"'
