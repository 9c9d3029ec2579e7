"""Secrets on command lines: found by the name of their option, and not repeated.

A command line is the wrong place for one, as every user of the machine may read it with ``ps``.
What is hidden here is hidden from those who read logs, a support request, or the control API.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

HIDDEN = "…"
"""Stands for a value that may be a secret."""

_OPTION = re.compile(
    r"--?(?:[a-z0-9_-]*(?:api[_-]?key|access[_-]?key|secret|password|passwd)"
    r"|(?:[a-z0-9_-]*(?:hf|hub|api|auth|access)[_-])?token)",
    re.IGNORECASE,
)
"""A whole option whose name says that a secret follows: ``--api-key``, ``--hf-token``.

Not every token is one, though: ``--eos-token`` is not.
"""

_BEARER = re.compile(r"((?:authorization: *)?bearer +).+", re.IGNORECASE | re.DOTALL)


def hide_arguments(argv: Sequence[str]) -> list[str]:
    """A command line with `HIDDEN` in the place of what looks like a secret, else as it is."""
    hidden = list(argv)
    for index, shown in _secrets(argv):
        hidden[index] = shown
    return hidden


def secret_options(argv: Sequence[str]) -> list[str]:
    """What stands before each of them, as it may be shown: mostly an option."""
    hidden = hide_arguments(argv)
    names: dict[str, None] = {}
    for index, shown in _secrets(argv):
        option, equals, _ = shown.partition("=")
        names[option if equals else hidden[index - 1]] = None
    return list(names)


def _secrets(argv: Sequence[str]) -> Iterator[tuple[int, str]]:
    """The places of arguments that hold a secret, the program's own excepted, and what to show."""
    for index in range(1, len(argv)):
        name, equals, value = argv[index].partition("=")
        if equals and value and _OPTION.fullmatch(name):
            yield index, f"{name}={HIDDEN}"
        elif index > 1 and _OPTION.fullmatch(argv[index - 1]) and not argv[index].startswith("--"):
            yield index, HIDDEN
        elif match := _BEARER.fullmatch(argv[index]):
            yield index, f"{match[1]}{HIDDEN}"
