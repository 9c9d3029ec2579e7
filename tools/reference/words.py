"""The words of states, outcomes and reasons."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from enum import StrEnum

from supervisord_llm.core import words
from tools.reference import docstrings, markdown


def enums() -> Iterator[type[StrEnum]]:
    """The enums of words, in the order of their definition."""
    for cls in vars(words).values():
        if inspect.isclass(cls) and issubclass(cls, StrEnum) and cls is not StrEnum:
            yield cls


def word_lists() -> str:
    """The section on words."""
    return markdown.section(
        2,
        "Words",
        "The values that events, replies and messages have for states, outcomes and reasons. What "
        "to do about a reason is on the [troubleshooting page](troubleshooting.md).",
        *(_words(cls) for cls in enums()),
    )


def _words(cls: type[StrEnum]) -> str:
    documented = docstrings.members_of(cls)
    meaning = markdown.prose(cls.__doc__)
    if not documented:
        values = ", ".join(f"`{member.value}`" for member in cls)
        return markdown.section(3, cls.__name__, meaning, values)
    rows = ((f"`{each.value}`", markdown.line(documented.get(each.name))) for each in cls)
    return markdown.section(3, cls.__name__, meaning, markdown.table(("value", "meaning"), rows))
