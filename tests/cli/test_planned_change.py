"""Planned change as an operator does it: llmctl, a daemon in a process of its own, and load."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from supervisord_llm.client import Client
from supervisord_llm.core.words import Outcome
from supervisord_llm.schema import Finished, GenerateRequest, WorkerInfo
from tests.api.house import read
from tests.cli.command import llmctl
from tests.cli.test_with_daemon import running_daemon, wait_event
from tests.harness import QUICK, SECONDS, write_config


async def keep_asking(socket: Path, ends: list[Finished], enough: trio.Event) -> None:
    """Send one short generation after the other until told to stop."""
    async with Client(socket) as client:
        while not enough.is_set():
            request = GenerateRequest(pool="sim", prompt="x sim.tokens=10 sim.tps=50")
            async with client.generate(request) as stream:
                text, finished = await read(stream)
            assert text == "".join(f"t{number} " for number in range(10))
            ends.append(finished)


@asynccontextmanager
async def under_load(config: Path, socket: Path) -> AsyncGenerator[None]:
    """Run a daemon whose clients ask all the time; in the end each answer came whole."""
    ends: list[Finished] = []
    enough = trio.Event()
    async with running_daemon(config), trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(keep_asking, socket, ends, enough)
        yield
        enough.set()
        with trio.fail_after(SECONDS):
            while nursery.child_tasks:  # noqa: ASYNC110 - they end after their present answer
                await trio.sleep(0.01)
    assert {Outcome.COMPLETED} == {finished.outcome for finished in ends}


async def workers(socket: Path) -> dict[str, WorkerInfo]:
    """The workers by their slots' names."""
    async with Client(socket) as client:
        return {worker.slot: worker for worker in (await client.workers()).workers}


async def test_an_operator_changes_a_pool_under_load(tmp_path: Path) -> None:
    """Reload, scale, drain a slot and bring it back, each waited for; nobody notices."""
    socket = tmp_path / "control.sock"
    config = write_config(tmp_path, "--load_ms 200", workers=2)
    async with under_load(config, socket):
        before = await workers(socket)
        reloaded = await llmctl(socket, "reload", "--wait")
        after = await workers(socket)
        grown = await llmctl(socket, "scale", "sim", "3", "--wait")
        many = await workers(socket)
        shrunk = await llmctl(socket, "scale", "sim", "2", "--wait")
        slot, _ = await workers(socket)
        drained = await llmctl(socket, "drain", slot, "--wait")
        down = (await workers(socket))[slot]
        resumed = await llmctl(socket, "resume", slot)
        await wait_event(socket, "worker.ready", worker=slot, generation=2)
    assert {0} == {done.code for done in (reloaded, grown, shrunk, drained, resumed)}
    assert not {each.pid for each in before.values()} & {each.pid for each in after.values()}
    assert {1} == {each.revision for each in after.values()}
    assert (3, True) == (len(many), all(each.pid for each in many.values()))
    assert reloaded.out.startswith("sim: done (")
    assert grown.out.startswith("sim: done (")
    assert ("stopped", None) == (down.state, down.pid)


async def test_waiting_ends_when_the_pool_is_as_it_was_to_be(tmp_path: Path) -> None:
    """In place, with the only worker: the fresh one is ready, or what was left has finished."""
    socket = tmp_path / "control.sock"
    settings = QUICK + 'reload = "restart"\n'
    config = write_config(tmp_path, "--load_ms 300", settings=settings)
    async with running_daemon(config):
        reloaded = await llmctl(socket, "reload", "sim", "--wait")
        drained = await llmctl(socket, "drain", "sim", "--wait")
        down = await workers(socket)
        resumed = await llmctl(socket, "resume", "sim")
        await wait_event(socket, "worker.ready", worker="sim.0", generation=3)
    assert reloaded.out == "sim: done (ready=1)\n"
    assert drained.out.startswith("sim: it has finished and takes nothing new; ")
    assert {"sim.0": None} == {name: each.pid for name, each in down.items()}
    assert resumed.code == 0


async def test_a_reload_that_fails_is_a_story_with_a_remedy(tmp_path: Path) -> None:
    """The command fails, says which worker goes on, and the events say what its successor said."""
    socket = tmp_path / "control.sock"
    config = write_config(tmp_path)
    async with under_load(config, socket):
        good = config.read_text()
        config.write_text(good.replace("'sllm-sim-worker'", "'sllm-sim-worker', '--x'"))
        changed = await llmctl(socket, "config", "reload")
        failed = await llmctl(socket, "reload", "--wait")
        told = await llmctl(socket, "events")
        config.write_text(good)
        mended = await llmctl(socket, "config", "reload")
        done = await llmctl(socket, "reload", "--wait")
    assert (0, 0) == (changed.code, mended.code)
    assert changed.out.startswith("pool sim: command ")
    assert (1, True) == (failed.code, failed.out.startswith("sim: not all is done ("))
    assert "sim.0 goes on with its old worker: the one that was to replace it failed" in failed.err
    assert "the replacement of sim.0 did not come into service" in told.out
    assert (0, True) == (done.code, done.out.startswith("sim: done ("))


async def test_the_configuration_is_read_again_by_signal_and_by_command(tmp_path: Path) -> None:
    """Both say what changed; a file that is not valid says why, and changes nothing."""
    socket = tmp_path / "control.sock"
    config = write_config(tmp_path)
    async with under_load(config, socket):
        first = config.read_text()
        config.write_text(first.replace("workers = 1", "workers = 2"))
        changed = await llmctl(socket, "config", "reload")
        await wait_event(socket, "worker.ready", worker="sim.1")
        config.write_text(first.replace("workers = 1", "workers = none"))
        refused = await llmctl(socket, "config", "reload")
        again = await workers(socket)
        config.write_text(first)
        async with Client(socket) as client:
            pid = (await client.status()).pid
        os.kill(pid, signal.SIGHUP)
        await wait_event(socket, "worker.reaped", worker="sim.1")
        nothing = await llmctl(socket, "config", "reload")
    assert (0, "pool sim: workers 1 -> 2\n") == (changed.code, changed.out)
    assert refused.code == 1
    assert "nothing has changed" in refused.err
    assert ["sim.0", "sim.1"] == list(again)
    assert "nothing has changed\n" == nothing.out
