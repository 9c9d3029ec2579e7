"""Named sessions over the API, with workers that really keep them."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import trio

from supervisord_llm.client import ApiError
from supervisord_llm.core.words import Outcome, SlotState
from supervisord_llm.events import RequestAccepted, RequestStarted, WorkerSpawned
from supervisord_llm.schema import Finished, GenerateRequest, Usage
from tests.api.house import House, house, read
from tests.harness import QUICK, SECONDS

KEEPS = "--sessions 4"


def said(words: str, session: str | None = "s", more: str = "") -> GenerateRequest:
    """A request whose answer is empty, so that the next one has only to begin with these words."""
    return GenerateRequest(pool="sim", prompt=f"{words} sim.eos_at=0 {more}", session_id=session)


def usage_of(finished: Finished) -> Usage:
    """What a request that must be answered came to."""
    assert finished.outcome == Outcome.COMPLETED
    assert finished.usage is not None
    return finished.usage


async def turn(at: House, request: GenerateRequest) -> Usage:
    """One request, which must be answered."""
    async with at.client.generate(request) as stream:
        return usage_of((await read(stream))[1])


async def reused(at: House, request: GenerateRequest) -> int:
    """How much of a prompt was there already."""
    return (await turn(at, request)).reused_tokens


async def test_a_conversation_is_warm_until_it_is_closed(tmp_path: Path) -> None:
    """What each step reused is in its last line; the pool says how many sessions there are."""
    async with house(tmp_path, KEEPS) as at:
        assert await reused(at, said("a b")) == 0
        assert await reused(at, said("a b c")) == 2
        assert (await at.client.pool("sim")).sessions == 1
        assert (await at.client.reset_session("s")).existed
        assert await reused(at, said("a b c d")) == 0
        assert await reused(at, said("a b c d e")) == 4
        assert (await at.client.close_session("s", model="sim")).existed
        assert (await at.client.pool("sim")).sessions == 0
        assert not (await at.client.close_session("s")).existed
        assert not (await at.client.reset_session("s")).existed


async def test_without_a_name_nothing_is_kept(tmp_path: Path) -> None:
    """A request that names no session leaves none."""
    async with house(tmp_path, KEEPS) as at:
        for words in ("a b", "a b c"):
            assert await reused(at, said(words, None)) == 0
        assert (await at.client.pool("sim")).sessions == 0


async def test_a_close_waits_for_the_answer_under_way(tmp_path: Path) -> None:
    """It is answered when it is done, which is after the generation, which is whole."""
    async with house(tmp_path, KEEPS) as at, trio.open_nursery() as nursery:
        ended: list[str] = []

        async def close() -> None:
            with trio.fail_after(SECONDS):
                assert (await at.client.close_session("s")).existed
            ended.append("close")

        request = GenerateRequest(pool="sim", prompt="x sim.tokens=30 sim.tps=100", session_id="s")
        async with at.client.generate(request) as stream:
            await at.wait(RequestStarted)
            nursery.start_soon(close)
            _, finished = await read(stream)
            ended.append("generation")
        assert usage_of(finished).generated_tokens == 30
    assert ended == ["generation", "close"]


async def test_a_client_that_leaves_its_reset_leaves_the_session_as_it_is(tmp_path: Path) -> None:
    """While it waits for its turn it has commanded nothing."""
    async with house(tmp_path, KEEPS) as at:
        async with at.client.generate(said("a b", more="sim.prefill_ms=500")) as stream:
            await at.wait(RequestStarted)
            with trio.move_on_after(0.1) as patience:
                await at.client.reset_session("s")
            await read(stream)
        assert patience.cancelled_caught
        assert await reused(at, said("a b c")) == 2


async def test_a_pool_whose_workers_keep_none_says_so(tmp_path: Path) -> None:
    """400 with the field's name; a request without a session is served."""
    async with house(tmp_path, "--sessions 0") as at:
        with pytest.raises(ApiError, match="keep no named sessions") as refused:
            async with at.client.generate(said("a")):
                pass
        assert (400, "invalid_request", "session_id") == (
            refused.value.status,
            refused.value.code,
            refused.value.param,
        )
        await turn(at, said("a", None))
        assert len(at.all(RequestAccepted)) == 1


async def test_a_drained_pool_forgets_its_sessions(tmp_path: Path) -> None:
    """They may be closed all the same, and are cold when the pool is back."""
    async with house(tmp_path, KEEPS) as at:
        await turn(at, said("a b"))
        with trio.fail_after(SECONDS):
            await at.client.drain_pool("sim", wait=True)
        assert not (await at.client.close_session("s")).existed
        await at.client.resume_pool("sim")
        assert await reused(at, said("a b c")) == 0


async def test_the_time_that_sessions_are_kept_is_changed_for_those_that_there_are(
    tmp_path: Path,
) -> None:
    """By the file, and without a new worker."""
    async with house(tmp_path, KEEPS, settings=QUICK + 'session_ttl = "1h"\n') as at:
        await turn(at, said("a b"))
        path = tmp_path / "daemon.toml"
        path.write_text(path.read_text().replace('"1h"', '"50ms"'))
        change = await at.client.reload_config()
        assert len(change.differences) == 1
        with trio.fail_after(SECONDS):
            while (await at.client.pool("sim")).sessions:
                pass  # each look takes a moment, in which a worker may answer
        assert len(at.all(WorkerSpawned)) == 1


async def test_a_reload_of_the_pool_begins_its_sessions_anew(tmp_path: Path) -> None:
    """No request is lost by it, in whatever order they come."""
    async with house(tmp_path, KEEPS) as at, trio.open_nursery() as nursery:
        await turn(at, said("a b"))
        async with at.client.generate(said("a b c", more="sim.prefill_ms=300")) as stream:
            await at.wait(RequestStarted, 2)
            nursery.start_soon(partial(at.client.reload_pool, "sim", wait=True))
            _, finished = await read(stream)
        assert usage_of(finished).reused_tokens == 2
        await at.wait(WorkerSpawned, 2)
        with trio.fail_after(SECONDS):
            while [slot.state for slot in at.supervisor.slots.values()] != [SlotState.READY] or (
                at.supervisor.slots.keys() != {"sim.1"}
            ):
                await at.ring.wait_appended()
        assert await reused(at, said("a b c d")) == 0
        assert await reused(at, said("a b c d e")) == 4
