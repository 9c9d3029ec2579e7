"""Tools to offer, and what parsers make of answers, for the tests of each format."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import count

from supervisord_llm.openai.tools import Part, Text, ToolCall, ToolParser
from supervisord_llm.openai.tools.hermes import Hermes
from supervisord_llm.openai.tools.parts import Format
from supervisord_llm.openai.tools.qwen import Qwen

TOOLS: Mapping[str, Mapping[str, object]] = {
    "weather": {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer"},
            "exact": {"type": "boolean"},
        },
    },
    "now": {},
}

HERMES: Sequence[Format] = [Hermes()]
QWEN: Sequence[Format] = [Qwen(TOOLS)]
EITHER: Sequence[Format] = [*HERMES, *QWEN]

Plain = list[str | tuple[str, str]]
"""An answer's parts: text as it is, calls as name and arguments."""


def parser(formats: Sequence[Format], max_call: int = 10_000) -> ToolParser:
    """A parser that counts its calls."""
    numbers = count(1)
    return ToolParser(formats, TOOLS, new_id=lambda: f"{next(numbers):x}", max_call=max_call)


def plain(parts: Iterable[Part]) -> Plain:
    """The parts, with texts that follow each other made one."""
    found: Plain = []
    for part in parts:
        match part:
            case ToolCall(name=name, arguments=arguments):
                found.append((name, arguments))
            case Text(text=text):
                assert text
                before = found.pop() if found and isinstance(found[-1], str) else ""
                assert isinstance(before, str)
                found.append(before + text)
    return found


def parsed(formats: Sequence[Format], pieces: Iterable[str], max_call: int = 10_000) -> Plain:
    """What comes of an answer in pieces."""
    under_way = parser(formats, max_call)
    parts = [part for piece in pieces for part in under_way.feed(piece)]
    return plain([*parts, *under_way.finish()])
