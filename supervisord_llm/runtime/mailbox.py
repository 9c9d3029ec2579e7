"""What one request's client has not read yet: bounded, filled without waiting.

The reader of a worker's stdout does not wait for a client, so `put_tokens` takes whatever one read
brought, and `overfull` says afterwards that the client has left more lying than it may. The reader
then gives the client one short, bounded chance to run before the request fails; what a box holds is
therefore its bound and one read at the most.

A token that comes alone, while its reader waits in an empty box, can pass the box by (`direct`): to
wake the reader's task for it costs more than all the rest of its way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import trio

from supervisord_llm.core.record import Record
from supervisord_llm.core.words import SlotName


class Started(msgspec.Struct, frozen=True):
    """A worker has the request."""

    worker: SlotName
    attempt: int


class Batch(msgspec.Struct):
    """What came since the last one, in the order of its fields."""

    started: Started | None
    tokens: list[str]
    record: Record | None


class Mailbox:
    """One producer, one consumer, bounded in tokens and in bytes of UTF-8 text."""

    def __init__(self, max_tokens: int, max_bytes: int) -> None:
        """Make an empty box."""
        self._max_tokens = max_tokens
        self._max_bytes = max_bytes
        self._started: Started | None = None
        self._tokens: list[str] = []
        self._bytes = 0
        self._record: Record | None = None
        self._closed = False
        self.direct: Callable[[Sequence[str]], bool] | None = None
        """Asked to take tokens on the spot while the reader waits in the empty box; it may refuse,
        and must neither wait nor raise."""
        self._reader_waits = False
        self._filled = trio.Event()
        self._taken = trio.Event()

    @property
    def overfull(self) -> bool:
        """Whether the client has left more lying than it may."""
        return len(self._tokens) > self._max_tokens or self._bytes > self._max_bytes

    def put_started(self, started: Started) -> None:
        """Say who has the request."""
        self._started = started
        self._filled.set()

    def put_tokens(self, texts: Sequence[str]) -> None:
        """Take a batch of tokens."""
        if self._closed:
            return
        # Once something is here, what comes must queue behind it.
        passes = self._reader_waits and not self._filled.is_set()
        if passes and self.direct is not None and self.direct(texts):
            return
        self._tokens += texts
        self._bytes += sum(len(text) if text.isascii() else len(text.encode()) for text in texts)
        self._filled.set()

    def put_record(self, record: Record) -> None:
        """Deliver the terminal record; there is always room for it."""
        self._record = record
        self._filled.set()

    def close(self) -> None:
        """Nobody reads any more: drop what is here and whatever comes."""
        self._closed = True
        self._take_tokens()

    async def next_batch(self) -> Batch:
        """Wait for something and take all of it; one reader at a time."""
        self._reader_waits = True
        try:
            await self._filled.wait()
        finally:
            self._reader_waits = False
        self._filled = trio.Event()
        started, record = self._started, self._record
        self._started = self._record = None
        return Batch(started, self._take_tokens(), record)

    async def wait_taken(self) -> None:
        """Wait until the client takes what is here, or is gone."""
        await self._taken.wait()

    def _take_tokens(self) -> list[str]:
        tokens, self._tokens, self._bytes = self._tokens, [], 0
        self._taken.set()
        self._taken = trio.Event()
        return tokens
