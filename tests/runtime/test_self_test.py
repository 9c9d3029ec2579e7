"""``cancel.self_test``: a worker takes work only after it has shown that it can be cancelled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from supervisord_llm.core.words import FailureReason, Outcome, SlotState
from supervisord_llm.events import (
    RequestAccepted,
    RequestStarted,
    WorkerLog,
    WorkerParked,
    WorkerQuarantined,
    WorkerReady,
)
from supervisord_llm.runtime.request import RequestSpec
from supervisord_llm.runtime.slot import Slot
from tests.harness import QUICK, SECONDS, bench, read_all
from tests.runtime.faulty import some_faulty

TESTED = QUICK.replace("cancel = {", "cancel = { self_test = true,")
STRICT = TESTED.replace("restart = {", "restart = { max_restarts = 1,")
ENDLESS = "--tokens 100000 --tps 200"
DEAF = "--ignore_cancel"
"""Others end the trial before it reaches their faults."""


@pytest.mark.parametrize(
    "options",
    ["", ENDLESS, "--no_cancel_prefill --prefill_ms 700", "--late_done 200", "--no_cancel"],
    ids=["quick", "endless", "long prefill", "slow to end", "without cancellation"],
)
async def test_a_worker_that_passes_serves(tmp_path: Path, options: str) -> None:
    """Whether it ends the trial at once or within its grace; nothing of the trial is left."""
    async with bench(tmp_path, options, settings=TESTED) as made:
        assert (made.slot().served, made.events.all(RequestAccepted)) == (0, [])
        text, record = await made.generate("x sim.tokens=3 sim.tps=0")
        assert (text, record.outcome) == ("t0 t1 t2 ", Outcome.COMPLETED)
        assert (made.slot().served, made.slot().generation) == (1, 1)
        assert made.events.all(WorkerQuarantined) == []


async def test_work_is_not_given_before_the_test_is_passed(tmp_path: Path) -> None:
    """The slot is starting until then, and what waits for it waits on."""
    options = f"{DEAF} --stderr 1 --tokens 30 --tps 100"
    async with bench(tmp_path, options, settings=TESTED, ready=False) as made:
        async with made.pool.request(RequestSpec(prompt="x sim.tokens=2")) as stream:
            await made.events.wait(WorkerLog)  # the prefill of the trial
            assert (made.slot().state, made.pool.queued) == (SlotState.STARTING, 1)
            assert made.events.all(WorkerReady) == []
            _, record = await read_all(stream)
        assert record.outcome is Outcome.COMPLETED
        order = [type(each) for each in made.events.events]
        assert order.index(WorkerReady) < order.index(RequestStarted)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (f"{DEAF} {ENDLESS}", "did not end the cancelled request of its self-test within 0.5 s"),
        (f"{DEAF} --error no_such_luck", "refused the request of its self-test: no such luck"),
    ],
    ids=["deaf", "refuses"],
)
async def test_workers_that_fail_are_parked_before_they_have_had_work(
    tmp_path: Path, options: str, says: str
) -> None:
    """What waits for them is told so; no request ever meets such a worker."""
    async with bench(tmp_path, options, settings=STRICT, ready=False) as made:
        _, record = await made.generate("x")
        assert (record.outcome, record.error) == (Outcome.FAILED, FailureReason.POOL_UNAVAILABLE)
        parked = await made.events.wait(WorkerParked)
        assert (parked.reason, parked.restarts) == ("self_test_failed", 2)
        told = made.events.all(WorkerQuarantined)
        assert {event.reason for event in told} == {"self_test_failed"}
        assert all(event.detail is not None and says in event.detail for event in told)
        assert made.events.all(RequestStarted) == []
        assert made.events.all(WorkerReady) == []


async def test_a_broken_control_pipe_fails_the_test(tmp_path: Path) -> None:
    """A frame of which half went out can never be followed by a whole one."""
    async with bench(
        tmp_path, settings=STRICT, ready=False, write=lambda _descriptor, _data: 4
    ) as made:
        parked = await made.events.wait(WorkerParked)
        assert parked.reason == "self_test_failed"


@pytest.mark.parametrize("fault", ["--exit 3 --during prefill", "--garbage", ENDLESS])
async def test_the_next_worker_serves_if_it_passes(tmp_path: Path, fault: str) -> None:
    """A death or a failure in the test is survived like any other."""
    command = some_faulty("sim.0/1", f"{DEAF} {fault}")
    async with bench(tmp_path, command=command, settings=TESTED, ready=False) as made:
        _, record = await made.generate("x sim.tokens=2")
        assert record.outcome is Outcome.COMPLETED
        assert made.slot().generation == 2


@pytest.mark.parametrize("wish", [Slot.drain, Slot.reload], ids=["drain", "reload"])
@pytest.mark.parametrize(
    "late",
    ["--tokens 20 --tps 100", ENDLESS, "--error oh --at 20 --tps 100"],
    ids=["done", "tokens", "error"],
)
async def test_the_last_words_of_a_test_that_is_broken_off_mean_nothing(
    tmp_path: Path, wish: Callable[[Slot], None], late: str
) -> None:
    """A worker that is sent away during its test may still speak of it."""
    options = f"{DEAF} --stderr 1 --ignore_sigterm {late}"
    async with bench(tmp_path, options, settings=TESTED, ready=False) as made:
        await made.events.wait(WorkerLog)
        wish(made.slot())
        assert made.slot().state is SlotState.DRAINING
        with trio.fail_after(SECONDS):
            while made.slot().state is SlotState.DRAINING:
                await made.supervisor.wait_move()
        made.slot().drain()
        with trio.fail_after(SECONDS):
            await made.slot().wait_down()
        assert made.events.all(WorkerReady) == []
