from __future__ import annotations

import json
from typing import Any

import trio

from supervisord_llm.events import DaemonReady, WorkerResumed
from tests.api.conftest import Door
from tests.api.raw import get, read_until


def publish(door: Door, count: int) -> None:
    """Publish some events."""
    for _ in range(count):
        door.daemon.log.publish(DaemonReady(pools=["smollm"]))


async def read(door: Door, query: str = "") -> list[dict[str, Any]]:
    """Read a stream that ends by itself."""
    reply = await door.http.get(f"/api/v1/events{query}")
    return [json.loads(line) for line in reply.text.splitlines()]


async def test_without_follow_the_stream_ends_where_the_ring_ends(door: Door) -> None:
    """The first line says whose events these are and with which number they begin."""
    publish(door, 3)
    opened, *events = await read(door)
    assert {"event": "stream.opened", "boot": "boot-1", "seq": 1} == opened
    assert [1, 2, 3] == [event["seq"] for event in events]


async def test_since_is_the_last_event_that_was_seen(door: Door) -> None:
    """The stream goes on behind it."""
    publish(door, 4)
    opened, *events = await read(door, "?since=2")
    assert 3 == opened["seq"]
    assert [3, 4] == [event["seq"] for event in events]


async def test_an_old_since_is_told_what_is_lost(door: Door) -> None:
    """One line names the range that the ring does not hold any more."""
    capacity = 1000
    publish(door, capacity + 5)
    opened, gap, *events = await read(door, "?since=2")
    assert {"event": "stream.gap", "first": 3, "last": 5} == gap
    assert (6, 6, capacity) == (opened["seq"], events[0]["seq"], len(events))


async def test_follow_goes_on_with_what_happens(door: Door) -> None:
    """A follower gets each event when it is published."""
    publish(door, 1)
    async with await door.connect() as stream:
        await stream.send_all(get("/api/v1/events?follow=true&since=1"))
        await read_until(stream, b'"stream.opened","boot":"boot-1","seq":2}')
        for seq in (2, 3):
            publish(door, 1)
            await read_until(stream, b'"seq":%d,' % seq)


async def test_a_follower_gets_a_proper_end_when_the_daemon_stops(door: Door) -> None:
    """What was published until then arrives, then the last chunk: not a broken connection."""
    async with await door.connect() as stream:
        await stream.send_all(get("/api/v1/events?follow=true"))
        await read_until(stream, b"stream.opened")
        door.close()
        door.daemon.log.publish(WorkerResumed(pool="p", worker="p.0", generation=1))
        rest = await read_until(stream, b"\r\n0\r\n\r\n")
    assert b"worker.resumed" in rest


async def test_a_follower_that_leaves_costs_nothing_more(door: Door) -> None:
    """The handler ends with its client."""
    async with await door.connect() as stream:
        await stream.send_all(get("/api/v1/events?follow=true"))
        await read_until(stream, b"stream.opened")
        await wait_followers(door, 1)
    await wait_followers(door, 0)


async def wait_followers(door: Door, count: int) -> None:
    """Wait until so many followers wait for the next event."""
    with trio.fail_after(5):
        while count != door.daemon.ring._waiting.statistics().tasks_waiting:
            await trio.lowlevel.checkpoint()
