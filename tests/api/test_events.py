from __future__ import annotations

import json
from typing import Any

import trio
import trio.testing

from supervisord_llm.events import DaemonReady, HttpRefused, WorkerResumed
from tests.api.conftest import Door, OpenDoor
from tests.api.raw import get, read_until, stream_lines


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


async def fill(door: Door) -> None:
    """Publish until the follower is stuck in a send, never so much at once that it loses any."""
    bulky = DaemonReady(pools=["p" * 1000])
    while True:
        for _ in range(40):
            door.daemon.log.publish(bulky)
        await trio.testing.wait_all_tasks_blocked()
        if not followers(door):
            return


async def test_a_slow_follower_is_told_once_what_it_missed(open_door: OpenDoor) -> None:
    """One gap with the right range, and every other event exactly once, in order."""
    async with open_door(ring_events=50) as door, await door.connect() as stream:
        await stream.send_all(get("/api/v1/events?follow=true"))
        await read_until(stream, b"stream.opened")
        await fill(door)
        publish(door, 200)
        last = door.daemon.ring.last_seq
        got = await stream_lines(stream, lambda line: line.get("seq") == last)
        publish(door, 1)
        got += await stream_lines(stream, lambda line: line.get("seq") == last + 1)
    [gap] = [line for line in got if line["event"] == "stream.gap"]
    # What was in the send is not lost; what the ring still has is not either.
    assert last - 50 == gap["last"]
    seqs = [line["seq"] for line in got if line is not gap]
    assert seqs == [*range(seqs[0], gap["first"]), *range(gap["last"] + 1, last + 2)]
    assert gap == got[gap["first"] - seqs[0]]


async def test_a_follower_that_does_not_read_is_shed(open_door: OpenDoor) -> None:
    """Within send_timeout, with one event; another follower misses nothing."""
    async with (
        open_door(ring_events=50, send_timeout=0.3) as door,
        await door.connect() as lazy,
        await door.connect() as good,
    ):
        await lazy.send_all(get("/api/v1/events?follow=true"))
        await read_until(lazy, b"stream.opened")
        await fill(door)
        since = door.daemon.ring.last_seq
        await good.send_all(get(f"/api/v1/events?follow=true&since={since}"))
        await read_until(good, b"stream.opened")
        refused = await door.daemon.wait_event(HttpRefused)
        publish(door, 1)
        got = await stream_lines(good, lambda line: line["event"] == "daemon.ready")
        await wait_followers(door, 1)
    assert (0, "a client that did not read for listen.send_timeout") == (
        refused.status,
        refused.reason,
    )
    assert ["http.refused", "daemon.ready"] == [line["event"] for line in got]


async def test_a_follower_that_does_not_read_does_not_delay_the_end(open_door: OpenDoor) -> None:
    """Its connection is cut although its send would have had an hour."""
    async with (
        open_door(ring_events=50, send_timeout=3600.0) as door,
        await door.connect() as lazy,
    ):
        await lazy.send_all(get("/api/v1/events?follow=true"))
        await read_until(lazy, b"stream.opened")
        await fill(door)
        door.close()
        with trio.fail_after(10):
            await door.ended.wait()


def followers(door: Door) -> int:
    """How many followers wait for the next event."""
    return door.daemon.ring._waiting.statistics().tasks_waiting


async def wait_followers(door: Door, count: int) -> None:
    """Wait until so many followers wait for the next event."""
    with trio.fail_after(5):
        while count != followers(door):
            await trio.lowlevel.checkpoint()
