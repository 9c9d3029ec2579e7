"""What an answer is made of, and what a format of tool calls has to say about a text."""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence
from typing import Protocol

import msgspec

OPEN, CLOSE = "<tool_call>", "</tool_call>"
"""What is around a call, in the formats that are known here."""

_WHITE = re.compile(r"[ \t\r\n]*")


class Text(msgspec.Struct, frozen=True):
    """Something that the assistant says; never empty."""

    text: str


class ToolCall(msgspec.Struct, frozen=True):
    """A complete call of a tool that was offered."""

    id: str
    name: str
    arguments: str
    """A JSON object."""


Part = Text | ToolCall


class Reading(enum.Enum):
    """How far a body has come."""

    OPEN = enum.auto()
    """More of it has to come."""
    COMPLETE = enum.auto()
    """It ended here."""
    BROKEN = enum.auto()
    """It cannot go on like this."""


class Body(Protocol):
    """The inside of a call under way: reads each character once, wherever the text is cut."""

    def read(self, text: str, at: int, /) -> tuple[int, Reading]:
        """Read on from ``at``, and return where it stopped and why.

        What an open body has left, the beginning of a tag, it is given again with more behind it.
        """

    def call(self, raw: str, /) -> tuple[str, str] | None:
        """The name and the arguments of the complete call; ``None`` if it is malformed.

        Args:
            raw: all that was read.
        """


class Format(Protocol):
    """One way to write calls."""

    @property
    def start(self) -> str:
        """How the inside of each call begins."""

    @property
    def bare(self) -> bool:
        """Whether models that write it leave out the tag around a call."""

    def begin(self, *, wrapped: bool) -> Body:
        """A body behind its ``start``; ``wrapped`` if the tag is around it."""


def white_end(text: str, at: int) -> int:
    """Where the white space ends that begins at a place; it is JSON's."""
    found = _WHITE.match(text, at)
    assert found is not None
    return found.end()


def tag_at(text: str, at: int, tags: Sequence[str]) -> str | None:
    """Which of some tags is at a place; empty if one may be there once more has come."""
    for tag in tags:
        if text.startswith(tag, at):
            return tag
    if len(text) - at >= max(map(len, tags), default=0):
        return None
    rest = text[at:]
    return "" if any(tag.startswith(rest) for tag in tags) else None
