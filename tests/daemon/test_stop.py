"""A stop always ends: in bounded time, with exit code 0, whatever the daemon is in the midst of.

Each test stops a daemon at its own bad moment; `stopped` then asks the same of all of them, from
outside and from the event log.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from supervisord_llm.events import DaemonStopping, WorkerSpawned
from supervisord_llm.host import tree
from tests.chaos.checks import check
from tests.chaos.log import Entry, read
from tests.chaos.request_rules import Bounds
from tests.daemon.running import Running, running, until
from tests.harness import QUICK, SECONDS, write_config

LONG = "x sim.tokens=100000 sim.tps=100"
STUBBORN = "--ignore_cancel --ignore_sigterm --ignore_eof"
BOUNDS = Bounds(answer=SECONDS, settlement=SECONDS)

NEVER_SEEN = """
import trio
from supervisord_llm.cli.daemon import main
from supervisord_llm.runtime.process import WorkerProcess

async def wait_exited(self):
    await trio.sleep_forever()

WorkerProcess.wait_exited = wait_exited
main()
"""
"""A daemon that sees no exit, as if its workers slept in the kernel for ever."""


@contextmanager
def stopped(
    folder: Path,
    options: str = "",
    *,
    workers: int = 1,
    settings: str = QUICK,
    drain: str = "300s",
) -> Iterator[Running]:
    """A daemon that the block stops; afterwards it has stopped, and in order."""
    config = write_config(folder, options, workers=workers, settings=settings)
    text = config.read_text().replace('shutdown_drain = "5s"', f'shutdown_drain = "{drain}"')
    config.write_text(text + '\n[log]\nlevel = "debug"\n')
    with running(folder, config) as it:
        yield it
        assert it.process.wait(SECONDS) == 0
        assert not it.socket.exists()
        assert list((folder / "state" / "workers").glob("*.json")) == []
        entries, violations = read(it.log.read_bytes().splitlines(keepends=True))
        assert violations + check(entries, BOUNDS) == []
        assert spawned_after_stopping(entries) == []


def spawned_after_stopping(entries: list[Entry]) -> list[Entry]:
    """Workers that were started although the daemon was about to end."""
    begin = next(entry.seq for entry in entries if isinstance(entry.event, DaemonStopping))
    return [e for e in entries if e.seq > begin and isinstance(e.event, WorkerSpawned)]


@contextmanager
def generating(it: Running, prompt: str = LONG) -> Iterator[Iterator[dict[str, object]]]:
    """A request that has had its first token; the lines that follow."""
    body = {"pool": "sim", "prompt": prompt}
    with it.client.stream("POST", "/api/v1/generate", json=body) as reply:
        lines = (json.loads(line) for line in reply.iter_lines())
        while next(lines)["event"] != "token":
            pass
        yield lines


def last(lines: Iterator[dict[str, object]]) -> dict[str, object]:
    """The end of a stream."""
    *_, end = lines
    return end


def told(it: Running, name: str, **fields: object) -> None:
    """Wait for an event with these fields."""
    until(
        lambda: any(fields.items() <= event.items() for event in it.events(name)),
        f"{name} {fields}",
    )


def test_running_work_ends_before_the_daemon_does(tmp_path: Path) -> None:
    """One signal: what runs completes, what waits is cancelled, what comes is refused."""
    with stopped(tmp_path) as it, generating(it, "x sim.tokens=100 sim.tps=100") as lines:
        body = {"pool": "sim", "prompt": "y"}
        with it.client.stream("POST", "/api/v1/generate", json=body) as waiting:
            told(it, "request.accepted", queued=0)
            it.wait("request.accepted", count=2)
            it.process.terminate()
            it.wait("daemon.stopping")
            refused = it.client.post("/api/v1/generate", json=body)
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "shutting_down")
            end = json.loads(list(waiting.iter_lines())[-1])
            assert (end["outcome"], end["cancelled_by"]) == ("cancelled", "shutdown")
        assert last(lines)["outcome"] == "completed"


def test_work_that_does_not_end_is_cancelled_when_the_drain_is_over(tmp_path: Path) -> None:
    """One signal, and a request that would take for ever."""
    with stopped(tmp_path, drain="100ms") as it, generating(it) as lines:
        it.process.terminate()
        end = last(lines)
        assert (end["outcome"], end["cancelled_by"]) == ("cancelled", "shutdown")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_workers_that_ignore_everything_are_stopped_under_load(
    tmp_path: Path, number: signal.Signals
) -> None:
    """Two signals: deaf to cancellation, SIGTERM and the end of their input, with children."""
    spawn = " ".join(f"--spawn_{kind}=1" for kind in ("detached", "stubborn", "escaped"))
    with (
        stopped(tmp_path, f"{STUBBORN} {spawn}", workers=2) as it,
        generating(it) as first,
        generating(it) as second,
    ):
        processes = tree.scan()
        below = tree.descendants(it.process.pid, processes)
        assert len(below) >= 8
        it.process.send_signal(number)
        it.wait("daemon.stopping")
        it.process.send_signal(number)
        for lines in (first, second):
            end = last(lines)
            assert (end["outcome"], end["cancelled_by"]) == ("cancelled", "shutdown")
        assert it.process.wait(SECONDS) == 0
        left = [tree.read(pid) for pid in below]
        assert [each for each in left if each is not None and each.living] == []


@pytest.mark.parametrize("options", ["--load_ms=3600000", f"--never_ready {STUBBORN}"])
def test_a_load_is_given_up(tmp_path: Path, options: str) -> None:
    """The model is not waited for, be its worker slow or stuck."""
    settings = QUICK.replace('"10s"', '"1h"').replace('"5s"', '"1h"') + "required = false\n"
    with stopped(tmp_path, options, settings=settings) as it:
        it.wait("worker.spawned")
        it.process.terminate()


def test_a_slot_that_is_reloaded_is_not_started_again(tmp_path: Path) -> None:
    """Its request completes; the next generation is not wanted any more."""
    with stopped(tmp_path) as it, generating(it, "x sim.tokens=100 sim.tps=100") as lines:
        assert it.client.post("/api/v1/workers/sim.0/reload").status_code == 202
        told(it, "worker.state", to="draining")
        it.process.terminate()
        assert last(lines)["outcome"] == "completed"
        assert len(it.events("worker.spawned")) == 1


def test_a_slot_that_waits_for_its_next_start_is_not_started(tmp_path: Path) -> None:
    """In backoff, nothing is left to wait for."""
    backoff = 'restart = { backoff_initial = "1h", backoff_max = "1h" }\nrequired = false\n'
    with stopped(tmp_path, "--exit=3 --during=load", settings=backoff) as it:
        it.wait("worker.restart_scheduled")
        it.process.terminate()


def test_a_worker_that_dies_during_the_stop_is_not_replaced(tmp_path: Path) -> None:
    """Its request has failed, which is what happened to it; the neighbour's completes."""
    with (
        stopped(tmp_path, workers=2) as it,
        generating(it) as lost,
        generating(it, "x sim.tokens=100 sim.tps=50") as lines,
    ):
        workers = it.client.get("/api/v1/workers").json()["workers"]
        [worker] = [each for each in workers if each["slot"] == "sim.0"]
        it.process.terminate()
        it.wait("daemon.stopping")
        os.kill(worker["pid"], signal.SIGKILL)
        assert last(lost)["outcome"] == "failed"
        assert last(lines)["outcome"] == "completed"


@pytest.mark.parametrize("grace", ["1ms", "2s"])
def test_a_worker_that_is_torn_down_when_the_stop_comes_is_not_replaced(
    tmp_path: Path, grace: str
) -> None:
    """The ladder goes on from where it is."""
    settings = QUICK.replace('terminate_grace = "500ms"', f'terminate_grace = "{grace}"')
    with stopped(tmp_path, STUBBORN, settings=settings) as it, generating(it):
        assert it.client.post("/api/v1/workers/sim.0/quarantine").status_code == 202
        it.process.terminate()


def test_clients_that_do_not_read_do_not_hold_the_stop(tmp_path: Path) -> None:
    """Their connections are open, full, and going nowhere."""
    transport = httpx.HTTPTransport(uds=str(tmp_path / "control.sock"))
    body = {"pool": "sim", "prompt": "x sim.tokens=100000"}
    with (
        stopped(tmp_path) as it,
        httpx.Client(transport=transport, base_url="http://daemon") as client,
        client.stream("POST", "/api/v1/generate", json=body),
    ):
        it.wait("request.first_token")
        it.process.terminate()
        it.wait("daemon.stopping")
        it.process.terminate()
        assert it.process.wait(SECONDS) == 0


def test_a_stop_in_the_first_moment_is_a_stop(tmp_path: Path) -> None:
    """The signal comes as soon as there is somebody to take it."""
    config = write_config(tmp_path, "--load_ms=3600000", workers=2)
    log = tmp_path / "log"
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "supervisord_llm", "run", "--config", config], stderr=stderr
        )
    until(lambda: b"worker.spawned" in log.read_bytes(), "a worker")
    process.terminate()
    assert process.wait(SECONDS) == 0
    assert not (tmp_path / "control.sock").exists()
    assert b"daemon.ready" not in log.read_bytes()


def test_a_worker_that_cannot_be_reaped_does_not_hold_the_stop(tmp_path: Path) -> None:
    """The daemon ends in time and with exit code 0, and names what it leaves behind."""
    settings = 'cancel = { terminate_grace = "50ms", kill_grace = "50ms", reap_grace = "50ms" }\n'
    config = write_config(tmp_path, workers=1, settings=settings)
    log = tmp_path / "log"
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-c", NEVER_SEEN, "run", "--config", config], stderr=stderr
        )
    until(lambda: b'"daemon.ready"' in log.read_bytes(), "the daemon")
    process.terminate()
    until(lambda: b'"daemon.stopping"' in log.read_bytes(), "the stop")
    process.terminate()
    assert process.wait(SECONDS) == 0
    assert not (tmp_path / "control.sock").exists()
    entries = [json.loads(line) for line in log.read_bytes().splitlines()]
    names = [entry["event"] for entry in entries]
    assert ("worker.unreapable" in names, names[-1]) == (True, "daemon.stopped")
    [warning] = [entry for entry in entries if entry["event"] == "daemon.warning"]
    assert warning["topic"] == "unreapable"
    assert "sim.0" in warning["message"]
