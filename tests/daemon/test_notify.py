"""What a service manager hears of a daemon, from its start to its end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import TEST_VARIABLE
from tests.daemon.running import PROGRAM, Running, ending, until
from tests.harness import QUICK, SECONDS, write_config
from tests.manager import Manager

FREEZING = """
import signal, sys, time
from supervisord_llm.cli.daemon import main
# A signal's handler runs in the event loop's thread: while it sleeps, nothing else does.
signal.signal(signal.SIGUSR1, lambda *_: time.sleep(2))
sys.argv = ["supervisord-llm", *sys.argv[1:]]
sys.exit(main())
"""


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    """A service manager."""
    made = Manager(tmp_path)
    yield made
    made.close()


@contextmanager
def service(
    folder: Path,
    manager: Manager,
    config: Path,
    *,
    watchdog: float | None = None,
    program: Sequence[str | Path] = (PROGRAM,),
) -> Iterator[Running]:
    """Run a daemon as a service of the manager's; end it by SIGTERM, twice."""
    log = folder / "log"
    variables = {"NOTIFY_SOCKET": manager.address}
    if watchdog is not None:
        variables["WATCHDOG_USEC"] = str(int(watchdog * 1e6))
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [*program, "run", "--config", config], stderr=stderr, env={**os.environ, **variables}
        )
    with ending(Running(folder, process, log)) as made:
        yield made


def test_it_loads_is_ready_works_and_stops(tmp_path: Path, manager: Manager) -> None:
    """Each is told in its turn, with patience asked for where it takes a while."""
    config = write_config(tmp_path, "--load_ms 700", workers=2)
    with service(tmp_path, manager, config) as running:
        manager.wait("READY=1", "STATUS=2 of 2 workers ready; no requests")
        said = manager.said
        trouble = "pool sim not ready: sim.0 starting; sim.1 starting"
        assert manager.has(f"STATUS=starting: 0 of 2 workers ready; no requests; {trouble}")
        assert "EXTEND_TIMEOUT_USEC=60000000" in said[: said.index("READY=1")]
        body = {"pool": "sim", "prompt": "x sim.tokens=100000 sim.tps=50"}
        with running.client.stream("POST", "/api/v1/generate", json=body) as reply:
            lines = reply.iter_lines()
            next(lines)
            manager.wait("STATUS=2 of 2 workers ready; 1 request running, 0 queued")
            running.process.terminate()
            manager.wait("STOPPING=1", "STATUS=stopping: 1 request running, 0 queued")
            stopping = manager.said.index("STOPPING=1")
            manager.wait_for(
                lambda: "EXTEND_TIMEOUT_USEC=60000000" in manager.read()[stopping:], "patience"
            )
            running.process.terminate()
            assert "shutdown" in list(lines)[-1]
        assert running.process.wait(SECONDS) == 0
    assert manager.read().count("READY=1") == manager.said.count("STOPPING=1") == 1
    assert not manager.has("WATCHDOG=1")


def test_a_parked_pool_is_a_verdict(tmp_path: Path, manager: Manager) -> None:
    """The daemon is ready to be looked at, and says what is wrong."""
    settings = QUICK.replace("restart = {", "restart = { max_restarts = 1,")
    config = write_config(tmp_path, "--crash_on_start", settings=settings)
    config.write_text(config.read_text().replace("sllm-sim-worker", "no-such-worker"))
    with service(tmp_path, manager, config) as running:
        manager.wait("READY=1", "STATUS=0 of 1 worker ready; no requests; pool sim parked: …")
        running.wait("daemon.ready")
        assert running.client.get("/readyz").status_code == 503
        told = [each for each in manager.said if "parked" in each]
        assert "sim.0 parked (unexpected_exit, exit:127)" in told[-1]


def test_reading_the_configuration_again_by_signal_is_told(
    tmp_path: Path, manager: Manager
) -> None:
    """When it begins and when it is over, with the time that a service manager compares."""
    config = write_config(tmp_path)
    good = config.read_text()
    with service(tmp_path, manager, config) as running:
        manager.wait("READY=1")
        before = time.monotonic_ns() // 1000
        config.write_text("nonsense")
        running.process.send_signal(signal.SIGHUP)
        refused = "the configuration was refused when it was read again"
        manager.wait(f"STATUS=1 of 1 worker ready; no requests; {refused}")
        [told] = [each for each in manager.said if each.startswith("RELOADING=1\n")]
        moment = int(told.removeprefix("RELOADING=1\nMONOTONIC_USEC="))
        assert before <= moment <= time.monotonic_ns() // 1000
        assert manager.said[manager.said.index(told) + 1] == "READY=1"
        config.write_text(good)
        running.process.send_signal(signal.SIGHUP)
        running.wait("config.reloaded")
        settled = "STATUS=1 of 1 worker ready; no requests"
        manager.wait_for(lambda: manager.read()[-1] == settled, "the last status")


def test_a_frozen_event_loop_gives_no_sign_of_life(tmp_path: Path, manager: Manager) -> None:
    """As long as it is frozen, however it came to be; afterwards it goes on."""
    program = [sys.executable, "-c", FREEZING]
    config = write_config(tmp_path)
    # Or only root could see what it waits for.
    config.write_text(config.read_text().replace("[daemon]", "[daemon]\nseal_memory = false"))
    with service(tmp_path, manager, config, watchdog=0.8, program=program) as running:
        manager.wait("READY=1", "WATCHDOG=1")
        running.process.send_signal(signal.SIGUSR1)
        until(lambda: _asleep(running.process.pid), "the freeze")
        manager.read().clear()
        time.sleep(1.0)  # more than the watchdog's patience, less than the freeze
        assert manager.read() == []
        manager.wait("WATCHDOG=1")


def _asleep(pid: int) -> bool:
    """Whether the main thread sleeps for a time, instead of waiting for something to happen."""
    return "nanosleep" in Path(f"/proc/{pid}/wchan").read_text()


def test_a_control_socket_that_does_not_answer_is_no_sign_of_life(
    tmp_path: Path, manager: Manager
) -> None:
    """Nobody could reach the daemon any more; that it notices by itself, and says it once."""
    with service(tmp_path, manager, write_config(tmp_path), watchdog=0.4) as running:
        manager.wait("READY=1", "WATCHDOG=1")
        running.socket.rename(tmp_path / "hidden")
        warning = running.wait("daemon.warning")
        assert warning["topic"] == "watchdog"
        manager.read().clear()
        time.sleep(0.5)
        assert not manager.has("WATCHDOG=1")
        (tmp_path / "hidden").rename(running.socket)
        manager.wait("WATCHDOG=1")
        assert len(running.events("daemon.warning")) == 1


def test_no_worker_can_speak_for_the_daemon(tmp_path: Path, manager: Manager) -> None:
    """What the service manager gave is in no worker's environment, nor can it be passed on."""
    names = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID")
    config = write_config(tmp_path)
    with service(tmp_path, manager, config, watchdog=20.0) as running:
        running.wait("daemon.ready")
        [pid] = running.worker_pids()
        environment = Path(f"/proc/{pid}/environ").read_text()
        assert TEST_VARIABLE in environment
        assert not any(name in environment for name in names)
    for name in names:
        given = config.read_text().replace(f'"{TEST_VARIABLE}"', f'"{name}"')
        config.with_name("bad.toml").write_text(given)
        refused = subprocess.run(
            [PROGRAM, "run", "--config", config.with_name("bad.toml")],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert refused.returncode == 78
        assert f"{name} is the daemon's own" in refused.stderr
