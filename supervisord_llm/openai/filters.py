"""The filters that chat templates may use, each of them measured.

They are Jinja2's, with the names and arguments that templates know, less those for web pages and
the one that draws lots: a prompt has neither. Where one could make more than `bounds` allows before
anybody can see it, its arguments are looked at first.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from jinja2 import Environment, pass_environment, pass_eval_context
from jinja2 import filters as jinja

from supervisord_llm.openai import bounds

Filter = Callable[..., Any]


def _measured(function: Filter) -> Filter:
    """Measure what a filter makes, and give it a list for what yields its items only once.

    The attribute is kept by which Jinja2 knows what to pass before the filter's value.
    """
    subject = 1 if hasattr(function, "jinja_pass_arg") else 0

    @functools.wraps(function)
    def measured(*args: Any, **kwargs: Any) -> Any:
        given = list(args)
        if isinstance(given[subject], Iterator):
            given[subject] = bounds.settle(given[subject])
        return bounds.settle(function(*given, **kwargs))

    return measured


def to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as models were trained on it: in the order given, and readable in every language.

    Raises:
        TooMuch: if it would be too long.
    """
    bounds.check_width(indent, *(separators or ()))
    bounds.weigh(value)
    encoder = json.JSONEncoder(
        ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
    if indent is None:
        return encoder.encode(value)
    return bounds.joined(encoder.iterencode(value))


def _indent(subject: Any, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    written = bounds.text(subject)
    bounds.check_width(width)
    size = len(width) if isinstance(width, str) else width
    bounds.pay(len(written) + max(0, size) * (len(written.splitlines()) + 1))
    return jinja.do_indent(written, width, first, blank)


@pass_environment
def _join(
    environment: Environment, value: Iterable[Any], d: Any = "", attribute: str | int | None = None
) -> str:
    if attribute is not None:
        value = map(jinja.make_attrgetter(environment, attribute), value)
    return bounds.joined(value, bounds.text(d))


@pass_environment
def _sum(
    environment: Environment,
    iterable: Iterable[Any],
    attribute: str | int | None = None,
    start: Any = 0,
) -> Any:
    if attribute is not None:
        iterable = map(jinja.make_attrgetter(environment, attribute), iterable)
    for each in iterable:
        start = bounds.add(start, each)
    return start


def _replace(subject: Any, old: Any, new: Any, count: int | None = None) -> str:
    subject, old, new = map(bounds.text, (subject, old, new))
    return bounds.replaced(subject, old, new, -1 if count is None else count)


def _format(value: Any, *args: Any, **kwargs: Any) -> str:
    if args and kwargs:
        raise TypeError("cannot take positional and keyword arguments at once")
    return bounds.percent(bounds.text(value), kwargs or args)


def _center(value: Any, width: int = 80) -> str:
    bounds.check_width(width)
    return bounds.text(value).center(width)


def _round(value: Any, precision: int = 0, method: Any = "common") -> Any:
    bounds.check_width(precision)
    return jinja.do_round(value, precision, method)


def _batch(value: Iterable[Any], linecount: int, fill_with: Any = None) -> Any:
    bounds.check_width(linecount)
    return jinja.do_batch(value, linecount, fill_with)


@pass_eval_context
def _slice(context: Any, value: Iterable[Any], slices: int, fill_with: Any = None) -> Any:
    bounds.check_width(slices)
    return jinja.FILTERS["slice"](context, value, slices, fill_with)


def _of_text(function: Callable[..., str]) -> Filter:
    """A filter that takes text, and whatever else as it is written."""

    @functools.wraps(function)
    def of_text(value: Any, *args: Any, **kwargs: Any) -> str:
        return str(function(bounds.text(value), *args, **kwargs))

    return of_text


@pass_environment
def _truncate(environment: Environment, value: Any, *args: Any, **kwargs: Any) -> str:
    return jinja.do_truncate(environment, bounds.text(value), *args, **kwargs)


def _wordcount(value: Any) -> int:
    return jinja.do_wordcount(bounds.text(value))


_AS_THEY_ARE = (
    "abs", "attr", "count", "d", "default", "dictsort", "first", "float", "groupby", "int",
    "items", "last", "length", "list", "map", "max", "min", "reject", "rejectattr", "reverse",
    "select", "selectattr", "sort", "unique",
)  # fmt: skip
"""Jinja2's, whose results are in proportion to what they are given."""

_OURS: dict[str, Filter] = {
    "batch": _batch,
    "capitalize": _of_text(jinja.do_capitalize),
    "center": _center,
    "e": _of_text(jinja.FILTERS["escape"]),
    "escape": _of_text(jinja.FILTERS["escape"]),
    "format": _format,
    "indent": _indent,
    "join": _join,
    "lower": _of_text(jinja.do_lower),
    "replace": _replace,
    "round": _round,
    "safe": bounds.text,
    "slice": _slice,
    "string": bounds.text,
    "sum": _sum,
    "title": _of_text(jinja.do_title),
    "tojson": to_json,
    "trim": _of_text(jinja.do_trim),
    "truncate": _truncate,
    "upper": _of_text(jinja.do_upper),
    "wordcount": _wordcount,
}

FILTERS: dict[str, Filter] = {
    name: _measured(each)
    for name, each in {**{name: jinja.FILTERS[name] for name in _AS_THEY_ARE}, **_OURS}.items()
}
"""All that there are, by their names in templates."""
