"""The unit under a real systemd on a bad day: frozen, killed, called too early, out of memory."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.daemon.running import until
from tests.harness import SECONDS
from tests.systemd.conftest import POOL
from tests.systemd.machine import CONFIG, SOCKETS, UNIT, Machine
from tests.systemd.test_service import generate, workers


def test_who_calls_before_it_runs_is_served_when_it_does(service: Machine) -> None:
    """A first client starts it, waits while the model loads, and gets its answer."""
    service.write(CONFIG, POOL.replace('"sllm-sim-worker"', '"sllm-sim-worker", "--load_ms=500"'))
    service.systemctl("start", *SOCKETS)
    assert service.show("ActiveState") == "inactive"
    with (
        service.client() as client,
        service.client("inference") as other,
        ThreadPoolExecutor(2) as pool,
    ):
        generated = pool.submit(generate, client, "x sim.tokens=3")
        live = pool.submit(other.get, "/livez")
        assert generated.result(2 * SECONDS)[-1]["outcome"] == "completed"
        assert live.result(SECONDS).status_code == 200
    service.wait("ActiveState", "active")


def test_the_sockets_belong_to_their_groups_and_outlive_the_service(service: Machine) -> None:
    """Nobody else may write to them; who calls during a restart is served after it."""
    service.systemctl("start", UNIT)
    listed = service.run("stat", "--format=%n %U:%G %a", "/run/supervisord-llm/control.sock",
                         "/run/supervisord-llm/inference.sock").stdout.splitlines()  # fmt: skip
    assert listed == [
        "/run/supervisord-llm/control.sock root:llm-admin 660",
        "/run/supervisord-llm/inference.sock root:llm 660",
    ]
    with service.client("inference") as client:
        assert client.get("/api/v1/status").status_code == 404
        first = service.show("MainPID")
        service.systemctl("stop", UNIT)
        assert client.get("/livez").status_code == 200
    assert service.show("MainPID") != first


def test_a_daemon_that_hangs_is_replaced(service: Machine) -> None:
    """It no longer says that it lives; it is killed with its workers, and the next one serves."""
    service.drop_in("WatchdogSec=2s", "TimeoutAbortSec=100ms", "RestartSec=100ms")
    service.systemctl("start", UNIT)
    first, before = service.show("MainPID"), service.processes()
    service.systemctl("kill", "--kill-whom=main", "--signal=STOP", UNIT)
    service.wait("NRestarts", "1")
    service.wait("ActiveState", "active")
    assert service.show("MainPID") != first
    assert service.processes() & before == set()
    assert "Watchdog timeout" in service.log()
    with service.client() as client:
        assert generate(client, "x sim.tokens=3")[-1]["outcome"] == "completed"


def test_a_daemon_that_works_is_left_alone_by_the_watchdog(service: Machine) -> None:
    """It says that it lives often enough, with requests too."""
    service.drop_in("WatchdogSec=1s")
    service.systemctl("start", UNIT)
    with service.client() as client:
        assert generate(client, "x sim.tokens=150 sim.tps=50")[-1]["outcome"] == "completed"
    assert (service.show("NRestarts"), service.show("ActiveState")) == ("0", "active")


def test_a_killed_daemon_leaves_nothing_and_the_next_one_serves(service: Machine) -> None:
    """Not a worker that hears nothing of it, nor what it began elsewhere, is left in the group."""
    stubborn = '"sllm-sim-worker", "--ignore_sigterm", "--ignore_eof", "--spawn_escaped=1"'
    service.write(CONFIG, POOL.replace('"sllm-sim-worker"', stubborn))
    service.systemctl("start", UNIT)
    with service.client() as client:
        until(lambda: {each["state"] for each in workers(client)} == {"ready"}, service.log)
    before = service.processes()
    service.systemctl("kill", "--kill-whom=main", "--signal=KILL", UNIT)
    service.wait("NRestarts", "1")
    service.wait("ActiveState", "active")
    assert len(before) >= 7  # the daemon; of each slot a guardian, a worker and what that began
    assert service.processes() & before == set()
    with service.client() as client:
        assert generate(client, "x sim.tokens=3")[-1]["outcome"] == "completed"


def test_a_worker_that_takes_too_much_memory_is_killed_alone(service: Machine) -> None:
    """The kernel takes the one out whose group has reached its limit, and the daemon says so."""
    service.write(CONFIG, POOL + 'limits = { memory_hard = "64MiB" }\n')
    service.systemctl("start", UNIT)
    if not service.controls("memory"):
        pytest.skip("the memory controller is not on the cgroup v2 hierarchy")
    with service.client() as client:
        until(lambda: {each["state"] for each in workers(client)} == {"ready"}, service.log)
        leaks = "x sim.tokens=100000 sim.tps=10 sim.leak=100000000000"
        assert generate(client, leaks)[-1]["outcome"] == "failed"
        until(lambda: bool(service.journal(EVENT="worker.exited")), service.log)
        [exited] = service.journal(EVENT="worker.exited")
        assert exited["EXIT"] == "oom_killed"
    assert (service.show("NRestarts"), service.show("ActiveState")) == ("0", "active")


def test_the_journal_has_its_events_with_their_fields(service: Machine) -> None:
    """An operator finds by field what happened to a pool, a worker or a request."""
    service.systemctl("start", UNIT)
    with service.client() as client:
        made = str(generate(client, "x sim.tokens=3")[0]["id"])
    until(lambda: bool(service.journal(REQUEST=made, EVENT="request.finished")), service.log)
    [entry] = service.journal(REQUEST=made, EVENT="request.finished")
    assert (entry["POOL"], entry["PRIORITY"], entry["OUTCOME"]) == ("sim", "6", "completed")
    assert entry["_SYSTEMD_UNIT"] == UNIT
    assert {each["WORKER"] for each in service.journal(EVENT="worker.ready")} == {"sim.0", "sim.1"}
