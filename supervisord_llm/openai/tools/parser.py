"""Finds the tool calls in an answer as it is made, whatever their format.

A call is handed on whole or not at all. What turns out not to be one is text after all, byte for
byte and in its place: a malformed body, a tool that was not offered, a tag that the answer ends in,
a call longer than ``MAX_CALL``. Such text is not searched again up to where it broke, so a call
that the arguments of a refused one quote is not made; a whole call from that place on is one.

White space at the beginning of an answer and behind a call is kept back, and is text if text comes
next; before another call, and at the end behind a call, it is part of the format and not shown.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

from supervisord_llm.openai.tools.parts import (
    CLOSE,
    OPEN,
    Body,
    Format,
    Part,
    Reading,
    Text,
    ToolCall,
    tag_at,
    white_end,
)

MAX_CALL = 256 << 10
"""How long a call may be, with its tags, in characters: a file that a model writes in one go."""

_MAX_SPACE = 256
"""How much white space is kept back, in characters; more is no gap between two calls."""

_PIECE = 64 << 10
"""How much is read at once, in characters: what is copied at a cut does not grow with the text."""


class ToolParser:
    """Splits an answer into text and calls, wherever it is cut on its way here."""

    def __init__(
        self,
        formats: Sequence[Format],
        names: Container[str],
        *,
        new_id: Callable[[], str],
        max_call: int = MAX_CALL,
    ) -> None:
        """Start at the beginning of an answer.

        Args:
            formats: how calls may be written; they begin differently.
            names: the tools that were offered.
            new_id: returns what makes the next call's id unique, random hexadecimal digits.
            max_call: how long a call may be, with its tags, in characters.
        """
        self._formats = formats
        self._openers = (OPEN, *(each.start for each in formats if each.bare))
        self._names = names
        self._new_id = new_id
        self._max_call = max_call
        self._parts: list[Part] = []
        self._text: list[str] = []
        self._unread = ""
        # At the beginning or behind a call, with the white space seen there so far.
        self._at_margin = True
        self._space = ""
        self._called = False
        # Behind a call without a tag before it: models write the one behind it all the same.
        self._closes_nothing = False
        # The call under way: its inside, and all of it that was read.
        self._body: Body | None = None
        self._held: list[str] = []
        self._size = 0

    def feed(self, text: str) -> list[Part]:
        """Take the next piece of the answer and return what is known to be text or a call."""
        for begin in range(0, len(text), _PIECE):
            self._read(self._unread + text[begin : begin + _PIECE])
        return self._take()

    def finish(self) -> list[Part]:
        """Return what was held back: the answer has ended, and no call with it."""
        self._show("".join(self._held) + self._unread)
        if not self._called:
            self._text.append(self._space)
        self._body, self._held, self._unread, self._space = None, [], "", ""
        return self._take()

    def _read(self, text: str) -> None:
        at, decided = 0, True
        while decided and at < len(text):
            if self._body is not None:
                at, decided = self._read_call(self._body, text, at)
            elif self._at_margin:
                at, decided = self._read_margin(text, at)
            else:
                at, decided = self._read_text(text, at)
        self._unread = text[at:]

    def _read_margin(self, text: str, at: int) -> tuple[int, bool]:
        end = white_end(text, at)
        self._space += text[at:end]
        if len(self._space) > _MAX_SPACE:
            self._text.append(self._space)
            self._space = ""
        elif end == len(text):
            return end, True
        elif self._closes_nothing:
            tag = tag_at(text, end, (CLOSE,))
            if tag == "":
                return end, False
            if tag is not None:
                self._closes_nothing = False
                self._space = ""
                return end + len(tag), True
        self._at_margin = False
        return end, True

    def _read_text(self, text: str, at: int) -> tuple[int, bool]:
        begin = text.find("<", at)
        if begin < 0:
            self._show(text[at:])
            return len(text), True
        self._show(text[at:begin])
        tag = tag_at(text, begin, self._openers)
        if tag == "":
            return begin, False
        if tag is None:
            self._show("<")
            return begin + 1, True
        self._held, self._size = [tag], len(tag)
        if tag == OPEN:
            self._body = _Wrapped(self._formats)
        else:
            self._body = _inside(self._formats, tag, wrapped=False)
        return begin + len(tag), True

    def _read_call(self, body: Body, text: str, at: int) -> tuple[int, bool]:
        end = at + self._max_call - self._size
        reached, reading = body.read(text if len(text) <= end else text[:end], at)
        self._held.append(text[at:reached])
        self._size += reached - at
        if reading is Reading.OPEN and len(text) < end:
            return reached, False
        call = body.call("".join(self._held[1:])) if reading is Reading.COMPLETE else None
        if call is None or call[0] not in self._names:
            self._show("".join(self._held))
        else:
            self._flush()
            self._parts.append(ToolCall(f"call_{self._new_id()}", *call))
            self._space = ""
            self._at_margin = self._called = True
            self._closes_nothing = self._held[0] != OPEN
        self._body, self._held = None, []
        return reached, True

    def _show(self, text: str) -> None:
        if text:
            self._text += (self._space, text)
            self._space = ""

    def _flush(self) -> None:
        if text := "".join(self._text):
            self._parts.append(Text(text))
        self._text = []

    def _take(self) -> list[Part]:
        self._flush()
        parts, self._parts = self._parts, []
        return parts


class _Wrapped:
    """What is between the tags: white space, then the inside in the format that it begins like."""

    def __init__(self, formats: Sequence[Format]) -> None:
        self._formats = formats
        self._starts = [each.start for each in formats]
        self._before = 0
        self._inside: Body | None = None

    def read(self, text: str, at: int) -> tuple[int, Reading]:
        """Read on; see `Body`."""
        if self._inside is None:
            begin = white_end(text, at)
            start = tag_at(text, begin, self._starts)
            if not start:
                self._before += begin - at
                return begin, Reading.OPEN if start is not None else Reading.BROKEN
            self._inside = _inside(self._formats, start, wrapped=True)
            self._before += begin + len(start) - at
            at = begin + len(start)
        return self._inside.read(text, at)

    def call(self, raw: str) -> tuple[str, str] | None:
        """The call; see `Body`."""
        assert self._inside is not None
        return self._inside.call(raw[self._before :])


def _inside(formats: Sequence[Format], start: str, *, wrapped: bool) -> Body:
    return next(each for each in formats if each.start == start).begin(wrapped=wrapped)
