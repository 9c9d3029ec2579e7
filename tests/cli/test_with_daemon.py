"""The whole way: llmctl, the daemon in a process of its own, and sim workers."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from supervisord_llm.client import Client
from supervisord_llm.schema import WorkerInfo
from tests.cli.command import Done, llmctl, started
from tests.harness import SCRIPTS, SECONDS, write_command, write_config

MILLISECONDS = r"(<0\.1|\d+(\.\d)?) (ms|s)"


@pytest.fixture
async def socket(tmp_path: Path) -> AsyncGenerator[Path]:
    """The control socket of a daemon with two sim workers, both ready, at 50 tokens a second."""
    config = write_config(tmp_path, "--tps 50 --tokens 1000", workers=2)
    async with running_daemon(config):
        yield tmp_path / "control.sock"


class Daemon:
    """A daemon in a process of its own; ``log`` is what it has said on standard error."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.log = b""
        self.heard = trio.Event()
        self._process = process
        self._told = False

    def stop(self) -> None:
        """Send SIGTERM, once: at its very end another one would be taken for the first."""
        if not self._told:
            self._process.terminate()
        self._told = True

    async def listen(self) -> None:
        """Read the log to its end; ``heard`` is set when it tells of readiness, or has ended."""
        assert self._process.stderr is not None
        async with trio.lowlevel.FdStream(os.dup(self._process.stderr.fileno())) as stream:
            async for chunk in stream:
                self.log += chunk
                if b'"event":"daemon.ready"' in self.log:
                    self.heard.set()
        self.heard.set()


@asynccontextmanager
async def running_daemon(config: Path) -> AsyncGenerator[Daemon]:
    """Run the daemon, ready; in the end it must stop in order."""
    with subprocess.Popen(  # noqa: ASYNC220 - on trio's thread, as the workers are
        [sys.executable, "-m", "supervisord_llm", "run", "--config", str(config)],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as process:
        daemon = Daemon(process)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(daemon.listen)
                with trio.move_on_after(SECONDS):
                    await daemon.heard.wait()
                assert b"daemon.ready" in daemon.log, daemon.log.decode()
                yield daemon
                daemon.stop()
                with trio.fail_after(SECONDS):
                    await trio.to_thread.run_sync(process.wait, abandon_on_cancel=True)
        finally:
            process.kill()
    assert 0 == process.returncode, daemon.log.decode()


async def wait_event(socket: Path, name: str, **fields: object) -> None:
    """Wait until the daemon's log has an event with these fields."""
    async with Client(socket) as client, client.events(follow=True) as events:
        with trio.fail_after(SECONDS):
            async for event in events:
                if {"event": name, **fields}.items() <= event.items():
                    return


async def the_busy_worker(socket: Path) -> WorkerInfo:
    """The worker that has a request."""
    async with Client(socket) as client:
        [busy] = [worker for worker in (await client.workers()).workers if worker.requests]
    return busy


async def test_a_prompt_comes_back_as_text(socket: Path) -> None:
    """With the model's chat template and without; the facts name the worker."""
    chat = await llmctl(socket, "generate", "hello sim.tokens=3 sim.tps=0")
    raw = await llmctl(socket, "generate", "--raw", "hello sim.tps=0", "--max-new-tokens", "3")

    for done in (chat, raw):
        assert (0, "t0 t1 t2 \n") == (done.code, done.out)
        assert re.match(r"sim\.[01] · stopped at its token limit · 3 tokens · ", done.err)


async def test_ctrl_c_reports_two_times(socket: Path) -> None:
    """How soon the client had its answer, and when the worker was free again."""
    async with started(socket, "generate", "hello") as running:
        await running.read()
        running.interrupt()
        done = await running.wait()

    assert 130 == done.code
    told = (
        rf"cancelled after {MILLISECONDS} \(answered by worker\); "
        rf"worker settled cooperatively after {MILLISECONDS}\n"
    )
    assert re.fullmatch(told, done.err), done.err


async def test_ctrl_c_on_a_wedged_worker_reports_its_end(socket: Path) -> None:
    """The answer comes by the grace, and then the worker is seen off the ladder."""
    async with started(
        socket, "generate", "hello sim.hang=decode sim.hang_at=1 sim.ignore_cancel"
    ) as running:
        await running.read()
        running.interrupt()
        done = await running.wait()

    assert 130 == done.code
    told = (
        rf"cancelled after {MILLISECONDS} \(answered by grace\); "
        rf"worker had to be terminated, gone after {MILLISECONDS}\n"
    )
    assert re.fullmatch(told, done.err), done.err


async def test_a_cancellation_from_elsewhere_ends_the_stream(socket: Path) -> None:
    """One operator's cancel is the other's terminal record."""
    async with started(socket, "generate", "hello") as running:
        await running.read()
        [request] = (await the_busy_worker(socket)).requests
        cancelled = await llmctl(socket, "cancel", request, "--wait")
        done = await running.wait()

    assert 0 == cancelled.code
    told = (
        rf"{request} cancelled after .* \(answered by worker\); worker settled cooperatively .*\n"
    )
    assert re.fullmatch(told, cancelled.out), cancelled.out
    assert 1 == done.code
    assert done.err.startswith("llmctl: cancelled by api after ")


async def test_a_killed_worker_is_a_story_with_an_end(socket: Path) -> None:
    """The client hears of it, the slot comes back by itself, and the events tell why."""
    async with started(socket, "generate", "hello") as running:
        await running.read()
        worker = await the_busy_worker(socket)
        assert worker.pid is not None
        os.kill(worker.pid, signal.SIGKILL)
        done = await running.wait()

    assert 1 == done.code
    assert done.err.startswith(
        "llmctl: failed (worker_exited): the worker ended: signal:SIGKILL; "
        "the same request may be sent again; "
    )
    await wait_event(socket, "worker.ready", worker=worker.slot, generation=2)
    listed = await llmctl(socket, "workers")
    [row] = [line.split() for line in listed.out.splitlines() if line.startswith(worker.slot)]
    assert ["ready", "2"] == [row[1], row[4]]
    told = (await llmctl(socket, "events")).out
    names = [line.split()[2] for line in told.splitlines() if f" {worker.slot}/" in line]
    story = ["worker.exited", "request.finished", "worker.reaped", "worker.spawned"]
    assert story == [name for name in names if name in story][-4:]


async def test_reload_replaces_the_worker(socket: Path) -> None:
    """And the command returns when the next generation is ready."""
    done = await llmctl(socket, "reload", "sim.0", "--wait")

    assert (0, "sim.0 ready: generation 2\n") == (done.code, done.out)


async def test_an_operator_takes_a_worker_out(socket: Path) -> None:
    """What it works on is seen and cancelled; the slot, its log and its story are still there."""
    async with started(socket, "generate", "hello sim.stderr=1") as running:
        await running.read()
        slot = (await the_busy_worker(socket)).slot
        listed = await llmctl(socket, "requests")
        taken = await llmctl(socket, "quarantine", slot)
        done = await running.wait()
    await wait_event(socket, "worker.ready", worker=slot, generation=2)
    resumed = await llmctl(socket, "resume", slot)
    log = await llmctl(socket, "logs", slot)

    [row] = listed.out.splitlines()[1:]
    assert ["sim", "streaming", slot] == [row.split()[index] for index in (1, 2, 7)]
    assert (0, f"{slot} quarantined: generation 1 is torn down\n") == (taken.code, taken.out)
    assert 1 == done.code
    assert done.err.startswith("llmctl: cancelled by operator after ")
    assert (0, f"{slot} ready: resumed\n") == (resumed.code, resumed.out)
    assert f" {slot}/1 " in log.out


async def test_a_parked_slot_is_mended_and_resumed(tmp_path: Path) -> None:
    """Every command that looks at it tells why it is down; once the cause is gone it serves."""
    model = tmp_path / "model"
    script = f"test -e {model} && exec {SCRIPTS}/sllm-sim-worker; echo no {model} >&2; exit 3"
    restart = 'restart = { backoff_initial = "10ms", backoff_max = "10ms", max_restarts = 1 }\n'
    config = write_command(tmp_path, ["/bin/sh", "-c", script], 1, restart)
    socket = tmp_path / "control.sock"
    why = "sim.0 is parked because its workers failed too often (unexpected_exit: it ended though "
    why += "nobody had asked it to, generation 2 ended with exit:3); mend the cause, "
    why += 'then run "llmctl resume sim.0"'
    async with running_daemon(config):
        listed = await llmctl(socket, "workers")
        logged = await llmctl(socket, "logs", "sim.0")
        asked = await llmctl(socket, "generate", "--raw", "x")
        taken = await llmctl(socket, "quarantine", "sim.0")
        model.touch()
        resumed = await llmctl(socket, "resume", "sim.0")
        await wait_event(socket, "worker.ready", worker="sim.0", generation=3)
        served = await llmctl(socket, "generate", "--raw", "x sim.tokens=1")

    assert ["", why, f"    | no {model}"] == listed.err.splitlines()
    assert f"{why}\n" == logged.err
    assert [f"sim.0/1 no {model}", f"sim.0/2 no {model}"] == [
        line.partition(" ")[2] for line in logged.out.splitlines()
    ]
    assert (1, True) == (asked.code, "(sim.0 parked (unexpected_exit, exit:3))" in asked.err)
    assert (1, True) == (taken.code, "cannot quarantine sim.0: it is parked" in taken.err)
    assert (0, "sim.0 starting: resumed\n") == (resumed.code, resumed.out)
    assert (0, "t0 \n") == (served.code, served.out)


async def test_following_events_ends_with_the_daemon(tmp_path: Path) -> None:
    """The follower sees the shutdown to its end, and is told that there is no more."""
    config = write_config(tmp_path, workers=1)
    socket = tmp_path / "control.sock"
    async with running_daemon(config) as daemon, started(socket, "events", "-f") as running:
        await running.read()
        daemon.stop()
        done = await running.wait()

    assert Done(3, done.out, "llmctl: the daemon ended the stream, it is stopping\n") == done
    assert "daemon.stopping" in done.out
