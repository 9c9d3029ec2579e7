"""The unit under a real systemd: when it is ready, what it runs as, how it reloads and stops."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import httpx

from tests.daemon.running import until
from tests.harness import SECONDS
from tests.systemd.conftest import POOL
from tests.systemd.machine import CONFIG, SOCKETS, UNIT, Machine


def generate(client: httpx.Client, prompt: str) -> list[dict[str, object]]:
    """The lines of a generation's stream."""
    body = {"pool": "sim", "prompt": prompt}
    answer = client.post("/api/v1/generate", json=body, timeout=2 * SECONDS)
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


def test_it_is_active_when_its_workers_have_loaded(service: Machine) -> None:
    """Until then it is starting, and can be asked; then its status line says that they serve."""
    service.write(CONFIG, POOL.replace('"sllm-sim-worker"', '"sllm-sim-worker", "--load_ms=1500"'))
    service.systemctl("start", "--no-block", UNIT)
    with service.client() as client:
        until(lambda: answers(client, "/livez"), service.log)
        assert client.get("/readyz").status_code == 503
        assert service.show("ActiveState") == "activating"
        service.wait("ActiveState", "active")
        assert client.get("/readyz").status_code == 200
    until(lambda: "2 of 2" in service.show("StatusText"), lambda: service.show("StatusText"))


def test_a_pool_that_gives_up_leaves_it_active(service: Machine) -> None:
    """Operators can look at it: it serves, is not ready, and its status line says why."""
    parks = POOL.replace('["sllm-sim-worker"]', '["sllm-sim-worker", "--not_ready"]')
    service.write(CONFIG, parks.replace('"200ms" }', '"200ms", max_restarts = 1 }'))
    service.systemctl("start", UNIT)
    assert service.show("ActiveState") == "active"
    with service.client() as client:
        assert client.get("/readyz").status_code == 503
        assert client.get("/livez").status_code == 200
    until(lambda: "parked" in service.show("StatusText"), lambda: service.show("StatusText"))
    assert "sim" in service.show("StatusText")


def test_it_runs_unprivileged_with_a_group_for_each_worker(service: Machine) -> None:
    """Nobody has root, and nothing of what systemd gave to the daemon reaches a worker."""
    service.systemctl("start", UNIT)
    with service.client() as client:
        until(lambda: {each["state"] for each in workers(client)} == {"ready"}, service.log)
    main = int(service.show("MainPID"))
    assert main in service.processes("daemon")
    uid = service.run("id", "-u", "supervisord-llm").stdout.strip()
    for pid in service.processes():
        lines = service.fact(pid, "status").splitlines()
        status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        assert status["Uid"].split() == [uid] * 4
        assert int(status["CapEff"], 16) == 0
        if pid != main:
            environ = service.fact(pid, "environ")
            given = ("NOTIFY_SOCKET=", "LISTEN_", "WATCHDOG_", "RUNTIME_DIRECTORY=")
            assert [name for name in given if name in environ] == []
    for slot in ("sim.0", "sim.1"):
        held = service.processes(f"worker.{slot}.1")
        assert "sllm-sim-worker\n" in {service.fact(pid, "comm") for pid in held}, service.log()


def test_a_good_file_is_taken_by_a_reload_and_a_bad_one_is_not(service: Machine) -> None:
    """`systemctl reload` fails with an invalid file, and the service goes on as it was."""
    service.systemctl("start", UNIT)
    main = service.show("MainPID")
    service.write(CONFIG, POOL.replace("workers = 2", "workers = 3"))
    service.systemctl("reload", UNIT)
    with service.client() as client:
        until(lambda: len(workers(client)) == 3, "the third worker")
        service.write(CONFIG, POOL.replace("workers = 2", "wrokers = 4"))
        refused = service.systemctl("reload", UNIT, check=False)
        assert refused.returncode != 0
        assert "wrokers" in service.log()
        assert len(workers(client)) == 3
    assert (service.show("ActiveState"), service.show("MainPID")) == ("active", main)


def test_stopping_lets_requests_end(service: Machine) -> None:
    """What can end within the drain does, what cannot is cancelled; nothing fails."""
    service.write(CONFIG, POOL.replace('shutdown_drain = "10s"', 'shutdown_drain = "2s"'))
    service.systemctl("start", UNIT)
    with service.client() as client, ThreadPoolExecutor(2) as pool:
        short = pool.submit(generate, client, "x sim.tokens=50 sim.tps=50")
        endless = pool.submit(generate, client, "x sim.tokens=100000 sim.tps=50")
        until(lambda: in_flight(client) == 2, "two running requests")
        service.systemctl("stop", UNIT)
        assert short.result(SECONDS)[-1]["outcome"] == "completed"
        last = endless.result(SECONDS)[-1]
        assert (last["event"], last["outcome"]) == ("finished", "cancelled")
    assert (service.show("ActiveState"), service.show("Result")) == ("inactive", "success")
    assert service.processes() == set()


def test_an_invalid_configuration_is_not_tried_again(service: Machine) -> None:
    """It says what is wrong, with the status that means so, and that is all."""
    service.write(CONFIG, POOL + "\n[pool.sim.queue]\nsize = 3\n")
    assert service.systemctl("start", UNIT, check=False).returncode != 0
    assert service.wait("ActiveState", "failed") == "failed"
    assert (service.show("ExecMainStatus"), service.show("NRestarts")) == ("78", "0")


def test_a_start_that_always_fails_is_given_up(service: Machine) -> None:
    """What the machine does not allow is tried a few times only."""
    service.drop_in("RestartSec=50ms")
    service.write(CONFIG, POOL.replace("[daemon]", '[daemon]\nstate_dir = "/proc/nowhere"'))
    service.systemctl("start", UNIT, check=False)
    assert service.wait("ActiveState", "failed") == "failed"
    assert service.show("NRestarts") == "5"
    assert service.show("ExecMainStatus") == "1"


def test_systemd_has_nothing_to_say_against_the_units(service: Machine) -> None:
    """`verify` is silent, and `security` finds little to attack."""
    units = [f"/etc/systemd/system/{unit}" for unit in (UNIT, *SOCKETS)]
    verified = service.run("systemd-analyze", "verify", "--man=no", *units)
    assert verified.stdout + verified.stderr == ""
    service.run("systemd-analyze", "security", "--no-pager", "--threshold=25", UNIT)


def test_the_drop_in_for_gpus_is_valid_on_a_machine_without_one(service: Machine) -> None:
    """Nobody has to edit it before the service starts with it."""
    gpu = (service.root / "opt/sllm/share/supervisord-llm/gpu.conf").read_text()
    service.drop_in(gpu)
    service.systemctl("start", UNIT)
    assert (service.show("ActiveState"), service.show("PrivateDevices")) == ("active", "no")
    assert "/dev/kfd" in service.show("DeviceAllow")


def answers(client: httpx.Client, path: str) -> bool:
    """Whether something is there and says that it lives."""
    try:
        return client.get(path).status_code == 200
    except httpx.TransportError:
        return False


def workers(client: httpx.Client) -> list[dict[str, object]]:
    """The workers as the service shows them."""
    found: list[dict[str, object]] = client.get("/api/v1/workers").json()["workers"]
    return found


def in_flight(client: httpx.Client) -> int:
    """How many requests workers are at."""
    states = [each["state"] for each in client.get("/api/v1/requests").json()["requests"]]
    return states.count("streaming")
