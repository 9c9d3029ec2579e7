"""Prompts as the ids of tokens, prompts that are too long, and pools by the names of models."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from supervisord_llm.core.words import FailureReason, Outcome
from supervisord_llm.runtime.request import RequestSpec
from tests.harness import QUICK, bench, read_all


async def test_a_prompt_can_be_the_ids_of_tokens(tmp_path: Path) -> None:
    """The worker reads them as they are and counts them."""
    async with (
        bench(tmp_path, "--tokens 2") as made,
        made.pool.request(RequestSpec(prompt=(7, 8, 2**31 - 1))) as stream,
    ):
        text, record = await read_all(stream)
    assert (text, record.outcome) == ("t0 t1 ", Outcome.COMPLETED)
    assert record.usage is not None
    assert record.usage.prompt_tokens == 3
    assert stream.request.spec.prompt == ""


async def test_a_session_goes_on_from_ids(tmp_path: Path) -> None:
    """Only what was added is read, and the record says how much was there."""
    async with bench(tmp_path, "--sessions 2 --tokens 0") as made:
        reused = []
        for prompt in ((1, 2), (1, 2, 3), (1, 2, 3, 4)):
            spec = RequestSpec(prompt=prompt, session_id="s")
            async with made.pool.request(spec) as stream:
                _, record = await read_all(stream)
            assert record.usage is not None
            reused.append((record.usage.reused_tokens, record.usage.prompt_tokens))
    assert reused == [(0, 2), (2, 3), (3, 4)]


@pytest.mark.parametrize("prompt", [(), (2**31,)], ids=["none", "too large"])
async def test_ids_that_a_worker_refuses_fail_alone(
    tmp_path: Path, prompt: tuple[int, ...]
) -> None:
    """It says what is wrong with them, and serves on."""
    async with bench(tmp_path) as made:
        pid = made.slot().pid
        async with made.pool.request(RequestSpec(prompt=prompt)) as stream:
            _, record = await read_all(stream)
        assert (record.error, record.retryable) == (FailureReason.ENGINE_ERROR, False)
        await made.generate("y sim.tokens=1")
        assert made.slot().pid == pid


@pytest.mark.parametrize("prompt", ["a b c d e", (1, 2, 3, 4, 5)], ids=["text", "ids"])
async def test_a_prompt_longer_than_the_context_fails_as_such(
    tmp_path: Path, prompt: str | tuple[int, ...]
) -> None:
    """The message has both lengths, and nobody need try the same again."""
    async with bench(tmp_path, "--context_length 4") as made:
        async with made.pool.request(RequestSpec(prompt=prompt)) as stream:
            _, record = await read_all(stream)
        assert (record.outcome, record.error) == (
            Outcome.FAILED,
            FailureReason.CONTEXT_LENGTH_EXCEEDED,
        )
        assert record.detail == "cannot fit a prompt of 5 tokens into a context of 4; shorten it"
        assert not record.retryable


async def test_an_answer_ends_where_the_context_does(tmp_path: Path) -> None:
    """To ask for more tokens than there is room for is no mistake."""
    async with bench(tmp_path, "--context_length 4") as made:
        text, record = await made.generate("a b", max_new_tokens=1000)
    assert (text, record.finish_reason) == ("t0 t1 ", "length")


async def test_a_pool_is_found_by_its_name_and_the_names_of_its_model(tmp_path: Path) -> None:
    """Those of another one, or of none, are not its."""
    settings = f'models = ["small", "Org/Model-1.5B"]\n{QUICK}'
    async with bench(tmp_path, settings=settings) as made:
        supervisor = made.supervisor
        for name in ("sim", "small", "Org/Model-1.5B"):
            assert supervisor.find(name) is made.pool
        for name in ("", "Small", "other"):
            assert supervisor.find(name) is None


async def test_giving_up_the_wait_for_a_batch_loses_nothing(tmp_path: Path) -> None:
    """Whoever says meanwhile that it still waits gets every token, in order, and the record."""
    async with bench(tmp_path) as made:
        asked = RequestSpec(prompt="x sim.prefill_ms=50 sim.tokens=100 sim.tps=2000")
        texts: list[str] = []
        record, given_up = None, 0
        async with made.pool.request(asked) as stream:
            with trio.fail_after(20):
                while record is None:
                    batch = None
                    with trio.move_on_after(0.0005) as waited:
                        batch = await stream.next_batch()
                    given_up += waited.cancelled_caught
                    if batch is not None:
                        texts += batch.tokens
                        record = batch.record
            assert await stream.next_batch() is None
        assert "".join(texts) == "".join(f"t{number} " for number in range(100))
        assert given_up > 10
