"""Calls as Hermes models and many after them write them, Qwen2.5 and Qwen3 among them: as JSON.

    <tool_call>
    {"name": "weather", "arguments": {"city": "Paris"}}
    </tool_call>

Some models write the arguments as a string that holds the JSON; both are taken. The client gets
the model's own spelling of them, so no number changes on the way.

While the JSON comes, only its outline is read: strings, brackets, and that nothing else stands
outside of strings than JSON has there. So a tag inside a string is not taken for the end, and prose
behind a stray tag is known for what it is at once. A complete call is then decoded strictly.
"""

from __future__ import annotations

import re

import msgspec

from supervisord_llm.openai.tools.parts import CLOSE, Body, Reading, tag_at, white_end

_MAX_DEPTH = 100
"""How deep brackets may be in each other; a decoder's stack has an end."""

# White space, commas, colons, and the characters of numbers and of true, false and null.
_PLAIN = re.compile(r"[ \t\r\n,:0-9+\-.eEtrufalsn]*+")
_STRING = re.compile(r'(?:[^"\\\x00-\x1f]++|\\[^\x00-\x1f])*+')


class Hermes:
    """The format."""

    start = "{"
    bare = False

    def begin(self, *, wrapped: bool) -> Body:  # noqa: ARG002 - it always is
        """The rest of the JSON object, and the tag behind it."""
        return _Object()


class _Call(msgspec.Struct, frozen=True):
    name: str
    arguments: msgspec.Raw


class _Object:
    """A JSON object from behind its first bracket, up to and with the closing tag."""

    def __init__(self) -> None:
        self._depth = 1
        self._in_string = False

    def read(self, text: str, at: int) -> tuple[int, Reading]:
        """Read on; see `Body`."""
        while at < len(text) and self._depth:
            found = (_STRING if self._in_string else _PLAIN).match(text, at)
            assert found is not None
            at = found.end()
            if at == len(text):
                break
            char = text[at]
            if char == '"':
                self._in_string = not self._in_string
            elif self._in_string:
                # An escape that is cut in half, or a character that no string may have.
                half = char == "\\" and at + 1 == len(text)
                return at, Reading.OPEN if half else Reading.BROKEN
            elif char in "{[" and self._depth < _MAX_DEPTH:
                self._depth += 1
            elif char in "}]":
                self._depth -= 1
            else:
                return at, Reading.BROKEN
            at += 1
        return (at, Reading.OPEN) if self._depth else self._read_end(text, at)

    def _read_end(self, text: str, at: int) -> tuple[int, Reading]:
        end = white_end(text, at)
        tag = tag_at(text, end, (CLOSE,))
        if tag == "":
            return end, Reading.OPEN
        return (end, Reading.BROKEN) if tag is None else (end + len(tag), Reading.COMPLETE)

    def call(self, raw: str) -> tuple[str, str] | None:
        """The call; see `Body`."""
        try:
            call = msgspec.json.decode("{" + raw.removesuffix(CLOSE), type=_Call)
            arguments = bytes(call.arguments).decode()
            if arguments.lstrip().startswith('"'):
                arguments = msgspec.json.decode(arguments, type=str)
            msgspec.json.decode(arguments, type=dict[str, object])
        except (ValueError, RecursionError):
            return None
        return call.name, arguments.strip()
