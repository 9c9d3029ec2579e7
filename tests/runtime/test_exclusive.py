"""Pools that share a device: one model at a time, by turns, and nobody's work is cut off."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from supervisord_llm.core.record import Record
from supervisord_llm.core.words import FailureReason, Outcome, SlotState
from supervisord_llm.events import (
    Event,
    WorkerParked,
    WorkerReady,
    WorkerReaped,
    WorkerSpawned,
    WorkerState,
)
from supervisord_llm.runtime.request import RequestSpec
from supervisord_llm.schema import GenerateRequest, Started, Token
from tests.api.house import House, house, next_of, read
from tests.conftest import TEST_VARIABLE
from tests.harness import QUICK, SECONDS, Bench, bench, read_all, read_tokens

SHARED = QUICK + 'exclusive = "gpu"\n'
DEMAND = 'load = "on_demand"\n'
QUICKLY = 'queue.age_step = "50ms"\n'
"""So the one that waits has waited long enough after 300 ms."""
LONG = "x sim.tokens=100 sim.tps=100"
ONE = "x sim.tokens=1"


def other(options: str = "", settings: str = SHARED + DEMAND) -> str:
    """The table of a second pool, ``other``."""
    command = ["sllm-sim-worker", *options.split()]
    return (
        f'[pool.other]\ncommand = {command}\npass_env = ["{TEST_VARIABLE}"]\n'
        f"sampling = {{ max_new_tokens = 100000 }}\n{settings}"
    )


def parking_after(restarts: int) -> str:
    """The settings of a pool whose slots are parked after so many restarts."""
    return SHARED.replace("restart = {", f"restart = {{ max_restarts = {restarts},")


def loads(events: Iterable[Event]) -> list[str]:
    """Which pool was loaded, one after the other; never two of them at a time."""
    living: set[tuple[str, int]] = set()
    order: list[str] = []
    for event in events:
        if isinstance(event, WorkerSpawned):
            assert {name.partition(".")[0] for name, _ in living} <= {event.pool}, event
            living.add((event.worker, event.generation))
            if order[-1:] != [event.pool]:
                order.append(event.pool)
        elif isinstance(event, WorkerReaped):
            living.remove((event.worker, event.generation))
    return order


async def generate(made: Bench, pool: str, prompt: str = ONE) -> tuple[str, Record]:
    """A request to one of the pools, read to its end."""
    async with made.supervisor.pools[pool].request(RequestSpec(prompt=prompt)) as stream:
        return await read_all(stream)


async def all_of(made: Bench, pool: str, count: int) -> None:
    """One request after the other, each completed."""
    for _ in range(count):
        _, record = await generate(made, pool, "x sim.tokens=2 sim.tps=100")
        assert record.outcome is Outcome.COMPLETED, record


async def test_a_switch_waits_for_the_work_that_runs(tmp_path: Path) -> None:
    """Field report 22: the running generation is whole, and then the other model is loaded."""
    settings = SHARED + DEMAND + QUICKLY
    async with bench(tmp_path, settings=settings + other(settings=settings), ready=False) as made:
        async with made.pool.request(RequestSpec(prompt=LONG)) as running:
            await read_tokens(running, 1)
            async with made.supervisor.pools["other"].request(RequestSpec(prompt=ONE)) as waiting:
                draining = await made.events.wait(WorkerState, to=SlotState.DRAINING)
                assert (draining.worker, draining.reason) == ("sim.0", "exclusive")
                assert running.request.record is None
                _, record = await read_all(running)
                _, answered = await read_all(waiting)
        assert record.outcome is answered.outcome is Outcome.COMPLETED
        assert running.request.tokens == 100
        assert loads(made.events.events) == ["sim", "other"]


async def test_two_clients_in_turns_cost_few_loads(tmp_path: Path) -> None:
    """Each asks again as soon as it is answered; the device does not change hands each time."""
    settings = SHARED + DEMAND + 'queue.age_step = "1s"\n'
    async with bench(tmp_path, settings=settings + other(settings=settings), ready=False) as made:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(all_of, made, "sim", 15)
            nursery.start_soon(all_of, made, "other", 15)
        assert len(loads(made.events.events)) <= 3


async def test_requests_by_turns_are_all_served(tmp_path: Path) -> None:
    """Where each waits for the one before, every one is a switch, and none is lost."""
    settings = SHARED + DEMAND
    async with bench(tmp_path, settings=settings + other(settings=settings), ready=False) as made:
        for pool in ("sim", "other") * 3:
            await all_of(made, pool, 1)
        assert loads(made.events.events) == ["sim", "other"] * 3


async def test_whoever_waits_has_a_turn_under_constant_load(tmp_path: Path) -> None:
    """And those that are asked for all the time come back after it."""
    settings = SHARED + DEMAND + QUICKLY
    async with bench(tmp_path, settings=settings + other(settings=settings), ready=False) as made:
        async with trio.open_nursery() as nursery:

            async def keep_asking() -> None:
                while True:
                    await all_of(made, "sim", 1)

            for _ in range(2):
                nursery.start_soon(keep_asking)
            await made.events.wait(WorkerReady, pool="sim")
            for _ in range(2):
                with trio.fail_after(SECONDS):
                    _, record = await generate(made, "other")
                # 300 ms, what is left of a request, and two processes' ends and starts
                assert (record.outcome, record.queued_ms < 3000) == (Outcome.COMPLETED, True)
                await all_of(made, "sim", 1)
            nursery.cancel_scope.cancel()
        assert loads(made.events.events)[:5] == ["sim", "other", "sim", "other", "sim"]


async def test_the_eager_model_comes_back_when_its_guest_is_idle(tmp_path: Path) -> None:
    """It is loaded from the start, makes way for a request, and returns without one."""
    guest = other(settings=SHARED + DEMAND + 'idle_ttl = "100ms"\n')
    async with bench(tmp_path, settings=SHARED + guest) as made:
        host = made.pool
        assert host.ready
        await generate(made, "other")
        assert (host.ready, host.loaded) == (True, False)
        await made.events.wait(WorkerReady, pool="sim", generation=2)
        gone = made.events.all(WorkerState, pool="other", to=SlotState.STOPPED)
        assert [each.reason for each in gone] == ["exclusive"]
        assert loads(made.events.events) == ["sim", "other", "sim"]


async def test_the_eager_model_is_no_verdict_before_it_was_loaded(tmp_path: Path) -> None:
    """A daemon is not ready on the strength of a model that nobody has seen work."""
    settings = SHARED + other()
    async with bench(tmp_path, "--load_ms 300", settings=settings, ready=False) as made:
        await made.events.wait(WorkerSpawned)
        assert (made.pool.ready, made.pool.has_verdict) == (False, False)
        with trio.fail_after(SECONDS):
            await made.supervisor.wait_first_verdicts()
        assert made.pool.ready
        assert [event.pool for event in made.events.all(WorkerSpawned)] == ["sim"]


async def test_a_model_that_cannot_be_loaded_makes_way(tmp_path: Path) -> None:
    """Once it is parked; its own requests fail, and the others' are served."""
    settings = parking_after(2) + DEMAND + other()
    async with bench(tmp_path, "--not_ready", settings=settings, ready=False) as made:
        ends: dict[str, Record] = {}

        async def note(pool: str) -> None:
            ends[pool] = (await generate(made, pool))[1]

        async with trio.open_nursery() as nursery:
            nursery.start_soon(note, "sim")
            await made.events.wait(WorkerSpawned, pool="sim")
            nursery.start_soon(note, "other")
        assert ends["sim"].error is FailureReason.POOL_UNAVAILABLE
        assert ends["other"].outcome is Outcome.COMPLETED
        assert loads(made.events.events) == ["sim", "other"]


@pytest.mark.parametrize("whole", [True, False])
async def test_a_parked_model_is_not_resumed_beside_another(tmp_path: Path, *, whole: bool) -> None:
    """The operator's word takes back that it is parked; the device stays whose it is."""
    settings = parking_after(1) + DEMAND + other()
    async with bench(tmp_path, "--not_ready", settings=settings, ready=False) as made:
        await generate(made, "sim")
        await made.events.wait(WorkerParked)
        await generate(made, "other")
        assert made.slot().state is SlotState.PARKED
        (made.pool if whole else made.slot()).resume()
        await wait_all_tasks_blocked()
        assert (made.slot().state, made.pool.ready) == (SlotState.STOPPED, True)
        assert loads(made.events.events) == ["sim", "other"]


async def test_a_drained_model_finishes_what_waits_for_it(tmp_path: Path) -> None:
    """Though another one is wanted; then that has the device."""
    settings = SHARED + DEMAND + other()
    async with bench(tmp_path, settings=settings, ready=False) as made:
        async with (
            made.pool.request(RequestSpec(prompt="x sim.tokens=30 sim.tps=100")) as first,
            made.pool.request(RequestSpec(prompt=ONE)) as second,
            made.supervisor.pools["other"].request(RequestSpec(prompt=ONE)) as third,
        ):
            await read_tokens(first, 1)
            made.pool.drain()
            ends = [(await read_all(each))[1].outcome for each in (first, second, third)]
        assert ends == [Outcome.COMPLETED] * 3
        assert loads(made.events.events) == ["sim", "other"]


async def test_many_clients_of_both_never_see_two_models(tmp_path: Path) -> None:
    """Some leave while they wait, while their model loads, or in the middle of their answer."""
    settings = SHARED + DEMAND + 'queue.age_step = "10ms"\n'
    async with bench(
        tmp_path, workers=2, settings=settings + other(settings=settings), ready=False
    ) as made:

        async def client(number: int) -> None:
            for step in range(6):
                pool = ("sim", "other")[(number + step) % 2]
                with trio.move_on_after((0.01, 0.1, 60)[(number * 7 + step) % 3]) as patience:
                    _, record = await generate(made, pool, "x sim.tokens=3 sim.tps=100")
                    assert record.outcome is Outcome.COMPLETED
                if patience.cancelled_caught:
                    continue

        with trio.fail_after(SECONDS * 2):
            async with trio.open_nursery() as nursery:
                for number in range(8):
                    nursery.start_soon(client, number)
        assert set(loads(made.events.events)) == {"sim", "other"}


def ask(pool: str, prompt: str = ONE) -> GenerateRequest:
    """A generation of either pool."""
    return GenerateRequest(pool=pool, prompt=prompt)


async def served(at: House, pools: Sequence[str]) -> None:
    """One request to each."""
    for pool in pools:
        async with at.client.generate(ask(pool)) as stream:
            _, finished = await read(stream)
        assert finished.outcome == Outcome.COMPLETED


async def test_pools_come_to_share_a_device_and_part_again(tmp_path: Path) -> None:
    """By the file: of two that are loaded one stays, without loss; apart, both are loaded."""
    apart = QUICK + other(settings=QUICK + DEMAND)
    async with house(tmp_path, settings=apart) as at:
        path = tmp_path / "daemon.toml"
        before = path.read_text()
        await served(at, ["other"])
        async with at.client.generate(ask("other", "x sim.tokens=50 sim.tps=100")) as stream:
            await next_of(stream, Token)
            path.write_text(before.replace(QUICK, SHARED))
            await at.client.reload_config()
            _, finished = await read(stream)
        assert finished.usage is not None
        assert (finished.outcome, finished.usage.generated_tokens) == (Outcome.COMPLETED, 50)
        with trio.fail_after(SECONDS):
            while [pool.loaded for pool in at.supervisor.pools.values()] == [True, True] or any(
                slot.state is SlotState.DRAINING for slot in at.supervisor.slots.values()
            ):
                await at.ring.wait_appended()
        since = len(at.events)
        [holder] = [pool.name for pool in at.supervisor.pools.values() if pool.loaded]
        rest = [name for name in ("sim", "other") if name != holder]
        await served(at, [*rest, holder, *rest])
        spawned = [each.pool for each in at.events[since:] if isinstance(each, WorkerSpawned)]
        assert spawned == [*rest, holder, *rest]
        path.write_text(before)
        await at.client.reload_config()
        await served(at, ["other", "sim"])
        assert all(pool.loaded for pool in at.supervisor.pools.values())


async def test_a_model_that_the_file_has_lost_finishes_before_the_next(tmp_path: Path) -> None:
    """It has the device until its last worker is gone."""
    guest = other()
    async with house(tmp_path, settings=SHARED + guest) as at:
        path = tmp_path / "daemon.toml"
        async with at.client.generate(ask("sim", "x sim.tokens=30 sim.tps=100")) as stream:
            await next_of(stream, Token)
            head, _, tail = path.read_text().partition("[pool.sim]")
            path.write_text(head + tail[tail.index("[pool.other]") :])
            await at.client.reload_config()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(served, at, ["other"])
                _, finished = await read(stream)
        assert finished.outcome == Outcome.COMPLETED
        assert loads(at.events) == ["sim", "other"]
        assert list(at.supervisor.pools) == ["other"]


async def test_whoever_waits_for_its_turn_is_told_nothing_is_wrong(tmp_path: Path) -> None:
    """The health of a pool that is not loaded for want of a request is no matter of concern."""
    async with house(tmp_path, settings=SHARED + other()) as at:
        async with at.client.generate(ask("sim", LONG)) as stream:
            await next_of(stream, Started)
            pool = await at.client.pool("other")
            ready = all(each.ready for each in (await at.client.pools()).pools)
        assert (pool.ready, pool.loaded, ready) == (True, False, True)
