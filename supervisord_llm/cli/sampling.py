"""The options by which a generation is steered, for every command that asks for one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypedDict, TypeVar

import click

from supervisord_llm.schema import INT32_MAX, INT64_MAX

F = TypeVar("F", bound=Callable[..., Any])


class Number(click.FloatRange):
    """A float within bounds; unlike click's own it knows that NaN is within none."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number, or a usage error that names the parameter."""
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail("nan is not a number.", param, ctx)
        return number


class Sampling(TypedDict):
    """What `sampling_options` gives to a command; ``None`` leaves a field to the pool."""

    max_new_tokens: int | None
    temperature: float | None
    top_p: float | None
    top_k: int | None
    seed: int | None
    stop: list[str] | None


_OPTIONS = (
    click.option(
        "--max-new-tokens", type=click.IntRange(1, INT32_MAX), help="Stop after this many."
    ),
    click.option(
        "--temperature", type=Number(0.0, 100.0), help="0 takes the likeliest token every time."
    ),
    click.option(
        "--top-p", type=Number(0.0, 1.0, min_open=True), help="Sample within this probability mass."
    ),
    click.option(
        "--top-k", type=click.IntRange(0, INT32_MAX), help="Sample among this many; 0: all."
    ),
    click.option("--seed", type=click.IntRange(0, INT64_MAX), help="Make sampling repeatable."),
    click.option(
        "--stop",
        multiple=True,
        metavar="TEXT",
        callback=lambda _context, _parameter, texts: list(texts) or None,
        help="End before this text; may be repeated.",
    ),
)


def sampling_options(function: F) -> F:
    """Give a command these options, in this order in its help."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def check_encodable(text: str, what: str) -> None:
    """Raise a usage error for an argument with bytes that are no UTF-8, which cannot be sent."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise click.UsageError(f"cannot send the {what}: it is not UTF-8.") from error
