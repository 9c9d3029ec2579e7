"""The configuration file is read again while the daemon serves: what changed follows, no more."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import trio
import trio.testing

from supervisord_llm.client import ApiError
from supervisord_llm.core.words import Outcome, RequestState, SlotState
from supervisord_llm.events import (
    ConfigRejected,
    ConfigReloaded,
    DaemonWarning,
    RequestAccepted,
    RequestStarted,
    WorkerParked,
    WorkerReaped,
    WorkerSpawned,
)
from supervisord_llm.schema import Finished, GenerateRequest, Token
from tests.api.house import House, ask, house, next_of, read
from tests.conftest import TEST_VARIABLE
from tests.harness import QUICK, SECONDS
from tests.runtime.traffic import WHOLE, most_workers

PROMPT = "x sim.tokens=12 sim.tps=400"


def table(name: str, settings: str = "", options: str = "") -> str:
    """One more pool for a configuration file."""
    command = ["sllm-sim-worker", *options.split()]
    return f'[pool.{name}]\ncommand = {command}\npass_env = ["{TEST_VARIABLE}"]\n{QUICK}{settings}'


class Edited:
    """The configuration file of a house."""

    def __init__(self, at: House, folder: Path) -> None:
        """The file as it is now."""
        self.at = at
        self.path = folder / "daemon.toml"
        self.first = self.path.read_text()

    def write(self, text: str) -> None:
        """Save another file; nobody reads it yet."""
        self.path.write_text(text)

    async def read_again(self, text: str) -> list[str]:
        """Save another file and have it read: what changed."""
        self.write(text)
        return (await self.at.client.reload_config()).differences

    def pids(self) -> dict[str, int | None]:
        """The workers by their slots' names."""
        return {name: slot.pid for name, slot in self.at.supervisor.slots.items()}

    async def settled(self) -> None:
        """Wait until all pools are as wanted."""
        with trio.fail_after(SECONDS):
            for pool in list(self.at.supervisor.pools.values()):
                await pool.wait_settled()


async def gone(at: House, pool: str) -> None:
    """Wait until a pool has no slots any more."""
    with trio.fail_after(SECONDS):
        while any(slot.pool == pool for slot in at.supervisor.slots.values()):
            await at.supervisor.wait_move()


async def keep_asking(at: House, pool: str, answers: list[tuple[str, Finished]]) -> None:
    """Ask a pool for one answer after the other, until cancelled between two of them."""
    request = GenerateRequest(pool=pool, prompt=PROMPT)
    while True:
        with trio.CancelScope(shield=True):
            async with at.client.generate(request) as stream:
                answers.append(await read(stream))
        await trio.lowlevel.checkpoint()


def check(answers: list[tuple[str, Finished]]) -> None:
    """All came, and whole."""
    assert {(WHOLE, Outcome.COMPLETED)} == {(text, end.outcome) for text, end in answers}


async def test_only_the_pools_that_changed_get_new_workers(tmp_path: Path) -> None:
    """Under load on all of them; those of the others are the same processes as before."""
    answers: list[tuple[str, Finished]] = []
    settings = QUICK + table("left") + table("right")
    async with house(tmp_path, settings=settings, ready=False) as at, trio.open_nursery() as load:
        await at.wait_serving(3)
        file = Edited(at, tmp_path)
        before = file.pids()
        for pool in ("sim", "left", "right"):
            load.start_soon(keep_asking, at, pool, answers)
        await at.wait(RequestAccepted, 3)
        changed = table("left", 'env = { COLOUR = "blue" }\n')
        told = await file.read_again(file.first.replace(table("left"), changed))
        await file.settled()
        load.cancel_scope.cancel()
    assert told == ["pool left: env changed (COLOUR)"]
    after = file.pids()
    assert "left.1" in after
    assert [name for name in before if after.get(name) == before[name]] == []
    kept = {event.worker for event in at.all(WorkerSpawned)}
    assert kept == {"sim.0", "left.0", "left.1", "right.0"}
    assert len(at.all(WorkerSpawned)) == 4
    check(answers)


async def test_pools_come_and_go_under_load(tmp_path: Path) -> None:
    """The new one serves once it has loaded; one that goes finishes what it has; a third is left.

    Its requests that wait are served as well, and its name is unknown to whoever comes now.
    """
    answers: list[tuple[str, Finished]] = []
    settings = QUICK + table("old")
    async with house(tmp_path, settings=settings, ready=False) as at, trio.open_nursery() as load:
        await at.wait_serving(2)
        file = Edited(at, tmp_path)
        sim = at.supervisor.slots["sim.0"].pid
        load.start_soon(keep_asking, at, "sim", answers)
        long = GenerateRequest(pool="old", prompt="x sim.tokens=40 sim.tps=200")
        async with at.client.generate(long) as first, at.client.generate(long) as second:
            await next_of(first, Token)
            told = await file.read_again(file.first.replace(table("old"), table("new")))
            assert told == ["pool old: removed", "pool new: added"]
            assert list(at.supervisor.pools) == ["sim", "new"]
            with pytest.raises(ApiError, match="old") as unknown:
                async with at.client.generate(long):
                    pass
            assert unknown.value.status == 404
            ends = [await read(first), await read(second)]
        assert [Outcome.COMPLETED] * 2 == [end.outcome for _, end in ends]
        await gone(at, "old")
        await file.settled()
        async with at.client.generate(GenerateRequest(pool="new", prompt=PROMPT)) as stream:
            answers.append(await read(stream))
        load.cancel_scope.cancel()
        assert at.supervisor.slots["sim.0"].pid == sim
    check(answers)


async def test_a_storm_of_edits_ends_with_the_last_file(tmp_path: Path) -> None:
    """Field report 23: however often the file is saved, there is one worker too many at most."""
    answers: list[tuple[str, Finished]] = []
    settings = QUICK + 'env = { EDIT = "first" }\n'
    async with (
        house(tmp_path, "--load_ms 30", workers=2, settings=settings) as at,
        trio.open_nursery() as load,
    ):
        file = Edited(at, tmp_path)
        for _ in range(3):
            load.start_soon(keep_asking, at, "sim", answers)
        await at.wait(RequestStarted, 2)
        for number in range(12):
            text = file.first.replace("first", f"edit {number}")
            if number % 3 == 1:
                file.write(text.replace("workers", "werkers"))
                with pytest.raises(ApiError, match="werkers"):
                    await at.client.reload_config()
            await file.read_again(text)
            with trio.move_on_after(0.02 * (number % 4)):
                await at.supervisor.wait_move()
        await file.settled()
        load.cancel_scope.cancel()
        slots = at.supervisor.slots.values()
        assert ["edit 11"] * 2 == [slot.launch.env["EDIT"] for slot in slots]
        assert {12} == {slot.worker_revision for slot in slots}
    assert most_workers(at.events) == 3
    check(answers)


@pytest.mark.parametrize(
    "spoilt",
    ["workers = 0", "workers = 1\nworkers = 2", "workers = 1\nstandbye = 1", "\x00"],
)
async def test_an_invalid_file_changes_nothing(tmp_path: Path, spoilt: str) -> None:
    """Not even what would be valid in it; the next valid one is compared with what is in force."""
    async with house(tmp_path) as at:
        file = Edited(at, tmp_path)
        before = file.pids()
        file.write(file.first.replace("workers = 1", spoilt) + table("more"))
        with pytest.raises(ApiError) as refused:
            await at.client.reload_config()
        assert (refused.value.status, refused.value.code) == (400, "invalid_config")
        [rejected] = at.all(ConfigRejected)
        assert rejected.error
        file.path.unlink()
        with pytest.raises(ApiError, match="cannot read the file"):
            await at.client.reload_config()
        assert (await file.read_again(file.first)) == []
        assert (list(at.supervisor.pools), file.pids()) == (["sim"], before)
        async with at.client.generate(ask(PROMPT)) as stream:
            text, _ = await read(stream)
        assert text == WHOLE


async def test_a_pool_comes_back_before_it_was_gone(tmp_path: Path) -> None:
    """It has the same slots, and in the end as many workers as the file says; nothing was lost."""
    settings = QUICK + table("other")
    async with house(tmp_path, settings=settings, ready=False) as at:
        await at.wait_serving(2)
        file = Edited(at, tmp_path)
        await at.client.scale("other", 2, wait=True)
        long = GenerateRequest(pool="other", prompt="x sim.tokens=40 sim.tps=200")
        async with at.client.generate(long) as stream:
            await next_of(stream, Token)
            await file.read_again(file.first.replace(table("other"), ""))
            draining = [slot for slot in at.supervisor.slots.values() if slot.pool == "other"]
            assert len(draining) == 2
            back = file.first.replace(table("other"), table("other", 'env = { A = "2" }\n'))
            assert await file.read_again(back) == ["pool other: added"]
            assert {slot.name for slot in draining} & at.supervisor.slots.keys()
            _, finished = await read(stream)
            assert finished.outcome is Outcome.COMPLETED
        await file.settled()
        [slot] = [slot for slot in at.supervisor.slots.values() if slot.pool == "other"]
        assert (slot.serving, slot.launch.env.get("A")) == (True, "2")
        async with at.client.generate(GenerateRequest(pool="other", prompt=PROMPT)) as stream:
            text, _ = await read(stream)
        assert text == WHOLE
        for _ in range(5):
            await file.read_again(file.first.replace(table("other"), ""))
            await file.read_again(back)
        await file.settled()
        await at.wait_serving(2)
        async with trio.open_nursery() as nursery:
            for _ in range(10):  # some of them look before all is done
                nursery.start_soon(gone, at, "other")
            await trio.testing.wait_all_tasks_blocked()
            await file.read_again(file.first.replace(table("other"), ""))
        spawned = at.all(WorkerSpawned)
        assert len(spawned) == len(at.all(WorkerReaped)) + 1
        named = [(event.worker, event.generation) for event in spawned]
        assert len(set(named)) == len(named), "a worker has the name of another before it"


async def test_a_parked_pool_that_is_gone_begins_anew_when_it_comes_back(tmp_path: Path) -> None:
    """Nothing is remembered of slots that are none any more."""
    broken = tmp_path / "broken"
    broken.touch()
    restart = QUICK.replace('"200ms" }', '"200ms", max_restarts = 0 }')
    script = f"test -e {broken} && exit 3; exec sllm-sim-worker"
    other = f'[pool.other]\ncommand = ["sh", "-c", "{script}"]\n{restart}'
    other += f'pass_env = ["{TEST_VARIABLE}"]\n'
    other = other.replace("exec sllm", "exec {bin_dir}/sllm")
    async with house(tmp_path, settings=QUICK + other, ready=False) as at:
        await at.wait(WorkerParked)
        file = Edited(at, tmp_path)
        await file.read_again(file.first.replace(other, ""))
        await gone(at, "other")
        broken.unlink()
        await file.read_again(file.first)
        await at.wait_serving(2)


async def test_what_is_live_takes_effect_without_a_new_worker(tmp_path: Path) -> None:
    """Sampling, the queue's bounds, how slots restart, how many there are to be."""
    async with house(tmp_path) as at:
        file = Edited(at, tmp_path)
        before = file.pids()
        changed = file.first.replace("max_new_tokens = 100000", "max_new_tokens = 2")
        changed = changed.replace('"200ms" }', '"200ms", max_restarts = 0 }')
        changed += "queue.max_queued = 1\nqueue.queue_timeout = '300ms'\n"
        assert len(await file.read_again(changed)) == 4
        await file.settled()
        assert file.pids() == before
        request = GenerateRequest(pool="sim", prompt="x sim.tokens=9")
        async with at.client.generate(request) as stream:
            text, _ = await read(stream)
        assert text == "t0 t1 "
        long = ask("x sim.tps=50 sim.tokens=1000")
        async with at.client.generate(long) as running, at.client.generate(long) as waiting:
            await next_of(running, Token)
            with pytest.raises(ApiError) as full:
                async with at.client.generate(long):
                    pass
            assert full.value.code == "queue_full"
            _, expired = await read(waiting)
            assert expired.error is not None
            assert expired.error.code == "queue_timeout"
        pid = file.pids()["sim.0"]
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        parked = await at.wait(WorkerParked)
        assert parked.worker == "sim.0"
        at.supervisor.slots["sim.0"].resume()
        await at.wait_serving(1)
        assert len(at.all(WorkerSpawned)) == 2


async def test_settings_that_fail_leave_the_old_workers_until_the_file_is_mended(
    tmp_path: Path,
) -> None:
    """A valid file may still name a command that does not serve."""
    answers: list[tuple[str, Finished]] = []
    async with house(tmp_path, workers=2) as at, trio.open_nursery() as load:
        file = Edited(at, tmp_path)
        before = file.pids()
        load.start_soon(keep_asking, at, "sim", answers)
        await file.read_again(file.first.replace("'sllm-sim-worker'", "'sllm-sim-worker', '--x'"))
        await file.settled()
        assert file.pids() == before
        warned = [event.worker for event in at.all(DaemonWarning) if event.topic == "reload"]
        assert warned == ["sim.0", "sim.1"]
        await file.read_again(file.first)
        await file.settled()
        assert [2, 2] == [slot.worker_revision for slot in at.supervisor.slots.values()]
        load.cancel_scope.cancel()
    check(answers)


async def test_a_pool_that_was_scaled_follows_a_file_without_places_for_so_many(
    tmp_path: Path,
) -> None:
    """There are devices for as many as the file names; one that has none has to go."""
    answers: list[tuple[str, Finished]] = []
    async with house(tmp_path, workers=2) as at, trio.open_nursery() as load:
        file = Edited(at, tmp_path)
        await at.client.scale("sim", 3, wait=True)
        load.start_soon(keep_asking, at, "sim", answers)
        devices = 'per_slot_env = [{ DEVICE = "a" }, { DEVICE = "b" }]\n'
        await file.read_again(file.first + devices)
        await file.settled()
        slots = at.supervisor.slots.values()
        assert ["a", "b"] == sorted(slot.launch.env["DEVICE"] for slot in slots)
        load.cancel_scope.cancel()
    check(answers)


async def test_a_scaled_pool_stays_scaled_when_something_else_changes(tmp_path: Path) -> None:
    """An operator's wish holds until the file says another number, or the pool is gone."""
    async with house(tmp_path) as at:
        file = Edited(at, tmp_path)
        await at.client.scale("sim", 3, wait=True)
        await file.read_again(file.first + 'env = { A = "1" }\n')
        await file.settled()
        assert len(at.supervisor.slots) == 3
        await file.read_again(file.first.replace("workers = 1", "workers = 2"))
        await file.settled()
        assert len(at.supervisor.slots) == 2


async def test_a_stop_in_the_middle_of_a_change_ends(tmp_path: Path) -> None:
    """Of pools that come, go and are replaced at the same time nothing is left."""
    settings = QUICK + table("gone", options="--load_ms 300")
    async with house(tmp_path, "--load_ms 300", settings=settings, ready=False) as at:
        await at.wait_serving(2)
        file = Edited(at, tmp_path)
        async with at.client.generate(
            GenerateRequest(pool="gone", prompt="x sim.tokens=1000 sim.tps=100")
        ) as stream:
            await next_of(stream, Token)
            changed = file.first.replace(table("gone", options="--load_ms 300"), table("new"))
            changed = changed.replace("workers = 1\n", 'workers = 1\nenv = { A = "1" }\n')
            await file.read_again(changed)
            await at.wait(ConfigReloaded)
            hurry = trio.Event()
            hurry.set()
            with trio.fail_after(SECONDS):
                assert await at.supervisor.stop(hurry)
            _, finished = await read(stream)
            assert finished.outcome is Outcome.CANCELLED
        with pytest.raises(ApiError) as refused:
            await at.client.reload_config()
        assert refused.value.code == "shutting_down"
        states = {slot.state for slot in at.supervisor.slots.values()}
        assert states <= {SlotState.STOPPED}
        requests = (await at.client.requests()).requests
        assert {RequestState.FINISHED} >= {each.state for each in requests}
        assert len(at.all(WorkerSpawned)) == len(at.all(WorkerReaped))
