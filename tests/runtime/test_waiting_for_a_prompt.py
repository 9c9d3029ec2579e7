"""Requests whose prompts are made only when their model is known: in order, and in no one's way."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from supervisord_llm.core.words import CancelledBy, FailureReason, Outcome, RejectReason
from supervisord_llm.errors import InvalidRequest, Refused, SupervisordError
from supervisord_llm.events import RequestStarted, WorkerReady
from supervisord_llm.runtime.request import RequestSpec
from supervisord_llm.wire.messages import Model
from tests.harness import QUICK, SECONDS, bench, read_all

DEMAND = QUICK + 'load = "on_demand"\n'
ONE = "x sim.tokens=1"


class Slow:
    """Makes a prompt once it may."""

    def __init__(self, made: str | SupervisordError = ONE) -> None:
        self.made = made
        self.begun = trio.Event()
        self.go = trio.Event()

    async def __call__(self, model: Model) -> str:
        """Wait to be let, then make it, or fail."""
        assert model.id == "sim"
        self.begun.set()
        await self.go.wait()
        if isinstance(self.made, SupervisordError):
            raise self.made
        return self.made


async def test_others_are_served_while_a_prompt_is_made(tmp_path: Path) -> None:
    """It loads the model, loses no time of its worker, and is served once it has a prompt."""
    slow = Slow()
    async with bench(tmp_path, settings=DEMAND, ready=False) as made:
        async with made.pool.request(RequestSpec(prompt="", render=slow)) as stream:
            with trio.fail_after(SECONDS):
                await slow.begun.wait()
            _, other = await made.generate(ONE)
            assert Outcome.COMPLETED == other.outcome
            assert 1 == len(made.events.all(RequestStarted))
            slow.go.set()
            text, record = await read_all(stream)
        assert ("t0 ", Outcome.COMPLETED) == (text, record.outcome)


@pytest.mark.parametrize(
    ("error", "reason", "retryable"),
    [
        (InvalidRequest("no such tool"), FailureReason.INVALID_REQUEST, False),
        (
            Refused(RejectReason.QUEUE_FULL, "not now"),
            FailureReason.POOL_UNAVAILABLE,
            True,
        ),
    ],
)
async def test_a_prompt_that_cannot_be_made_fails_its_request(
    tmp_path: Path, error: SupervisordError, reason: FailureReason, *, retryable: bool
) -> None:
    """With the words of whoever makes it; the worker hears nothing of it."""
    slow = Slow(error)
    slow.go.set()
    async with bench(tmp_path, settings=DEMAND, ready=False) as made:
        async with made.pool.request(RequestSpec(prompt="", render=slow)) as stream:
            _, record = await read_all(stream)
        assert (reason, str(error), retryable) == (record.error, record.detail, record.retryable)
        assert [] == made.events.all(RequestStarted)
        assert Outcome.COMPLETED == (await made.generate(ONE))[1].outcome


async def test_a_request_that_leaves_while_its_prompt_is_made(tmp_path: Path) -> None:
    """What is made for it is made for nobody, and an error in it is nobody's."""
    for made_for_nobody in (ONE, InvalidRequest("too late")):
        slow = Slow(made_for_nobody)
        async with bench(tmp_path, settings=DEMAND, ready=False) as made:
            async with made.pool.request(RequestSpec(prompt="", render=slow)) as stream:
                with trio.fail_after(SECONDS):
                    await slow.begun.wait()
                stream.request.cancel(CancelledBy.API)
                _, record = await read_all(stream)
            assert CancelledBy.API == record.cancelled_by
            slow.go.set()
            await wait_all_tasks_blocked()
            assert [] == made.events.all(RequestStarted)
            assert Outcome.COMPLETED == (await made.generate(ONE))[1].outcome


async def test_a_request_that_comes_when_the_model_is_known(tmp_path: Path) -> None:
    """Its prompt is made at once: between two looks the worker may have come."""
    async with bench(tmp_path) as made:
        await made.events.wait(WorkerReady)
        slow = Slow()
        slow.go.set()
        async with made.pool.request(RequestSpec(prompt="", render=slow)) as stream:
            assert "t0 " == (await read_all(stream))[0]
