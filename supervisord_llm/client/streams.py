"""Answers that come line by line: newline-delimited JSON, decoded as it arrives.

Lines are cut at the newline byte alone. The HTTP library's own line reader also cuts at U+2028 and
its kin, which are legal inside a JSON string and do turn up in generated text.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Generic, Self, TypeVar

import httpx
import msgspec

from supervisord_llm.client.errors import (
    DaemonUnreachable,
    UnreadableReply,
    transport_errors,
)
from supervisord_llm.schema import Accepted, Finished, LogLine, StreamGap, StreamLine, StreamOpened

T = TypeVar("T")


class LineStream(Generic[T]):
    """An async iterator over the decoded lines of one response.

    Iterating raises `DaemonUnreachable` where the response breaks off and `UnreadableReply` for a
    line that is not what the API promises. ``raw`` is the line that was yielded last, as it came
    and without its newline.
    """

    raw: bytes = b""

    def __init__(self, response: httpx.Response, socket: Path) -> None:
        self._response = response
        self._chunks: AsyncIterator[bytes] = response.aiter_raw()
        self._socket = socket
        self._lines: deque[bytes] = deque()
        self._tail = b""

    @abstractmethod
    def _decode(self, raw: bytes) -> T:
        """Decode one line; `msgspec.DecodeError` where it cannot be."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        while not self._lines:
            *lines, self._tail = (self._tail + await self._next_chunk()).split(b"\n")
            self._lines.extend(lines)
        self.raw = self._lines.popleft()
        try:
            return self._decode(self.raw)
        except msgspec.DecodeError as error:
            raise UnreadableReply(self._socket, str(error)) from error

    async def _next_chunk(self) -> bytes:
        with transport_errors(self._socket):
            try:
                return await anext(self._chunks)
            except StopAsyncIteration:
                if self._tail:
                    raise self._broken_off() from None
                raise

    def _broken_off(self) -> DaemonUnreachable:
        return DaemonUnreachable(
            self._socket, "it closed the connection before its answer was complete"
        )

    async def aclose(self) -> None:
        """Close the connection, unless the response was read to its end.

        The HTTP library iterates through five nested generators. Abandoned in mid-iteration they
        would be left to the garbage collector, so after the close they are driven on: what is
        already buffered comes out, then the closed connection ends all of them.
        """
        await self._response.aclose()
        try:
            async for _ in self._chunks:
                pass
        except (httpx.TransportError, httpx.StreamError):
            return


class GenerateStream(LineStream[StreamLine]):
    """A generation as it comes; ``accepted`` is there from the start, the rest is iterated.

    The last line is a `Finished`, exactly once; a stream without one raises `DaemonUnreachable`.
    """

    accepted: Accepted
    finished: Finished | None = None

    async def open(self) -> Self:
        """Read the first line."""
        first = await anext(self, None)
        if not isinstance(first, Accepted):
            raise UnreadableReply(self._socket, "the stream does not begin with `accepted`")
        self.accepted = first
        return self

    async def __anext__(self) -> StreamLine:
        try:
            line = await super().__anext__()
        except StopAsyncIteration:
            if self.finished is None:
                raise self._broken_off() from None
            raise
        if isinstance(line, Finished):
            self.finished = line
        return line

    def _decode(self, raw: bytes) -> StreamLine:
        return _STREAM_LINE.decode(raw)


class EventStream(LineStream[dict[str, object]]):
    """The event log, one dict per event, `stream.gap` lines included; ``opened`` came first."""

    opened: StreamOpened

    async def open(self) -> Self:
        """Read the first line."""
        first = await anext(self, None)
        try:
            self.opened = msgspec.convert(first, StreamOpened)
        except msgspec.ValidationError:
            detail = "the stream does not begin with `stream.opened`"
            raise UnreadableReply(self._socket, detail) from None
        return self

    def _decode(self, raw: bytes) -> dict[str, object]:
        return _EVENT.decode(raw)


class LogStream(LineStream[LogLine | StreamGap]):
    """A slot's log, one Struct per line; a `StreamGap` names the numbers of lines that are lost."""

    def _decode(self, raw: bytes) -> LogLine | StreamGap:
        return _LOG_LINE.decode(raw)


def gap(event: dict[str, object]) -> StreamGap | None:
    """The gap that this line of an `EventStream` tells of, if it is no event."""
    return msgspec.convert(event, StreamGap) if event.get("event") == "stream.gap" else None


_STREAM_LINE: msgspec.json.Decoder[StreamLine] = msgspec.json.Decoder(StreamLine)
_EVENT: msgspec.json.Decoder[dict[str, object]] = msgspec.json.Decoder(dict[str, object])
_LOG_LINE: msgspec.json.Decoder[LogLine | StreamGap] = msgspec.json.Decoder(LogLine | StreamGap)
