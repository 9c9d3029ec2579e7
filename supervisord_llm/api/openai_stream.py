"""A completion as server-sent events: a write for each batch of tokens, and comments meanwhile.

Status 200 is sent only when there is output, or when the client has waited for as long as it may
without a sign. What fails before that has a status of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import trio

from supervisord_llm.api.errors import HttpError
from supervisord_llm.api.openai_errors import unfinished
from supervisord_llm.api.openai_run import Running, all_of, take
from supervisord_llm.api.replies import LineStream
from supervisord_llm.core import words
from supervisord_llm.errors import InternalError
from supervisord_llm.openai import sse
from supervisord_llm.openai.output import Output
from supervisord_llm.openai.shapes import Call, usage
from supervisord_llm.openai.sse import Chunks
from supervisord_llm.runtime.mailbox import Batch
from supervisord_llm.runtime.request import RequestStream

_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    # Some proxies would hold back events until they have a page of them.
    (b"x-accel-buffering", b"no"),
)


class _End(NamedTuple):
    """How a choice ended: what is still to be sent of it, and what its worker counted."""

    rest: bytes
    usage: words.Usage | None


class Telling:
    """Sends one completion."""

    def __init__(
        self, at: Running, lines: LineStream, headers: dict[str, str], keep_alive: float
    ) -> None:
        """Nothing is sent yet.

        Args:
            at: what is told of.
            lines: the sending side.
            headers: for the head of the reply.
            keep_alive: seconds without output after which a comment is sent.
        """
        self._at = at
        self._lines = lines
        more = [(name.encode(), value.encode()) for name, value in headers.items()]
        self._headers = [*_HEADERS, *more]
        self._keep_alive = keep_alive
        self._opened = False
        self._quiet = True
        """Whether nothing was sent since somebody last looked."""
        self._ends: list[_End | None] = [None] * len(at.streams)
        # Several choices write in turns; one needs no lock, and no round of the loop for it.
        self._turn = trio.Lock() if len(at.streams) > 1 else None

    async def run(self) -> bytes | HttpError:
        """Send all but the last bytes; return those, or what failed before the head was sent."""
        plan, label = self._at.plan, self._at.label
        chunks = [plan.kind.chunks(label, index) for index in range(len(plan.specs))]
        jobs = [
            partial(self._tell, index, stream, plan.outputs[index], chunks[index])
            for index, stream in enumerate(self._at.streams)
        ]
        failure = await all_of(jobs)
        if failure is not None:
            return sse.event(failure.body) + sse.DONE if self._opened else failure
        ends = [each for each in self._ends if each is not None]
        if len(ends) < len(jobs):
            raise InternalError(f"{label.id} ended without all of its records")
        counted = chunks[0].usage(usage([each.usage for each in ends])) if label.with_usage else b""
        if not self._opened:
            await self._open()
        return b"".join(each.rest for each in ends) + counted + sse.DONE

    async def _tell(
        self, index: int, stream: RequestStream, output: Output, chunks: Chunks
    ) -> HttpError | None:
        """Send a choice up to its end."""
        before, begun = chunks.opening, False
        while True:
            batch = await self._next(stream)
            encoded = _encode(chunks, take(stream, output, batch))
            if batch.record is not None:
                break
            if not encoded:
                continue
            await self._send(before + encoded)
            if not begun and output.plain and self._turn is None:
                stream.pass_directly(partial(self._send_now, chunks))
            before, begun = b"", True
        if (failure := unfinished(batch.record)) is not None:
            if self._opened and encoded:
                await self._send(before + encoded)
            return failure
        rest = before + encoded + _encode(chunks, output.finish())
        rest += chunks.finish(output.reason(batch.record.finish_reason))
        if self._turn is not None:
            # The others may go on for long.
            await self._send(rest)
            rest = b""
        self._ends[index] = _End(rest, batch.record.usage)
        return None

    async def _next(self, stream: RequestStream) -> Batch:
        """Wait for a batch, and let the client know meanwhile that this still goes on."""
        while True:
            with trio.move_on_after(self._keep_alive):
                batch = await stream.next_batch()
                if batch is None:
                    raise InternalError(f"{stream.request.id} ended without a record")
                return batch
            if self._quiet:
                await self._send(sse.KEEP_ALIVE)
            self._quiet = True

    async def _send(self, data: bytes) -> None:
        if self._turn is None:
            await self._send_alone(data)
            return
        async with self._turn:
            await self._send_alone(data)

    async def _send_alone(self, data: bytes) -> None:
        self._quiet = False
        if not self._opened:
            await self._open()
        await self._lines.send(data)

    def _send_now(self, chunks: Chunks, texts: Sequence[str]) -> bool:
        self._quiet = False
        return self._lines.send_now(chunks.text(texts[0] if len(texts) == 1 else "".join(texts)))

    async def _open(self) -> None:
        self._opened = True
        await self._lines.open(self._headers)


def _encode(chunks: Chunks, shown: Sequence[str | Call]) -> bytes:
    return b"".join(
        chunks.text(each) if isinstance(each, str) else chunks.calls([each]) for each in shown
    )
