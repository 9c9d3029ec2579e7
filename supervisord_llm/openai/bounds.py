"""How much a template may make of what it was given: every value is measured where it comes about.

A template is somebody else's program, and Python calls that run in C can neither be interrupted
nor asked for their memory beforehand: ``"a" * 10**11`` is one of them, and so is the comparison of
two lists that hold themselves twice, thirty levels deep. So each operation that makes a value is
measured, before where its result may be out of proportion to its operands and else afterwards. Two
bounds hold:

- a value *weighs* at most `MAX_VALUE`, everything below it counted as often as it is there. So
  whatever C code does with a value takes milliseconds;
- all that is made in one rendering *costs* at most `MAX_WORK`, what was thrown away included. So
  no rendering can hold more than that.

Both count one for a character and 8 for an item. What takes many small steps instead, such as an
endless loop, is interrupted by whoever renders.
"""

from __future__ import annotations

import operator
import re
from collections.abc import (
    Callable,
    ItemsView,
    Iterable,
    Iterator,
    KeysView,
    Mapping,
    ValuesView,
)
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import chain
from typing import Any

from jinja2.runtime import Undefined
from jinja2.utils import Namespace

MAX_SOURCE = 1 << 20
"""How long a template may be, in bytes of UTF-8; the longest in use have some 20 KiB."""

MAX_VALUE = 8 << 20
"""What a value may weigh: twice the longest prompt."""

MAX_WORK = 128 << 20
"""What all values of a rendering may cost together."""

MAX_BITS = 4096
"""The longest whole number, in bits; arithmetic with longer ones takes more than a moment."""

MAX_WIDTH = 1000
"""The widest field of a format, indentation or rounding."""

_ITEM = 8

_WIDTHS = re.compile(r"[#0\- +]*(\*|[0-9]*)(?:\.(\*|[0-9]*))?")
_DIGITS = re.compile(r"[0-9]+")
_LISTS = (list, tuple, KeysView, ValuesView, ItemsView)
_DATA = (*_LISTS, dict, str, int, float, range, Undefined, type(None))

_TOO_LONG = "it makes too much text, or too long lists"


class TooMuch(Exception):
    """A template makes more than it may; the text says of what."""


class _Meter:
    """One rendering: what it may still cost, and what its lists and tables weigh."""

    def __init__(self) -> None:
        self.left = MAX_WORK
        self.weights: dict[int, tuple[object, int]] = {}
        """By identity; each is kept, so that no other takes its identity."""


_meter: ContextVar[_Meter] = ContextVar("meter")


@contextmanager
def metered() -> Iterator[None]:
    """Count anew, for one rendering or compilation."""
    token = _meter.set(_Meter())
    try:
        yield
    finally:
        _meter.reset(token)


def check_source(source: str) -> None:
    """Refuse, with `TooMuch`, a template of more than `MAX_SOURCE`."""
    if len(source.encode()) > MAX_SOURCE:
        raise TooMuch(f"it is longer than {MAX_SOURCE} bytes")


def pay(cost: int) -> None:
    """Count what was made, or is about to be.

    Raises:
        TooMuch: if it is too much, by itself or with all that was made before.
    """
    meter = _meter.get()
    meter.left -= cost
    if cost > MAX_VALUE or meter.left < 0:
        raise TooMuch(_TOO_LONG)


def settle(value: Any) -> Any:
    """Count a value that was just made; what yields its items only once becomes a list.

    Raises:
        TooMuch: if it is too heavy, or everything together too much.
    """
    if isinstance(value, str):
        pay(len(value))
    elif isinstance(value, (*_LISTS, dict)):
        pay(_ITEM * len(value))
        weigh(value)
    elif isinstance(value, int):
        _check_number(value)
    elif isinstance(value, Iterator):
        return settle(_listed(value))
    return value


def _listed(items: Iterable[Any]) -> list[Any]:
    found = []
    for item in items:
        pay(_ITEM)
        found.append(item)
    return found


def weigh(value: Any) -> int:
    """What a value weighs.

    Raises:
        TooMuch: if that is too much; or if a list holds anything but data: a namespace in it could
            become heavier afterwards.
    """
    if isinstance(value, str):
        return len(value)
    if not isinstance(value, _DATA):
        return _ITEM
    known = _meter.get().weights
    weight = _weigh(value, known)
    if isinstance(value, (*_LISTS, dict)):
        known[id(value)] = value, weight
    return weight


def _weigh(value: Any, known: Mapping[int, tuple[object, int]], *, through: bool = False) -> int:
    weight = 0
    pending = [value]
    while pending:
        each = pending.pop()
        if isinstance(each, str):
            weight += len(each)
        elif (found := known.get(id(each))) is not None:
            weight += found[1]
        elif isinstance(each, dict):
            weight += 2 * _ITEM * len(each)
            pending += chain(each.keys(), each.values())
        elif isinstance(each, _LISTS):
            weight += _ITEM * len(each)
            pending += each
        elif isinstance(each, int):
            _check_number(each)
        elif through and isinstance(each, Namespace):
            weight += 100 * _ITEM
            pending.append(getattr(each, "_Namespace__attrs"))  # noqa: B009 - it is mangled
        elif not through and not isinstance(each, _DATA):
            raise TooMuch("it puts something else than data into a list")
        if weight > MAX_VALUE:
            raise TooMuch(_TOO_LONG)
    return weight


def _check_number(value: int) -> None:
    if value.bit_length() > MAX_BITS:
        raise TooMuch(f"it counts with numbers of more than {MAX_BITS} bits")


# Text ---------------------------------------------------------------------------


def text(value: Any) -> str:
    """A value as it is written; raises `TooMuch` if that would be too long."""
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, bool | float | Undefined):
        return str(value)
    _weigh(value, {}, through=True)
    written = str(value)
    pay(len(written))
    return written


def concat(parts: Iterable[str]) -> str:
    """One text of many; raises `TooMuch` if it would be too long."""
    parts = list(parts)
    pay(sum(map(len, parts)))
    return "".join(parts)


def joined(values: Iterable[Any], separator: str = "") -> str:
    """One text of many values, as they are written; raises `TooMuch` if it would be too long."""
    parts: list[str] = []
    size = 0
    for value in values:
        parts.append(text(value))
        size += len(parts[-1]) + len(separator)
        if size > MAX_VALUE:
            break
    pay(size)
    return separator.join(parts)


def replaced(subject: str, old: str, new: str, count: int = -1) -> str:
    """A text with one part in place of another; raises `TooMuch` if it would be too long."""
    found = subject.count(old)
    times = found if count < 0 else min(count, found)
    pay(max(len(subject), len(subject) + times * (len(new) - len(old))))
    return subject.replace(old, new, count)


def check_width(*widths: object) -> None:
    """Refuse a field that is wider than `MAX_WIDTH`, to either side."""
    for width in widths:
        size = len(width) if isinstance(width, str) else width
        if isinstance(size, int | float) and not -MAX_WIDTH <= size <= MAX_WIDTH:
            raise TooMuch(f"it asks for a width of more than {MAX_WIDTH}")


def check_spec(spec: str) -> None:
    """Refuse what `check_width` would in the specification of a field, ``>20`` and the like."""
    check_width(*(int(digits[:9]) for digits in _DIGITS.findall(spec)))


def percent(pattern: str, values: Any) -> str:
    """``pattern % values``; raises `TooMuch` if it would be too long."""
    pieces = pattern.split("%")[1:]
    size = len(pattern)
    for piece in pieces:
        key, rest = "", piece
        if piece.startswith("("):
            key, _, rest = piece.partition(")")
        match = _WIDTHS.match(rest)
        widths = [each for each in (match.groups() if match else ()) if each]
        if "*" in widths or "(" in key[1:]:
            raise TooMuch("it takes the widths of a format from its values")
        check_width(*(int(each[:9]) for each in widths))
        size += sum(map(int, widths))
    size += len(pieces) * _weigh(values, {}, through=True)
    if size > MAX_VALUE:
        raise TooMuch(_TOO_LONG)
    return str(settle(pattern % values))


# Arithmetic ---------------------------------------------------------------------


def add(left: Any, right: Any) -> Any:
    """``left + right``."""
    if isinstance(left, str) and isinstance(right, str):
        pay(len(left) + len(right))
        return left + right
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        weight = weigh(left) + weigh(right)
        if weight > MAX_VALUE:
            raise TooMuch(_TOO_LONG)
        pay(_ITEM * (len(left) + len(right)))
        both: object = operator.add(left, right)
        _meter.get().weights[id(both)] = both, weight
        return both
    return _counted(operator.add, left, right)


def multiply(left: Any, right: Any) -> Any:
    """``left * right``."""
    for one, times in ((left, right), (right, left)):
        if isinstance(one, str | list | tuple) and isinstance(times, int):
            if max(1, weigh(one)) * times > MAX_VALUE:
                raise TooMuch(_TOO_LONG)
            return settle(one * times)
    return _counted(operator.mul, left, right)


def power(left: Any, right: Any) -> Any:
    """``left ** right``."""
    if (
        isinstance(left, int)
        and isinstance(right, int)
        and left.bit_length() * right > MAX_BITS + right
    ):
        raise TooMuch(f"it counts with numbers of more than {MAX_BITS} bits")
    return _counted(operator.pow, left, right)


def modulo(left: Any, right: Any) -> Any:
    """``left % right``: the rest of a division, or a format filled in."""
    if isinstance(left, str):
        return percent(left, right)
    return _counted(operator.mod, left, right)


def _counted(operation: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    for operand in (left, right):
        if isinstance(operand, int):
            _check_number(operand)
    return settle(operation(left, right))


OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "+": add,
    "*": multiply,
    "**": power,
    "%": modulo,
    "-": lambda left, right: _counted(operator.sub, left, right),
    "/": lambda left, right: _counted(operator.truediv, left, right),
    "//": lambda left, right: _counted(operator.floordiv, left, right),
}
"""The operators of templates, each measured; they raise `TooMuch` and what Python's raise."""
