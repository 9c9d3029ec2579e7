"""``GET /api/v1/workers/{slot}/logs``: what a slot's workers wrote to stderr, line by line.

The last lines are kept across generations, so that the words of the worker that crashed are still
there when its successor loads, or when the slot is parked.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from starlette.requests import Request
from starlette.types import ASGIApp

from supervisord_llm.api.bodies import as_bool, as_count, read_query
from supervisord_llm.api.follow import follow
from supervisord_llm.api.front import Front
from supervisord_llm.api.inbox import read_no_body, until_disconnect
from supervisord_llm.api.replies import LineStream, Streamed, json_lines
from supervisord_llm.api.workers import find_slot
from supervisord_llm.runtime.clock import Clock
from supervisord_llm.runtime.log_book import LogBook, LoggedLine
from supervisord_llm.schema import LogLine, StreamGap

LINES = 100
"""How many of the last lines come where nobody says."""


async def stream(front: Front, request: Request) -> ASGIApp:
    """Stream the last ``lines`` lines, as far as they are kept; with ``follow``, go on."""
    query = read_query(request, lines=as_count, follow=as_bool)
    await read_no_body(request)
    book = find_slot(front, request).logs
    reader = _Reader(book, front.supervisor.clock)
    begin = reader.encode(book.last(query.get("lines", LINES)))

    async def run(lines: LineStream) -> bytes:
        await lines.open()
        if lines.head_only:
            return b""
        # The head of the reply goes out with its first piece, although that may be empty.
        await lines.send(begin)
        if query.get("follow", False):
            await follow(reader.next_lines, lines, request.state.closing)
            return reader.rest()
        return b""

    return Streamed(lambda lines: until_disconnect(request, partial(run, lines)))


class _Reader:
    """One client's position in a slot's log; it begins behind the lines that there are now."""

    def __init__(self, book: LogBook, clock: Clock) -> None:
        self._book = book
        self._clock = clock
        self._seen = book.last_number

    async def next_lines(self) -> bytes:
        """Wait for lines behind the position."""
        await self._book.wait_after(self._seen)
        return self.rest()

    def rest(self) -> bytes:
        """Move to the end; what was lost to a reader who came too late goes before the lines."""
        behind = self._book.last_number - self._seen
        found = self._book.last(behind)
        first = self._seen + 1
        self._seen += behind
        missed = behind - len(found)
        gap = [StreamGap(first=first, last=first + missed - 1)] if missed else []
        return json_lines(gap) + self.encode(found)

    def encode(self, found: Sequence[LoggedLine]) -> bytes:
        """Encode lines for the client."""
        return json_lines(
            [
                LogLine(
                    number=line.number,
                    at=self._clock.rfc3339(line.at),
                    generation=line.generation,
                    text=line.text,
                )
                for line in found
            ]
        )
