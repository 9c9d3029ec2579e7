"""The ``openai`` library's asynchronous client, over TCP and over the Unix socket.

It runs on asyncio, as in most applications.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import pytest
from openai import AsyncOpenAI

from tests.harness import SECONDS
from tests.openai_sdk.conftest import Served, said

Use = Callable[[AsyncOpenAI], Awaitable[None]]


@pytest.fixture(params=["tcp", "unix"])
def run(request: pytest.FixtureRequest, served: Served) -> Callable[[Use], None]:
    """What runs a function with a client of either way."""

    async def main(use: Use) -> None:
        async with served.asynchronous(request.param) as client:
            with anyio.fail_after(SECONDS):
                await use(client)

    return lambda use: anyio.run(main, use, backend="asyncio")


def test_whole_and_streamed_answers_are_the_same(run: Callable[[Use], None]) -> None:
    """For chats and for texts."""

    async def use(client: AsyncOpenAI) -> None:
        messages = said("a sim.tokens=50 sim.tps=2000")
        whole = await client.chat.completions.create(model="sim", messages=messages)
        stream = await client.chat.completions.create(model="sim", messages=messages, stream=True)
        texts = [chunk.choices[0].delta.content or "" async for chunk in stream]
        text = await client.completions.create(model="sim", prompt="a sim.tokens=50")
        assert whole.choices[0].message.content == "".join(texts)
        assert whole.choices[0].message.content == text.choices[0].text

    run(use)


def test_many_at_once_are_answered_each_with_its_own(run: Callable[[Use], None]) -> None:
    """More than there are workers; the others wait."""
    found: dict[int, str | None] = {}

    async def use(client: AsyncOpenAI) -> None:
        async def ask(number: int) -> None:
            content = said(f"a sim.tokens={number}")
            answer = await client.chat.completions.create(model="sim", messages=content)
            found[number] = answer.choices[0].message.content

        async with anyio.create_task_group() as tasks:
            for number in range(1, 21):
                tasks.start_soon(ask, number)

    run(use)
    assert {n: "".join(f"t{k} " for k in range(n)) for n in range(1, 21)} == found


@pytest.mark.parametrize("content", ["a sim.slow=prefill", "a sim.tokens=90000 sim.tps=200"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_cancelled_task_cancels_its_request(
    run: Callable[[Use], None], served: Served, content: str, stream: bool
) -> None:
    """While it is read and while it is written, streamed or not; the slot is ready again."""
    begun, ended = (
        len(served.daemon.events(name)) for name in ("request.started", "request.finished")
    )

    async def use(client: AsyncOpenAI) -> None:
        async def ask() -> None:
            answer = await client.chat.completions.create(
                model="sim", messages=said(content), stream=stream
            )
            if stream:
                async for _ in answer:  # type: ignore[union-attr]
                    pass

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await anyio.to_thread.run_sync(served.daemon.wait, "request.started", begun + 1)
            tasks.cancel_scope.cancel()

    run(use)
    served.daemon.wait("request.finished", ended + 1)
    served.wait_idle()
    [finished] = served.since("request.finished", ended)
    assert ("cancelled", "client") == (finished["outcome"], finished["cancelled_by"])
    assert not served.daemon.events("worker.quarantined")
