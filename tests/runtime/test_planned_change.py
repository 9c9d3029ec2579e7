"""Reload, drain, scale and recycling under constant load: no request fails, no text is broken."""

from __future__ import annotations

import os
import shlex
import signal
from pathlib import Path

import pytest
import trio

from supervisord_llm.core.words import Outcome, PlannedReason, SlotState
from supervisord_llm.errors import InvalidRequest
from supervisord_llm.events import (
    DaemonWarning,
    RequestFinished,
    RequestStarted,
    WorkerDraining,
    WorkerReady,
    WorkerSpawned,
    WorkerState,
)
from supervisord_llm.runtime.request import RequestSpec
from tests.harness import QUICK, SCRIPTS, SECONDS, Bench, bench, read_all, read_tokens
from tests.runtime.traffic import (
    fewest_serving,
    most_workers,
    settled,
    traffic,
    wait_slots,
)

READY, STOPPED = SlotState.READY, SlotState.STOPPED
RESTART = QUICK + 'reload = "restart"\n'


def breakable(folder: Path, fault: str = "exit 3") -> list[str]:
    """A command that does something else than serve while there is a file ``broken``."""
    broken, sim = shlex.quote(str(folder / "broken")), SCRIPTS / "sllm-sim-worker"
    return ["sh", "-c", f"test -e {broken} && {fault}; exec {sim}"]


def pids(made: Bench) -> dict[str, int | None]:
    """The workers by their slots' names."""
    return {slot.name: slot.pid for slot in made.pool.slots}


# Reload -----------------------------------------------------------------------


async def test_a_reload_has_the_replacement_ready_before_the_old_one_leaves(
    tmp_path: Path,
) -> None:
    """One at a time: always as many serve as should, and never is there more than one more."""
    async with bench(tmp_path, "--load_ms 100", workers=2) as made:
        places = {slot.name: (slot.launch.place, slot.launch.cpus) for slot in made.pool.slots}
        mark = len(made.events.events)
        async with traffic(made):
            made.pool.reload()
            assert made.pool.reloading
            await settled(made.pool)
        events = made.events.events[mark:]
        assert (fewest_serving(events, 2), most_workers(events, 2)) == (2, 3)
        # A new worker has the lowest number that is free, and the cores of the one before.
        now = {slot.name: (slot.launch.place, slot.launch.cpus) for slot in made.pool.slots}
        assert {"sim.0": places["sim.1"], "sim.2": places["sim.0"]} == now
        assert {1} == {slot.worker_revision for slot in made.pool.slots}
        reasons = [(event.worker, event.reason) for event in made.events.all(WorkerDraining)]
        assert reasons == [("sim.0", "reload"), ("sim.1", "reload")]


@pytest.mark.parametrize(
    ("fault", "settings"),
    [
        ("exit 3", QUICK),
        ("exec sleep 60", QUICK.replace('stall = "5s"', 'stall = "100ms"')),
        ("echo rubbish", QUICK),
    ],
    ids=["exits", "hangs", "speaks nonsense"],
)
async def test_a_replacement_that_fails_leaves_the_old_worker_in_service(
    tmp_path: Path, fault: str, settings: str
) -> None:
    """It is given up at once and told of; once it is mended, the next reload replaces."""
    command = breakable(tmp_path, fault)
    async with bench(tmp_path, command=command, workers=2, settings=settings) as made:
        before = pids(made)
        async with traffic(made):
            (tmp_path / "broken").touch()
            made.pool.reload()
            await settled(made.pool)
            assert pids(made) == before
            warnings = made.events.all(DaemonWarning, topic="reload")
            assert [(each.pool, each.worker) for each in warnings] == [
                ("sim", "sim.0"),
                ("sim", "sim.1"),
            ]
            assert "keeps serving" in warnings[0].message
            assert "llmctl reload sim" in warnings[0].remedy
            (tmp_path / "broken").unlink()
            made.pool.reload()
            await settled(made.pool)
        assert {2} == {slot.worker_revision for slot in made.pool.slots}
        assert not set(before.values()) & set(pids(made).values())


async def test_an_old_worker_that_was_kept_comes_back_as_it_was(tmp_path: Path) -> None:
    """It dies after its replacement had failed: what is known to work is started again."""
    async with bench(tmp_path, command=breakable(tmp_path)) as made:
        (tmp_path / "broken").touch()
        made.pool.reload()
        await made.events.wait(DaemonWarning, topic="reload")
        (tmp_path / "broken").unlink()
        os.kill(made.slot().pid or 0, signal.SIGKILL)
        await made.events.wait(WorkerReady, worker="sim.0", generation=2)
        await settled(made.pool)
        assert [("sim.0", 0)] == [(slot.name, slot.worker_revision) for slot in made.pool.slots]


async def test_a_pool_that_cannot_afford_one_more_restarts_its_workers_in_place(
    tmp_path: Path,
) -> None:
    """One after the other, so that the rest serves; what waits meanwhile only waits."""
    async with bench(tmp_path, "--load_ms 100", workers=2, settings=RESTART) as made:
        mark = len(made.events.events)
        async with traffic(made):
            made.pool.reload()
            await settled(made.pool)
            assert [1, 1] == [slot.worker_revision for slot in made.pool.slots if slot.serving]
        events = made.events.events[mark:]
        assert (fewest_serving(events, 2), most_workers(events, 2)) == (1, 2)
        assert [("sim.0", 2), ("sim.1", 2)] == [
            (slot.name, slot.generation) for slot in made.pool.slots
        ]


async def test_the_only_worker_restarts_and_what_waits_is_served_after(tmp_path: Path) -> None:
    """Without another slot there is a pause, and no loss."""
    async with bench(tmp_path, "--load_ms 100", settings=RESTART) as made, traffic(made):
        made.pool.reload()
        await settled(made.pool)
        assert made.slot().worker_revision == 1


async def test_a_restart_that_parks_one_slot_stops_at_that(tmp_path: Path) -> None:
    """The new settings do not work: the others keep serving with the old ones."""
    settings = RESTART.replace('"200ms" }', '"200ms", max_restarts = 1 }')
    command = breakable(tmp_path)
    async with bench(tmp_path, command=command, workers=3, settings=settings) as made:
        before = pids(made)
        async with traffic(made):
            (tmp_path / "broken").touch()
            made.pool.reload()
            await settled(made.pool)
            assert ["sim.0"] == [slot.name for slot in made.pool.slots if not slot.serving]
        after = pids(made)
        assert [None, before["sim.1"], before["sim.2"]] == list(after.values())
        warnings = made.events.all(DaemonWarning, topic="reload")
        assert ["sim.1", "sim.2"] == [each.worker for each in warnings]
        assert "sim.0 parked" in warnings[0].message


async def test_a_single_slot_is_reloaded_in_its_place(tmp_path: Path) -> None:
    """Its name stays, its worker is another one, its neighbour is left alone."""
    async with bench(tmp_path, workers=2) as made:
        before = pids(made)
        async with traffic(made):
            made.slot(0).reload()
            await made.events.wait(WorkerReady, worker="sim.0", generation=2)
        assert pids(made)["sim.1"] == before["sim.1"]


async def test_many_reloads_end_with_the_last_one(tmp_path: Path) -> None:
    """However they come there is never more than one worker too many."""
    async with bench(tmp_path, "--load_ms 30", workers=2) as made:
        mark = len(made.events.events)
        async with traffic(made):
            for number in range(20):
                made.pool.reload()
                # Some at once, some when a replacement loads, serves or has taken over.
                with trio.move_on_after(0.02 * (number % 4)):
                    await made.supervisor.wait_move()
            await settled(made.pool)
        assert {20} == {slot.worker_revision for slot in made.pool.slots}
        assert len(made.pool.slots) == 2
        events = made.events.events[mark:]
        assert (fewest_serving(events, 2), most_workers(events, 2)) == (2, 3)


async def test_a_stop_in_the_middle_of_a_reload_finishes_what_runs(tmp_path: Path) -> None:
    """The replacement is dropped where it is, and nothing is started any more."""
    async with (
        bench(tmp_path, "--load_ms 300") as made,
        made.pool.request(RequestSpec(prompt="x sim.tokens=40 sim.tps=200")) as stream,
    ):
        await read_tokens(stream, 1)
        made.pool.reload()
        await made.events.wait(WorkerSpawned, worker="sim.1")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(made.supervisor.stop, trio.Event())
            _, record = await read_all(stream)
        assert record.outcome is Outcome.COMPLETED
        assert len(made.events.all(WorkerSpawned)) == 2
        assert {STOPPED} == {slot.state for slot in made.pool.slots}


# Drain and resume -------------------------------------------------------------


async def test_a_pool_is_drained_and_resumed_under_load(tmp_path: Path) -> None:
    """What was accepted is answered, what was not is told so and comes again later."""
    async with bench(tmp_path, workers=2) as made:
        async with traffic(made) as load:
            for _ in range(3):
                made.pool.drain()
                await settled(made.pool)
                assert [STOPPED, STOPPED] == [slot.state for slot in made.pool.slots]
                assert made.pool.finished
                made.pool.resume()
                await settled(made.pool)
                await load.some_more(2)
        assert load.refused >= 3
        assert {"drain"} == {event.reason for event in made.events.all(WorkerDraining)}


async def test_a_drain_that_is_taken_back_in_time_costs_no_worker(tmp_path: Path) -> None:
    """Its workers still had work, so they go on."""
    async with bench(tmp_path, workers=2) as made:
        before = pids(made)
        async with traffic(made, clients=4) as load:
            for _ in range(5):
                made.pool.drain()
                made.pool.resume()
                await load.some_more(1)
        assert pids(made) == before


async def test_waiting_for_a_drain_waits_for_the_work(tmp_path: Path) -> None:
    """It has not finished while a request runs or waits."""
    async with bench(tmp_path) as made:
        done: list[str] = []

        async def wait_for_drain() -> None:
            await settled(made.pool)
            done.append("drained")

        async def ask() -> None:
            _, record = await made.generate("x sim.tokens=20 sim.tps=200")
            done.append(record.outcome)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            nursery.start_soon(ask)
            await made.events.wait(RequestStarted)
            made.pool.drain()
            nursery.start_soon(wait_for_drain)
        assert ["completed", "completed", "drained"] == done


async def test_a_slot_is_drained_and_resumed_under_load(tmp_path: Path) -> None:
    """Its neighbours have the work meanwhile."""
    async with bench(tmp_path, workers=2) as made, traffic(made) as load:
        for index in (0, 1):
            made.slot(index).drain()
            await settled(made.pool)
            assert made.slot(index).state is STOPPED
            await load.some_more(2)
            made.slot(index).resume()
            await settled(made.pool)
            assert made.slot(index).serving


# Scale ------------------------------------------------------------------------


async def test_a_pool_is_scaled_under_load(tmp_path: Path) -> None:
    """Up and down and up again, at once and step by step."""
    async with bench(tmp_path, "--load_ms 50") as made, traffic(made, clients=4) as load:
        for workers in (3, 1, 4, 2):
            made.pool.scale(workers)
            await settled(made.pool)
            assert [True] * workers == [slot.serving for slot in made.pool.slots]
            await load.some_more(2)
        for workers in (4, 1, 3, 1, 2):
            made.pool.scale(workers)
            await trio.lowlevel.checkpoint()
        await settled(made.pool)
        assert [True] * 2 == [slot.serving for slot in made.pool.slots]


async def test_a_pool_that_shrinks_gives_up_what_serves_least(tmp_path: Path) -> None:
    """A slot that an operator took down goes first, though its number is lower."""
    async with bench(tmp_path, workers=3) as made:
        before = pids(made)
        made.slot(0).drain()
        await wait_slots(made, STOPPED, READY, READY)
        made.pool.scale(2)
        await settled(made.pool)
        assert {"sim.1": before["sim.1"], "sim.2": before["sim.2"]} == pids(made)


async def test_a_place_without_a_device_is_refused(tmp_path: Path) -> None:
    """Where each slot has variables of its own there are only as many as there are tables."""
    settings = QUICK + 'per_slot_env = [{ DEVICE = "a" }, { DEVICE = "b" }]\n'
    async with bench(tmp_path, workers=2, settings=settings) as made:
        with pytest.raises(InvalidRequest, match="per_slot_env: has entries for 2 slots only"):
            made.pool.scale(3)
        assert (made.pool.target, len(made.pool.slots)) == (2, 2)
        made.pool.scale(1)
        await settled(made.pool)
        assert ["sim.0"] == [slot.name for slot in made.pool.slots]


async def test_a_pool_that_grows_again_has_its_devices_again(tmp_path: Path) -> None:
    """While one that leaves still works, its device goes to the one that comes in its stead."""
    settings = QUICK + 'per_slot_env = [{ DEVICE = "a" }, { DEVICE = "b" }]\n'
    async with bench(tmp_path, workers=2, settings=settings) as made:
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(_completes, made)
            await made.events.wait(RequestStarted, count=2)
            made.pool.scale(1)
            assert made.slot(1).state is SlotState.DRAINING
            made.pool.scale(2)
            await made.events.wait(WorkerReady, worker="sim.2")
            made.pool.reload()
        await settled(made.pool)
        devices = [slot.launch.env["DEVICE"] for slot in made.pool.slots]
        assert ["a", "b"] == sorted(devices)


async def _completes(made: Bench) -> None:
    _, record = await made.generate("x sim.tokens=40 sim.tps=200")
    assert record.outcome is Outcome.COMPLETED


# Standby ----------------------------------------------------------------------


async def test_a_standby_worker_takes_over_at_once(tmp_path: Path) -> None:
    """It takes no work before, and it has it before anybody has loaded anew."""
    settings = QUICK + "standby = 1\n"
    async with bench(tmp_path, "--load_ms 200", settings=settings) as made:
        # Whichever was ready first.
        [first], [second] = (
            [each for each in made.pool.slots if each.active is is_active]
            for is_active in (True, False)
        )
        for _ in range(3):
            await made.generate("x sim.tokens=1")
        assert {first.name} == {event.worker for event in made.events.all(RequestStarted)}
        os.kill(first.pid or 0, signal.SIGKILL)
        await made.events.wait(WorkerState, worker=first.name, to=SlotState.QUARANTINED)
        assert (first.active, second.active) == (False, True)
        _, record = await made.generate("x sim.tokens=1")
        assert record.outcome is Outcome.COMPLETED
        assert made.events.all(RequestStarted)[-1].worker == second.name
        assert len(made.events.all(WorkerReady)) == 2
        await made.wait_ready()
        assert (first.active, second.active) == (False, True)


async def test_a_pool_with_a_standby_worker_is_reloaded_under_load(tmp_path: Path) -> None:
    """As many as should be are always active, and there are never fewer than all of them."""
    settings = QUICK + "standby = 1\n"
    async with bench(tmp_path, workers=2, settings=settings) as made:
        mark = len(made.events.events)
        async with traffic(made, clients=4):
            made.pool.reload()
            await settled(made.pool)
            assert sum(slot.active for slot in made.pool.slots) == 2
        events = made.events.events[mark:]
        assert (fewest_serving(events, 3), most_workers(events, 3)) == (3, 4)


# Recycling --------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["surge", "restart"])
async def test_a_worker_that_has_served_enough_is_replaced(tmp_path: Path, mode: str) -> None:
    """Under load, again and again, and nobody notices."""
    settings = f'{QUICK}limits.max_requests = 5\nreload = "{mode}"\n'
    async with bench(tmp_path, workers=2, settings=settings) as made:
        async with traffic(made) as load:
            await load.some_more(30)
        drained = made.events.all(WorkerDraining, reason=PlannedReason.RECYCLE)
        assert len(drained) >= 4
        assert "(max_requests 5)" in (drained[0].detail or "")
        # It may be given one or two more while its replacement loads.
        assert len(made.events.all(RequestFinished)) / len(made.events.all(WorkerReady)) < 20


async def test_a_worker_that_is_old_is_replaced(tmp_path: Path) -> None:
    """Whether it works or not: one that is idle ages as well."""
    settings = QUICK + 'limits.max_age = "1s"\n'
    async with bench(tmp_path, workers=2, settings=settings) as made:
        async with traffic(made, clients=1):
            await made.events.wait(WorkerDraining, reason=PlannedReason.RECYCLE, count=2)
        detail = made.events.all(WorkerDraining)[0].detail or ""
        assert "(max_age 1 s)" in detail
        await settled(made.pool)


async def test_a_worker_that_leaks_is_replaced_before_it_hurts(tmp_path: Path) -> None:
    """Its request ends first, and whoever comes meanwhile is served by the other one."""
    settings = QUICK + 'limits.memory_soft = "64MiB"\n'
    async with bench(tmp_path, workers=2, settings=settings) as made:
        async with traffic(made) as load:
            text, record = await made.generate(f"x sim.leak={256 * 2**20} sim.tokens=1")
            assert (text, record.outcome) == ("t0 ", Outcome.COMPLETED)
            drained = await made.events.wait(WorkerDraining, reason=PlannedReason.RECYCLE)
            await settled(made.pool)
            await load.some_more(2)
        assert "(memory_soft 64 MiB)" in (drained.detail or "")
        assert drained.worker not in {slot.name for slot in made.pool.slots if slot.recycle}


async def test_a_worker_whose_replacement_failed_is_recycled_in_its_next_life(
    tmp_path: Path,
) -> None:
    """It was kept for want of another; that its successor leaks as well is not to be borne."""
    settings = QUICK + "limits.max_requests = 1\n"
    async with bench(tmp_path, command=breakable(tmp_path), settings=settings) as made:
        (tmp_path / "broken").touch()
        await made.generate("x sim.tokens=1")
        await made.events.wait(DaemonWarning, topic="reload")
        await settled(made.pool)
        await made.generate("x sim.tokens=1")
        await settled(made.pool)
        assert len(made.events.all(DaemonWarning, topic="reload")) == 1
        (tmp_path / "broken").unlink()
        os.kill(made.slot().pid or 0, signal.SIGKILL)
        await made.events.wait(WorkerReady, worker="sim.0", generation=2)
        await made.generate("x sim.tokens=1")
        await made.events.wait(WorkerDraining, worker="sim.0", generation=2)
        with trio.fail_after(SECONDS):
            await made.pool.wait_settled()
