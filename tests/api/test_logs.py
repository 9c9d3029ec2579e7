"""A slot's log over the control API: its last lines, and what comes next."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
import trio.testing

from tests.api.conftest import Door
from tests.api.raw import get, read_until, stream_lines

LOGS = "/api/v1/workers/smollm.0/logs"
FOLLOW = f"{LOGS}?follow=true"


def write(door: Door, *texts: str, generation: int = 1) -> None:
    """Let the slot's worker write lines."""
    for text in texts:
        book(door).add(door.daemon.clock.now(), generation, text)


def book(door: Door) -> Any:
    """Return the slot's log."""
    return door.pool.slots[0].logs


async def read(door: Door, query: str = "") -> list[dict[str, Any]]:
    """Read a log that is not followed."""
    reply = await door.http.get(f"{LOGS}{query}")
    assert (200, "application/x-ndjson") == (reply.status_code, reply.headers["content-type"])
    return [json.loads(line) for line in reply.text.splitlines()]


async def test_the_last_lines_come_with_their_generations(door: Door) -> None:
    """Numbered through, with the time, and what an earlier worker said is still there."""
    write(door, "out of memory")
    write(door, "loading", generation=2)
    first, second = await read(door)
    assert ("line", 1, 1, "out of memory") == tuple(
        first[key] for key in ("event", "number", "generation", "text")
    )
    assert (2, 2, "loading") == tuple(second[key] for key in ("number", "generation", "text"))
    assert first["at"].endswith("Z")


@pytest.mark.parametrize(
    ("query", "numbers"), [("", range(51, 151)), ("?lines=2", (149, 150)), ("?lines=0", ())]
)
async def test_how_many_lines_is_the_readers_to_say(
    door: Door, query: str, numbers: list[int]
) -> None:
    """A hundred where nobody says."""
    write(door, *map(str, range(150)))
    assert list(numbers) == [line["number"] for line in await read(door, query)]


async def test_following_begins_before_anything_was_written(door: Door) -> None:
    """The reply has begun by then; each line comes when it is written."""
    async with await door.connect() as stream:
        await stream.send_all(get(FOLLOW))
        await read_until(stream, b"200")
        for text in ("one", "two"):
            write(door, text)
            await read_until(stream, b'"text":"%s"}' % text.encode())


async def test_a_slow_follower_is_told_once_which_lines_it_missed(door: Door) -> None:
    """One gap with the right range, and every other line exactly once, in order."""
    async with await door.connect() as stream:
        await stream.send_all(get(FOLLOW))
        await read_until(stream, b"200")
        while True:
            write(door, *["x" * 4000] * 30)
            await trio.testing.wait_all_tasks_blocked()
            if not followers(door):
                break
        write(door, *["y"] * 1500)
        last = book(door).last_number
        got = await stream_lines(stream, lambda line: line.get("number") == last)
    [gap] = [line for line in got if line["event"] == "stream.gap"]
    kept = book(door).last(10_000)
    assert kept[0].number - 1 == gap["last"]
    numbers = [line["number"] for line in got if line is not gap]
    assert numbers == [*range(1, gap["first"]), *range(gap["last"] + 1, last + 1)]
    assert gap == got[gap["first"] - 1]


async def test_a_follower_gets_a_proper_end_when_the_daemon_stops(door: Door) -> None:
    """What the worker wrote at its end arrives, then the last chunk."""
    async with await door.connect() as stream:
        await stream.send_all(get(FOLLOW))
        await read_until(stream, b"200")
        door.close()
        write(door, "good bye")
        rest = await read_until(stream, b"\r\n0\r\n\r\n")
    assert b"good bye" in rest


async def test_a_follower_that_leaves_costs_nothing_more(door: Door) -> None:
    """The handler ends with its client."""
    async with await door.connect() as stream:
        await stream.send_all(get(FOLLOW))
        await read_until(stream, b"200")
        await wait_followers(door, 1)
    await wait_followers(door, 0)


async def test_an_unknown_slot_has_no_log(door: Door) -> None:
    """404 with the names that there are."""
    reply = await door.http.get("/api/v1/workers/smollm.9/logs")
    error = reply.json()["error"]
    assert (404, "slot", "cannot find slot 'smollm.9'; there are: smollm.0, smollm.1") == (
        reply.status_code,
        error["param"],
        error["message"],
    )


def followers(door: Door) -> int:
    """How many followers wait for the next line."""
    waiting: int = book(door)._more.statistics().tasks_waiting
    return waiting


async def wait_followers(door: Door, count: int) -> None:
    """Wait until so many followers wait."""
    with trio.fail_after(5):
        while count != followers(door):
            await trio.lowlevel.checkpoint()
