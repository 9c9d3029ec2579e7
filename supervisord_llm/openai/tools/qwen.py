"""Calls as Qwen3-Coder writes them: tags with a name in them, and values as they are.

    <tool_call>
    <function=weather>
    <parameter=city>
    Paris
    </parameter>
    </function>
    </tool_call>

One newline on each side of a value belongs to the format. A value ends at a tag that one of the
next parameter or of the function's end follows, so it may well speak of such tags itself. The model
often forgets the first line, above all behind a sentence of its own, though seldom the last; a
function without it is a call too, and the last line behind it is dropped.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping

import msgspec

from supervisord_llm.openai.tools.parts import CLOSE, Body, Reading, tag_at, white_end
from supervisord_llm.openai.tools.values import as_json

_KEY, _KEY_END, _END = "<parameter=", "</parameter>", "</function>"

_MAX_NAME = 256
"""How long a name may be, in characters; prose that looks like a tag is not waited for longer."""

_NAME = re.compile(r"[^<>\s]*+")


class Qwen:
    """The format, for the tools that were offered."""

    start = "<function="
    bare = True

    def __init__(self, tools: Mapping[str, Mapping[str, object]]) -> None:
        """Take, by the name of each tool, the JSON schema of its arguments."""
        self._tools = tools

    def begin(self, *, wrapped: bool) -> Body:
        """The function from its name on, and the tag behind it if there was one before it."""
        return _Function(self._tools, wrapped)


class _Place(enum.Enum):
    NAME = enum.auto()
    PARAMETERS = enum.auto()
    KEY = enum.auto()
    VALUE = enum.auto()
    VALUE_END = enum.auto()
    END = enum.auto()


class _Function:
    """A function from its name on; it notes where in what was read each thing is."""

    def __init__(self, tools: Mapping[str, Mapping[str, object]], wrapped: bool) -> None:
        self._tools = tools
        self._wrapped = wrapped
        self._place = _Place.NAME
        self._read = 0
        self._begin = 0
        self._value_end = 0
        self._spans: list[tuple[int, int]] = []

    def read(self, text: str, at: int) -> tuple[int, Reading]:
        """Read on; see `Body`."""
        shift = self._read - at
        reading = None
        while reading is None:
            at, reading = self._step(text, at, shift)
        self._read = at + shift
        return at, reading

    def _step(self, text: str, at: int, shift: int) -> tuple[int, Reading | None]:
        """Read one thing; ``shift`` is from a place in the text to that in all that was read."""
        match self._place:
            case _Place.NAME | _Place.KEY:
                return self._read_name(text, at, shift)
            case _Place.VALUE:
                return self._read_value(text, at, shift)
            case _Place.PARAMETERS | _Place.VALUE_END:
                return self._read_next(text, at, shift)
            case _Place.END:
                return self._read_end(text, at)

    def _read_name(self, text: str, at: int, shift: int) -> tuple[int, Reading | None]:
        found = _NAME.match(text, at)
        assert found is not None
        end = found.end()
        if end + shift - self._begin > _MAX_NAME:
            return end, Reading.BROKEN
        if end == len(text):
            return end, Reading.OPEN
        if text[end] != ">":
            return end, Reading.BROKEN
        self._spans.append((self._begin, end + shift))
        self._begin = end + 1 + shift
        self._place = _Place.PARAMETERS if self._place is _Place.NAME else _Place.VALUE
        return end + 1, None

    def _read_value(self, text: str, at: int, shift: int) -> tuple[int, Reading | None]:
        end = text.find(_KEY_END, at)
        if end < 0:
            cut = text.rfind("<", max(at, len(text) - len(_KEY_END)))
            begun = cut >= 0 and tag_at(text, cut, (_KEY_END,)) == ""
            return cut if begun else len(text), Reading.OPEN
        self._value_end = end + shift
        self._place = _Place.VALUE_END
        return end + len(_KEY_END), None

    def _read_next(self, text: str, at: int, shift: int) -> tuple[int, Reading | None]:
        begin = white_end(text, at)
        tag = tag_at(text, begin, (_KEY, _END))
        if tag == "":
            return begin, Reading.OPEN
        if tag is None:
            if self._place is _Place.PARAMETERS:
                return begin, Reading.BROKEN
            self._place = _Place.VALUE
            return begin, None
        if self._place is _Place.VALUE_END:
            self._spans.append((self._begin, self._value_end))
        at = begin + len(tag)
        self._begin = at + shift
        self._place = _Place.KEY if tag == _KEY else _Place.END
        return at, None

    def _read_end(self, text: str, at: int) -> tuple[int, Reading]:
        if not self._wrapped:
            return at, Reading.COMPLETE
        begin = white_end(text, at)
        tag = tag_at(text, begin, (CLOSE,))
        if tag == "":
            return begin, Reading.OPEN
        return (begin, Reading.BROKEN) if tag is None else (begin + len(tag), Reading.COMPLETE)

    def call(self, raw: str) -> tuple[str, str] | None:
        """The call; see `Body`."""
        name, *rest = [raw[begin:end] for begin, end in self._spans]
        keys, values = rest[::2], rest[1::2]
        schema = self._tools.get(name)
        if schema is None or "" in keys or len(set(keys)) < len(keys):
            return None
        arguments = {
            key: as_json(value.removeprefix("\n").removesuffix("\n"), key, schema)
            for key, value in zip(keys, values, strict=True)
        }
        try:
            return name, msgspec.json.encode(arguments).decode()
        except UnicodeError:
            # Half of a surrogate pair: no JSON can carry it.
            return None
