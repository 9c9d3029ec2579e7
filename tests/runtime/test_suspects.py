"""One poisonous prompt must not take a pool down, and a broken worker must not hide behind it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import trio

from supervisord_llm.core.words import FailureReason, Outcome, SlotState
from supervisord_llm.events import (
    RequestFinished,
    RequestRetried,
    RequestStarted,
    WorkerParked,
    WorkerQuarantined,
    WorkerReady,
    WorkerReaped,
    WorkerRestartScheduled,
)
from supervisord_llm.runtime.request import RequestSpec
from tests.api.house import ask, house, read
from tests.harness import SECONDS, Bench, bench, read_all
from tests.runtime.faulty import some_faulty

STRICT = """
cancel.terminate_grace = "500ms"
restart = { backoff_initial = "10ms", backoff_max = "10ms", max_restarts = 3 }
queue.max_attempts = 2
"""
"""Four deaths park a slot."""
POISON = "x sim.exit=3 sim.during=prefill"
DIES = "--exit 3 --during prefill"


async def wait_idle(made: Bench) -> None:
    """Wait until each slot is ready or parked."""
    with trio.fail_after(SECONDS):
        while not {slot.state for slot in made.pool.slots} <= {SlotState.READY, SlotState.PARKED}:
            await made.supervisor.wait_move()


async def test_a_request_whose_two_workers_die_is_suspect(tmp_path: Path) -> None:
    """It fails, is not worth a retry, and neither death counts against a slot."""
    async with bench(tmp_path, workers=2, settings=STRICT) as made:
        text, record = await made.generate(POISON)
        assert (text, record.outcome) == ("", Outcome.FAILED)
        assert (record.error, record.suspect) == (FailureReason.WORKER_EXITED, True)
        assert not record.retryable
        assert "change it before you send it again" in (record.detail or "")
        [finished] = made.events.all(RequestFinished)
        assert finished.suspect
        assert len(made.events.all(RequestRetried)) == 1
        await made.events.wait(WorkerReady, generation=2, count=2)
        scheduled = made.events.all(WorkerRestartScheduled)
        assert [event.delay_ms for event in scheduled] == [0, 0]


async def test_the_client_is_told_not_to_send_it_again(tmp_path: Path) -> None:
    """The last line of the stream and the request itself say so."""
    async with house(tmp_path, workers=2, settings=STRICT) as at:
        async with at.client.generate(ask(POISON)) as stream:
            _, finished = await read(stream)
        assert finished.error is not None
        assert (finished.error.suspect, finished.error.retryable) == (True, False)
        shown = await at.client.request(finished.id)
        assert shown.error == finished.error
        assert shown.attempt == 2


async def test_a_poisonous_prompt_sent_again_and_again_parks_nothing(tmp_path: Path) -> None:
    """Twenty times, which costs forty workers, and then an ordinary request is served."""
    async with bench(tmp_path, workers=2, settings=STRICT) as made:
        for _ in range(20):
            _, record = await made.generate(POISON)
            assert record.suspect
        _, record = await made.generate("y sim.tokens=1")
        assert record.outcome is Outcome.COMPLETED
        assert made.events.all(WorkerParked) == []
        await made.wait_ready()


async def test_poisonous_prompts_among_others_park_nothing(tmp_path: Path) -> None:
    """As many different ones as one likes, as long as workers show that they can work."""
    async with bench(tmp_path, workers=2, settings=STRICT) as made:
        for number in range(8):
            _, record = await made.generate(f"{number} {POISON}")
            assert record.suspect
            _, record = await made.generate("y sim.tokens=1")
            assert record.outcome is Outcome.COMPLETED
        assert made.events.all(WorkerParked) == []


async def test_workers_that_die_of_every_prompt_park_their_slots(tmp_path: Path) -> None:
    """After a few suspects without a token in between, it is the workers that are not believed."""
    async with bench(tmp_path, DIES, workers=2, settings=STRICT) as made:
        suspects = []
        for number in range(20):
            if not any(slot.state is not SlotState.PARKED for slot in made.pool.slots):
                break
            _, record = await made.generate(str(number))
            assert record.outcome is Outcome.FAILED
            suspects.append(record.suspect)
        await made.events.wait(WorkerParked, count=2)
        assert suspects[:3] == [True] * 3
        assert not any(suspects[3:])
        assert len(suspects) <= 8


async def test_a_worker_that_dies_of_every_prompt_is_found_by_its_neighbour(tmp_path: Path) -> None:
    """The neighbour completes each request, which acquits it; the first worker's slot is parked."""
    command = some_faulty("sim.0/*", DIES)
    async with bench(tmp_path, command=command, workers=2, settings=STRICT) as made:
        while made.slot(0).state is not SlotState.PARKED:
            assert made.slot(0).generation < 10
            await wait_idle(made)
            _, record = await made.generate("x sim.tokens=1")
            assert (record.outcome, record.suspect) == (Outcome.COMPLETED, False)
        [parked] = made.events.all(WorkerParked)
        # A neighbour that takes its time acquits a request when the slot has started again already:
        # the end then counts with the next one.
        assert (parked.worker, parked.restarts in (4, 5)) == ("sim.0", True)
        assert made.slot(1).state is SlotState.READY


async def test_a_death_that_its_request_did_not_cause_is_counted_later(tmp_path: Path) -> None:
    """The second worker hangs instead of dying: the first one's death is its own slot's."""
    settings = STRICT.replace("max_restarts = 3", "max_restarts = 0") + (
        'heartbeat = "50ms"\nhealth.first_token_stall = "500ms"\n'
    )
    command = some_faulty("sim.0/*", DIES, "--hang prefill")
    async with bench(tmp_path, command=command, workers=2, settings=settings) as made:
        _, record = await made.generate("x")
        assert (record.error, record.suspect) == (FailureReason.STALLED, False)
        assert record.retryable
        await made.events.wait(WorkerParked, worker="sim.1")
        await wait_idle(made)
        # What was counted later parks a slot with the next end that it sees.
        os.kill(made.slot(0).pid or 0, signal.SIGKILL)
        parked = await made.events.wait(WorkerParked, worker="sim.0")
        assert parked.restarts == 2


async def test_a_worker_that_dies_of_a_request_with_output_counts(tmp_path: Path) -> None:
    """Its request is not suspect: it got as far as a token, and is not tried again."""
    settings = STRICT.replace("max_restarts = 3", "max_restarts = 0")
    async with bench(tmp_path, settings=settings) as made:
        async with made.pool.request(RequestSpec(prompt="x sim.exit=3 sim.at=1")) as stream:
            text, record = await read_all(stream)
        assert (text, record.suspect, record.retryable) == ("t0 ", False, True)
        parked = await made.events.wait(WorkerParked)
        assert parked.exit == "exit:3"


async def test_an_idle_worker_that_dies_counts(tmp_path: Path) -> None:
    """There is no request to charge."""
    settings = STRICT.replace("max_restarts = 3", "max_restarts = 0")
    async with bench(tmp_path, settings=settings) as made:
        os.kill(made.slot().pid or 0, signal.SIGKILL)
        await made.events.wait(WorkerParked)
        assert made.events.all(RequestStarted) == []
        assert len(made.events.all(WorkerReaped)) == len(made.events.all(WorkerQuarantined)) == 1
