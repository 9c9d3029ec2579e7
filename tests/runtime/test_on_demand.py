"""A pool on demand: loaded by a request and by nothing else, and never lost on the way down."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from supervisord_llm.client import ApiError
from supervisord_llm.core.words import CancelledBy, FailureReason, Outcome, RejectReason, SlotState
from supervisord_llm.errors import Refused
from supervisord_llm.events import (
    Event,
    WorkerDraining,
    WorkerExited,
    WorkerParked,
    WorkerReady,
    WorkerReaped,
    WorkerSpawned,
    WorkerState,
)
from supervisord_llm.runtime.request import RequestSpec, RequestStream
from tests.api.house import ask, house, read
from tests.harness import QUICK, SCRIPTS, SECONDS, Recorder, bench, read_all, read_tokens

DEMAND = QUICK + 'load = "on_demand"\n'
BRIEF = DEMAND + 'idle_ttl = "100ms"\n'
ONE = "x sim.tokens=1"


async def test_nothing_is_loaded_before_somebody_asks(tmp_path: Path) -> None:
    """The pool is ready all the same, since it serves whoever comes; also while it loads."""
    async with bench(tmp_path, "--load_ms 200", settings=DEMAND, ready=False) as made:
        await wait_all_tasks_blocked()
        assert (made.events.all(WorkerSpawned), made.slot().state) == ([], SlotState.STOPPED)
        assert (made.pool.ready, made.pool.has_verdict, made.pool.loaded) == (True, True, False)
        async with made.pool.request(RequestSpec(prompt=ONE)) as stream:
            await made.events.wait(WorkerSpawned)
            assert (made.pool.ready, made.slot().state) == (True, SlotState.STARTING)
            text, record = await read_all(stream)
        assert (text, record.outcome, made.pool.loaded) == ("t0 ", Outcome.COMPLETED, True)


async def test_those_who_wait_share_one_load(tmp_path: Path) -> None:
    """All of them are served by the worker that the first of them had loaded."""
    async with bench(tmp_path, "--load_ms 100", settings=DEMAND, ready=False) as made:
        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(made.generate, ONE)
        assert len(made.events.all(WorkerSpawned)) == 1


async def test_an_idle_model_is_unloaded_and_loaded_again(tmp_path: Path) -> None:
    """Its slot says that it is down for being idle; the next request does not know."""
    async with bench(tmp_path, settings=BRIEF, ready=False) as made:
        for generation in (1, 2):
            await made.generate(ONE)
            down = await made.events.wait(
                WorkerState, to=SlotState.STOPPED, generation=generation, reason="idle"
            )
            assert (down.worker, made.pool.loaded, made.pool.ready) == ("sim.0", False, True)
        drained = made.events.all(WorkerDraining)
        assert [each.reason for each in drained] == ["idle", "idle"]


async def test_work_is_no_idleness(tmp_path: Path) -> None:
    """However long one request takes, and with others waiting behind it."""
    async with bench(tmp_path, settings=BRIEF, ready=False) as made:
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(made.generate, "x sim.tokens=20 sim.tps=100")
        assert made.events.all(WorkerDraining) == []


MOMENTS: dict[str, Callable[[Event], bool]] = {
    "draining": lambda event: isinstance(event, WorkerState) and event.to is SlotState.DRAINING,
    "told": lambda event: isinstance(event, WorkerDraining),
    "exited": lambda event: isinstance(event, WorkerExited),
    "reaped": lambda event: isinstance(event, WorkerReaped),
    "stopped": lambda event: (
        isinstance(event, WorkerState)
        and event.to is SlotState.STOPPED
        and event.from_ is not SlotState.STOPPED
    ),
}


@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_request_at_any_moment_of_the_unloading_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Field report 9: it comes in the very turn in which the slot moves, and its wake-up counts."""
    streams: list[RequestStream] = []
    record = Recorder.__call__
    async with (
        AsyncExitStack() as stack,
        bench(tmp_path, settings=BRIEF, ready=False) as made,
    ):

        def record_and_ask(recorder: Recorder, event: Event) -> int:
            number = record(recorder, event)
            if MOMENTS[moment](event) and not streams:
                # Accepting a request waits for nothing, so it can be done in the middle of a turn.
                held = made.pool.request(RequestSpec(prompt=ONE))
                stack.push_async_exit(held)
                try:
                    held.__aenter__().__await__().__next__()
                except StopIteration as accepted:
                    streams.append(accepted.value)
            return number

        monkeypatch.setattr(Recorder, "__call__", record_and_ask)
        await made.generate(ONE)
        await made.events.wait(WorkerReaped)
        assert streams
        _, answered = await read_all(streams[0])
        assert answered.outcome is Outcome.COMPLETED
        assert len(made.events.all(WorkerSpawned)) == 2
        await stack.aclose()


async def test_requests_around_the_idle_time_are_all_served(tmp_path: Path) -> None:
    """Whether they come a little before its end, a little after, or while the worker leaves."""
    async with bench(tmp_path, settings=DEMAND + 'idle_ttl = "20ms"\n', ready=False) as made:
        for step in range(25):
            _, record = await made.generate(ONE)
            assert record.outcome is Outcome.COMPLETED
            await trio.sleep(0.010 + step * 0.001)
        assert len(made.events.all(WorkerSpawned)) > 1


async def test_a_load_that_nobody_waits_for_is_dropped(tmp_path: Path) -> None:
    """The worker is ended in the middle of it."""
    async with bench(tmp_path, "--load_ms 60000", settings=BRIEF, ready=False) as made:
        async with made.pool.request(RequestSpec(prompt=ONE)):
            await made.events.wait(WorkerSpawned)
        down = await made.events.wait(WorkerState, to=SlotState.STOPPED)
        assert (down.reason, made.events.all(WorkerReady)) == ("idle", [])
        assert (made.pool.ready, made.slot().restarts) == (True, 0)


async def test_a_client_that_tries_again_finds_the_load_under_way(tmp_path: Path) -> None:
    """It is not begun anew for having been without anybody for a moment."""
    async with bench(tmp_path, "--load_ms 300", settings=DEMAND, ready=False) as made:
        async with made.pool.request(RequestSpec(prompt=ONE)):
            await made.events.wait(WorkerSpawned)
        await made.generate(ONE)
        assert len(made.events.all(WorkerSpawned)) == 1


async def test_observing_loads_nothing(tmp_path: Path) -> None:
    """No page and no probe is a request, nor is what concerns a session that there is not."""
    async with house(tmp_path, settings=DEMAND, ready=False) as at:
        await at.client.status()
        await at.client.pools()
        pool = await at.client.pool("sim")
        await at.client.workers()
        await at.client.worker("sim.0")
        await at.client.requests()
        assert not (await at.client.reset_session("s")).existed
        assert not (await at.client.close_session("s")).existed
        with pytest.raises(ApiError):
            async with at.client.generate(msgspec.structs.replace(ask("x"), pool="nobody")):
                pass
        await wait_all_tasks_blocked()
        assert at.all(WorkerSpawned) == []
        assert (pool.ready, pool.loaded, pool.states) == (True, False, {SlotState.STOPPED: 1})
        async with at.client.generate(ask(ONE)) as stream:
            _, finished = await read(stream)
        assert (finished.outcome, len(at.all(WorkerSpawned))) == (Outcome.COMPLETED, 1)


async def test_observing_keeps_nothing_loaded(tmp_path: Path) -> None:
    """A model that is looked at all the time goes when its idle time is over."""
    async with house(tmp_path, settings=BRIEF, ready=False) as at:
        async with at.client.generate(ask(ONE)) as stream:
            await read(stream)
        with trio.fail_after(SECONDS):
            while (await at.client.pool("sim")).loaded:
                await at.client.status()


def breaks_until(mended: Path) -> list[str]:
    """The command of workers that end while they load, until there is such a file."""
    sim = SCRIPTS / "sllm-sim-worker"
    return ["sh", "-c", f'test -e "{mended}" && exec {sim}; exit 3']


async def test_a_pool_that_cannot_be_loaded_says_so_and_is_resumed(tmp_path: Path) -> None:
    """Who waited is answered, who comes is refused; resumed, it waits for a request as before."""
    mended = tmp_path / "mended"
    settings = BRIEF.replace("restart = {", "restart = { max_restarts = 1,")
    command = breaks_until(mended)
    async with bench(tmp_path, command=command, settings=settings, ready=False) as made:
        _, record = await made.generate(ONE)
        assert (record.outcome, record.error) == (Outcome.FAILED, FailureReason.POOL_UNAVAILABLE)
        assert (made.pool.ready, made.slot().state) == (False, SlotState.PARKED)
        with pytest.raises(Refused) as refused:
            await made.generate(ONE)
        assert refused.value.reason is RejectReason.POOL_UNAVAILABLE
        with trio.fail_after(SECONDS):
            while made.pool.loaded:
                await made.supervisor.wait_move()
        spawned = len(made.events.all(WorkerSpawned))
        mended.touch()
        made.pool.resume()
        await wait_all_tasks_blocked()
        assert (made.pool.ready, made.slot().state) == (True, SlotState.STOPPED)
        assert len(made.events.all(WorkerSpawned)) == spawned
        _, record = await made.generate(ONE)
        assert record.outcome is Outcome.COMPLETED


async def test_a_resumed_pool_has_all_of_its_attempts_again(tmp_path: Path) -> None:
    """What it failed of before is forgiven, in each of its slots."""
    settings = BRIEF.replace("restart = {", "restart = { max_restarts = 1,")
    async with bench(tmp_path, "--not_ready", workers=2, settings=settings, ready=False) as made:
        spawned = []
        for times in (1, 2):
            await made.generate(ONE)
            await made.events.wait(WorkerParked, count=2 * times)
            with trio.fail_after(SECONDS):
                while made.pool.loaded:
                    await made.supervisor.wait_move()
            spawned.append(len(made.events.all(WorkerSpawned)))
            made.pool.resume()
        assert spawned == [4, 8]


async def test_a_stop_ends_a_load_that_somebody_waits_for(tmp_path: Path) -> None:
    """At once, and whoever waits hears why."""
    async with (
        bench(tmp_path, "--load_ms 60000", settings=DEMAND, ready=False) as made,
        made.pool.request(RequestSpec(prompt=ONE)) as stream,
    ):
        await made.events.wait(WorkerSpawned)
        with trio.fail_after(SECONDS):
            assert await made.supervisor.stop(trio.Event())
        _, record = await read_all(stream)
        assert (record.outcome, record.cancelled_by) == (Outcome.CANCELLED, CancelledBy.SHUTDOWN)


async def test_a_stop_between_two_loads_loads_nothing(tmp_path: Path) -> None:
    """The unloaded pool stays as it is."""
    async with bench(tmp_path, settings=BRIEF, ready=False) as made:
        await made.generate(ONE)
        await made.events.wait(WorkerState, to=SlotState.STOPPED)
        with trio.fail_after(SECONDS):
            assert await made.supervisor.stop(trio.Event())
        assert len(made.events.all(WorkerSpawned)) == 1


async def test_a_drained_pool_on_demand_finishes_and_stays_down(tmp_path: Path) -> None:
    """It is no longer ready for whoever asks, until it is resumed; that alone loads nothing."""
    async with bench(tmp_path, settings=DEMAND, ready=False) as made:
        async with made.pool.request(RequestSpec(prompt="x sim.tokens=20 sim.tps=100")) as stream:
            await read_tokens(stream, 1)
            made.pool.drain()
            _, record = await read_all(stream)
        await made.events.wait(WorkerState, to=SlotState.STOPPED, reason="drain")
        assert (record.outcome, made.pool.ready) == (Outcome.COMPLETED, False)
        with pytest.raises(Refused):
            await made.generate(ONE)
        made.pool.resume()
        await wait_all_tasks_blocked()
        assert (made.pool.ready, len(made.events.all(WorkerSpawned))) == (True, 1)
        await made.generate(ONE)


async def test_a_slot_of_an_unloaded_pool_is_not_started_by_hand(tmp_path: Path) -> None:
    """Resuming or reloading it is no request; what an operator drained serves again on demand."""
    async with bench(tmp_path, settings=DEMAND, ready=False) as made:
        made.slot().drain()
        assert not made.pool.ready
        for command in (made.slot().resume, made.slot().reload):
            command()
            await wait_all_tasks_blocked()
            assert (made.pool.ready, made.events.all(WorkerSpawned)) == (True, [])
        await made.generate(ONE)


async def test_a_file_decides_what_is_loaded_when(tmp_path: Path) -> None:
    """A pool that becomes one on demand is unloaded when it is idle; eager again, it is loaded."""
    async with house(tmp_path, settings=QUICK + 'load = "eager"\n') as at:
        path = tmp_path / "daemon.toml"
        eager = path.read_text()
        path.write_text(eager.replace('load = "eager"', 'load = "on_demand"\nidle_ttl = "50ms"'))
        await at.client.reload_config()
        with trio.fail_after(SECONDS):
            while at.supervisor.slots["sim.0"].state is not SlotState.STOPPED:
                await at.ring.wait_appended()
        path.write_text(eager)
        await at.client.reload_config()
        await at.wait_serving(1)
        assert len(at.all(WorkerSpawned)) == 2


async def test_sessions_are_forgotten_with_the_model(tmp_path: Path) -> None:
    """A session that is unloaded begins anew."""
    async with bench(tmp_path, "--sessions 2", settings=BRIEF, ready=False) as made:
        await made.generate("a b sim.eos_at=0", session_id="s")
        await made.events.wait(WorkerState, to=SlotState.STOPPED, reason="idle")
        assert made.pool.sessions == 0
        _, record = await made.generate("a b c sim.eos_at=0", session_id="s")
        assert record.usage is not None
        assert record.usage.reused_tokens == 0
