"""A client that leaves, at whatever moment: its request ends, and nothing else does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trio

from supervisord_llm.core.words import CancelledBy, Outcome, Resolution, SlotState
from supervisord_llm.events import (
    CancelRequested,
    CancelSettled,
    DaemonError,
    RequestAccepted,
    RequestFinished,
    RequestFirstToken,
    RequestStarted,
    WorkerQuarantined,
)
from tests.api.house import House, ask, house, next_of, read
from tests.api.openai import complete
from tests.api.raw import post, read_until
from tests.harness import SECONDS

FOREVER = "x sim.tokens=100000 sim.tps=200"


async def send(at: House, prompt: object, *, stream: bool) -> trio.SocketStream:
    """Ask for a completion; the caller leaves by closing."""
    connection = await trio.open_unix_socket(at.socket)
    body = {"model": "sim", "prompt": prompt, "stream": stream, "max_tokens": 100_000}
    await connection.send_all(post("/v1/completions", json.dumps(body).encode()))
    return connection


def cancelled(at: House) -> list[str]:
    """The requests that ended because their client had left."""
    return [
        each.request
        for each in at.all(RequestFinished)
        if (each.outcome, each.cancelled_by) == (Outcome.CANCELLED, CancelledBy.CLIENT)
    ]


async def serves_on(at: House) -> bool:
    """Whether the one slot is ready again and answers."""
    await at.wait_serving(1)
    reply = await complete(at, "y sim.tokens=1")
    return "t0 " == reply.json()["choices"][0]["text"] and not at.all(WorkerQuarantined)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("prompt", ["x sim.slow=prefill", FOREVER])
async def test_it_frees_its_worker(tmp_path: Path, prompt: str, *, stream: bool) -> None:
    """In prefill, before anything was sent, and in decode."""
    async with house(tmp_path) as at:
        async with await send(at, prompt, stream=stream):
            await at.wait(RequestFirstToken if prompt == FOREVER else RequestStarted)
        settled = await at.wait(CancelSettled)
        await at.wait(RequestFinished)
        assert Resolution.COOPERATIVE is settled.resolution
        assert [settled.request] == cancelled(at)
        assert await serves_on(at)


@pytest.mark.parametrize("stream", [False, True])
async def test_it_leaves_the_queue(tmp_path: Path, *, stream: bool) -> None:
    """Its request never reaches a worker; the one before it is untouched."""
    async with (
        house(tmp_path) as at,
        at.client.generate(ask("x sim.tokens=60 sim.tps=200")) as first,
    ):
        await next_of(first, object)
        async with await send(at, "y", stream=stream):
            await at.wait(RequestAccepted, 2)
        settled = await at.wait(CancelSettled)
        _, finished = await read(first)
    assert Resolution.QUEUED is settled.resolution
    assert [settled.request] == cancelled(at)
    assert Outcome.COMPLETED is finished.outcome


@pytest.mark.parametrize("stream", [False, True])
async def test_it_takes_all_its_prompts_along(tmp_path: Path, *, stream: bool) -> None:
    """Those on workers, and those that still wait."""
    async with house(tmp_path) as at:
        async with await send(at, [FOREVER, "b", "c"], stream=stream):
            await at.wait(RequestFirstToken)
        await at.wait(RequestFinished, 3)
        assert 3 == len(cancelled(at))
        assert await serves_on(at)


@pytest.mark.parametrize("stream", [False, True])
async def test_behind_the_last_token_there_is_nothing_to_cancel(
    tmp_path: Path, *, stream: bool
) -> None:
    """The request had completed, whether or not the answer was read."""
    async with house(tmp_path) as at:
        async with await send(at, "x sim.tokens=5", stream=stream):
            await at.wait(RequestFinished)
        assert await serves_on(at)
        assert not at.all(CancelRequested)
    assert {Outcome.COMPLETED} == {each.outcome for each in at.all(RequestFinished)}


async def test_many_leave_at_any_moment(tmp_path: Path) -> None:
    """Each request has one end, no slot is lost, and nothing of ours went wrong."""
    async with house(tmp_path, workers=2) as at:

        async def client(number: int) -> None:
            prompt = ["x sim.tokens=20 sim.tps=500"] * (1 + number % 2)
            with trio.move_on_after(number * 0.01):
                async with await send(at, prompt, stream=number % 3 > 0) as connection:
                    await read_until(connection, b"DONE" if number % 3 else b'"usage"')

        async with trio.open_nursery() as nursery:
            for number in range(40):
                nursery.start_soon(client, number)
        with trio.fail_after(SECONDS):
            while len(at.all(RequestFinished)) < len(at.all(RequestAccepted)):
                await at.ring.wait_appended()
        await at.wait_serving(2)
        states = [slot.state for slot in at.supervisor.slots.values()]
    ended = [each.request for each in at.all(RequestFinished)]
    assert sorted(each.request for each in at.all(RequestAccepted)) == sorted(ended)
    assert [SlotState.READY] * 2 == states
    assert not at.all(WorkerQuarantined)
    assert not at.all(DaemonError)
