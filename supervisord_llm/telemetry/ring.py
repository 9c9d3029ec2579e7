"""The last events, kept in memory for whoever reads them back over the control API.

A follower is a position and nothing more, so that it costs the publisher nothing: there is no queue
for each reader that could fill up, and a reader that fell behind by more than the capacity is told
which events it missed. The alternative, a bounded channel for each reader, was not taken: a full
one needs a verdict on the reader while something is being published.
"""

from __future__ import annotations

import msgspec
import trio

BATCH_EVENTS = 256
"""At most so many events at once, so that one batch is a bounded piece of work for its reader."""


class Gap(msgspec.Struct, frozen=True):
    """A range of sequence numbers that is no longer kept, both ends included."""

    first: int
    last: int


class Ring:
    """The last ``capacity`` encoded events; sequence numbers begin at 1 and have no holes."""

    def __init__(self, capacity: int) -> None:
        """Make an empty ring.

        Raises:
            ValueError: if ``capacity`` is under 1.
        """
        if capacity < 1:
            raise ValueError(f"cannot keep {capacity} events; keep 1 or more")
        self._kept: list[bytes] = []
        self._capacity = capacity
        self._last_seq = 0
        self._waiting = trio.lowlevel.ParkingLot()

    @property
    def last_seq(self) -> int:
        """The sequence number of the newest event; 0 before the first."""
        return self._last_seq

    @property
    def first_seq(self) -> int:
        """The sequence number of the oldest event still kept; ``last_seq + 1`` if there is none."""
        return self._last_seq - len(self._kept) + 1

    def append(self, encoded: bytes) -> int:
        """Keep one encoded event, wake those who wait for it, and give its sequence number."""
        if len(self._kept) < self._capacity:
            self._kept.append(encoded)
        else:
            self._kept[self._last_seq % self._capacity] = encoded
        self._last_seq += 1
        self._waiting.unpark_all()
        return self._last_seq

    def follow(self, since: int | None, *, live: bool) -> Follower:
        """Read from the event after ``since``, the last one that the reader has seen.

        Args:
            since: a sequence number; ``None`` begins with the oldest event that is kept. One that
                has not been reached yet (a reader of an earlier daemon) begins with the next event.
            live: whether to wait for more at the end, instead of ending there.
        """
        position = self.first_seq if since is None else min(since, self._last_seq) + 1
        return Follower(self, max(position, 1), live=live)

    def between(self, first: int, last: int) -> list[bytes]:
        """The encoded events from ``first`` to ``last``, all of which must still be kept."""
        return [self._kept[(seq - 1) % self._capacity] for seq in range(first, last + 1)]

    async def wait_appended(self) -> None:
        """Wait for the next event."""
        await self._waiting.park()


class Follower:
    """One reader's position in a ring."""

    def __init__(self, ring: Ring, position: int, *, live: bool) -> None:
        """Begin with the event number ``position``; `Ring.follow` makes these."""
        self._ring = ring
        self._next_seq = position
        self._last_seq = None if live else ring.last_seq

    @property
    def next_seq(self) -> int:
        """The sequence number that the next batch, or gap, begins with."""
        return self._next_seq

    async def next_batch(self) -> list[bytes] | Gap | None:
        """The next events, at most `BATCH_EVENTS`, each one JSON object without a newline.

        A live follower waits for one. The others see what there was when they were made.

        Returns:
            `Gap` once for each range that was lost to a reader who came too late, ``None`` at the
            end of a follower that is not live.
        """
        await trio.lowlevel.checkpoint()
        while self._next_seq > self._ring.last_seq and self._last_seq is None:
            await self._ring.wait_appended()
        end = self._ring.last_seq if self._last_seq is None else self._last_seq
        if self._next_seq > end:
            return None
        if self._next_seq < self._ring.first_seq:
            gap = Gap(self._next_seq, min(self._ring.first_seq - 1, end))
            self._next_seq = gap.last + 1
            return gap
        last = min(end, self._next_seq + BATCH_EVENTS - 1)
        batch = self._ring.between(self._next_seq, last)
        self._next_seq = last + 1
        return batch
