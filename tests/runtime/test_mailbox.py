"""What a client has not read yet."""

from __future__ import annotations

from collections.abc import Sequence

import trio
from trio.testing import wait_all_tasks_blocked

from supervisord_llm.core.record import Record
from supervisord_llm.core.words import Outcome
from supervisord_llm.runtime.mailbox import Batch, Mailbox, Started

RECORD = Record(outcome=Outcome.COMPLETED, queued_ms=0.0, ttft_ms=None, total_ms=1.0)


async def test_everything_that_waits_comes_in_one_batch() -> None:
    """The start, the tokens and the record travel together if the client is slow to ask."""
    box = Mailbox(10, 100)
    box.put_started(Started("sim.0", 1))
    box.put_tokens(["a", "b"])
    box.put_tokens(["c"])
    box.put_record(RECORD)
    assert await box.next_batch() == Batch(Started("sim.0", 1), ["a", "b", "c"], RECORD)


async def test_a_reader_waits_for_the_next_thing() -> None:
    """An empty box is waited for, and is empty again after a batch."""
    box = Mailbox(10, 100)
    batches: list[Batch] = []

    async def read() -> None:
        batches.append(await box.next_batch())
        batches.append(await box.next_batch())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await wait_all_tasks_blocked()
        assert batches == []
        box.put_tokens(["a"])
        await wait_all_tasks_blocked()
        box.put_tokens(["b"])
    assert [batch.tokens for batch in batches] == [["a"], ["b"]]


async def test_a_box_is_overfull_beyond_its_tokens_or_its_bytes() -> None:
    """Bytes are those of the text in UTF-8; a full box still has room for the record."""
    box = Mailbox(2, 100)
    box.put_tokens(["a", "b"])
    seen = [box.overfull]
    box.put_tokens(["c"])
    seen.append(box.overfull)
    box.put_record(RECORD)
    batch = await box.next_batch()
    assert (batch.tokens, batch.record) == (["a", "b", "c"], RECORD)
    assert [*seen, box.overfull] == [False, True, False]
    wide = Mailbox(100, 7)
    wide.put_tokens(["🙂"])
    seen = [wide.overfull]
    wide.put_tokens(["é" * 2])
    assert [*seen, wide.overfull] == [False, True]


async def test_taking_wakes_who_waits_for_room() -> None:
    """So does closing, after which nothing is kept."""
    for take in ("read", "close"):
        box = Mailbox(1, 100)
        box.put_tokens(["a", "b"])
        woken = trio.Event()

        async def wait(box: Mailbox = box, woken: trio.Event = woken) -> None:
            await box.wait_taken()
            woken.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await wait_all_tasks_blocked()
            if take == "read":
                await box.next_batch()
            else:
                box.close()
                box.put_tokens(["c"] * 10)
        assert woken.is_set()
        assert not box.overfull


async def test_tokens_pass_a_waiting_reader_in_an_empty_box_by() -> None:
    """They are given on the spot; what comes after a start or beside a reader's work queues."""
    box = Mailbox(10, 100)
    passed: list[str] = []
    batches: list[Batch] = []

    def take(texts: Sequence[str]) -> bool:
        passed.extend(texts)
        return True

    async def read() -> None:
        batches.append(await box.next_batch())

    box.direct = take
    box.put_tokens(["nobody waits"])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await wait_all_tasks_blocked()
        box.put_tokens(["a"])
        box.put_tokens(["b", "c"])
        box.put_record(RECORD)
        box.put_tokens(["behind the record"])
    assert ["a", "b", "c"] == passed
    assert [
        Batch(None, ["nobody waits"], None),
        Batch(None, ["behind the record"], RECORD),
    ] == batches


async def test_tokens_that_are_not_taken_on_the_spot_stay_in_the_box() -> None:
    """A refusal costs nothing but the way through the box."""
    box = Mailbox(10, 100)
    box.direct = lambda _: False
    batches: list[Batch] = []

    async def read() -> None:
        batches.append(await box.next_batch())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await wait_all_tasks_blocked()
        box.put_tokens(["a"])
        box.put_tokens(["b"])
    assert [Batch(None, ["a", "b"], None)] == batches


async def test_a_reader_that_was_cancelled_is_not_taken_for_a_waiting_one() -> None:
    """What comes after a reader gave up stays for the next one."""
    box = Mailbox(10, 100)
    box.direct = lambda _: True
    with trio.move_on_after(0):
        await box.next_batch()
    box.put_tokens(["a"])
    assert Batch(None, ["a"], None) == await box.next_batch()
