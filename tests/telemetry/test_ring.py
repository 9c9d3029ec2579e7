from __future__ import annotations

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from supervisord_llm.telemetry.ring import BATCH_EVENTS, Follower, Gap, Ring


def filled(count: int, *, capacity: int) -> Ring:
    """A ring that ``count`` events went through, each its own number."""
    ring = Ring(capacity)
    for number in range(1, count + 1):
        assert ring.append(b"%d" % number) == number
    return ring


async def read_all(follower: Follower) -> list[bytes | Gap]:
    """Everything up to the end of a follower that is not live, gaps in their places."""
    found: list[bytes | Gap] = []
    while (batch := await follower.next_batch()) is not None:
        found += [batch] if isinstance(batch, Gap) else batch
    return found


def test_an_empty_ring_has_nothing_to_begin_with() -> None:
    """Before the first event the next one is number 1."""
    ring = Ring(3)
    assert (ring.last_seq, ring.first_seq) == (0, 1)


@pytest.mark.parametrize("capacity", [0, -1])
def test_a_ring_that_keeps_nothing_is_refused(capacity: int) -> None:
    """The capacity is at least one event."""
    with pytest.raises(ValueError, match=f"cannot keep {capacity} events; keep 1 or more"):
        Ring(capacity)


def test_a_full_ring_keeps_the_newest() -> None:
    """The oldest give way, one for each new one."""
    ring = filled(7, capacity=3)
    assert (ring.first_seq, ring.last_seq) == (5, 7)


async def test_reading_ends_with_what_there_was() -> None:
    """A follower that is not live ends, and does not see what comes after it was made."""
    ring = filled(2, capacity=3)
    follower = ring.follow(None, live=False)
    ring.append(b"3")
    assert await read_all(follower) == [b"1", b"2"]


async def test_reading_an_empty_ring_ends_at_once() -> None:
    """Nothing has happened yet: nothing to read, and no waiting for it."""
    assert await read_all(Ring(3).follow(None, live=False)) == []


async def test_reading_goes_on_after_the_last_seen_event() -> None:
    """``since`` names the last event that the reader has."""
    ring = filled(5, capacity=10)
    assert await read_all(ring.follow(3, live=False)) == [b"4", b"5"]


async def test_without_since_reading_begins_with_the_oldest_kept_and_no_gap() -> None:
    """Whoever asks for nothing in particular has lost nothing."""
    ring = filled(5, capacity=2)
    assert await read_all(ring.follow(None, live=False)) == [b"4", b"5"]


async def test_an_old_since_is_answered_with_the_lost_range_first() -> None:
    """Both ends of the gap are lost; what follows is complete."""
    ring = filled(9, capacity=3)
    follower = ring.follow(2, live=False)
    assert follower.next_seq == 3
    assert await read_all(follower) == [Gap(3, 6), b"7", b"8", b"9"]


async def test_a_since_that_was_never_reached_waits_for_the_next_event() -> None:
    """A number of an earlier daemon must not hide the events of this one."""
    ring = filled(2, capacity=3)
    follower = ring.follow(700, live=True)
    assert follower.next_seq == 3
    ring.append(b"3")
    assert await follower.next_batch() == [b"3"]


async def test_a_negative_since_begins_with_the_first() -> None:
    """There is no event before number 1, so there is no gap either."""
    ring = filled(2, capacity=3)
    assert await read_all(ring.follow(-5, live=False)) == [b"1", b"2"]


async def test_a_live_follower_is_woken_by_the_next_event(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    """It waits where the others end, and all waiting followers are woken."""
    ring = Ring(3)
    found: list[list[bytes] | Gap | None] = []

    async def follow() -> None:
        found.append(await ring.follow(None, live=True).next_batch())

    nursery.start_soon(follow)
    nursery.start_soon(follow)
    await trio.testing.wait_all_tasks_blocked()
    assert not found
    ring.append(b"1")
    await trio.testing.wait_all_tasks_blocked()
    assert found == [[b"1"], [b"1"]]


async def test_a_slow_live_follower_is_told_what_it_missed() -> None:
    """It costs the publisher nothing; it only learns that it was too slow."""
    ring = filled(1, capacity=4)
    follower = ring.follow(None, live=True)
    assert await follower.next_batch() == [b"1"]
    for number in range(2, 12):
        ring.append(b"%d" % number)
    assert await follower.next_batch() == Gap(2, 7)
    assert await follower.next_batch() == [b"8", b"9", b"10", b"11"]


async def test_a_follower_that_is_not_live_loses_no_more_than_its_own_range() -> None:
    """When all that it could read has gone, the gap ends where it would have ended."""
    ring = filled(2, capacity=2)
    follower = ring.follow(None, live=False)
    for number in range(3, 9):
        ring.append(b"%d" % number)
    assert await read_all(follower) == [Gap(1, 2)]


async def test_a_batch_is_bounded() -> None:
    """A reader gets a long history in pieces, and can do other things in between."""
    ring = filled(2 * BATCH_EVENTS + 1, capacity=10_000)
    follower = ring.follow(None, live=False)
    sizes = []
    while (batch := await follower.next_batch()) is not None:
        assert isinstance(batch, list)
        sizes.append(len(batch))
    assert sizes == [BATCH_EVENTS, BATCH_EVENTS, 1]


async def test_reading_is_a_checkpoint_even_when_nothing_has_to_be_waited_for() -> None:
    """A reader of a long history can be cancelled, and lets others run."""
    ring = filled(3, capacity=3)
    with trio.move_on_after(0) as scope:
        await ring.follow(None, live=False).next_batch()
    assert scope.cancelled_caught


@given(
    capacity=st.integers(1, 5),
    steps=st.lists(st.one_of(st.integers(1, 12), st.just("read")), max_size=30),
)
async def test_every_event_is_read_or_lost_exactly_once(
    capacity: int, steps: list[int | str]
) -> None:
    """However appending and reading alternate, batches and gaps follow each other seamlessly."""
    ring = Ring(capacity)
    follower = ring.follow(None, live=True)
    covered: list[int] = []
    for step in [*steps, "read", "read"]:
        if isinstance(step, int):
            for _ in range(step):
                ring.append(b"%d" % (ring.last_seq + 1))
        elif follower.next_seq <= ring.last_seq:
            batch = await follower.next_batch()
            if isinstance(batch, Gap):
                covered += range(batch.first, batch.last + 1)
            else:
                assert batch is not None
                covered += map(int, batch)
    assert covered == list(range(1, ring.last_seq + 1))
