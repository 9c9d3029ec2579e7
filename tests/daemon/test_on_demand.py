"""A whole daemon whose models are loaded on demand, some of them on one device."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import TEST_VARIABLE
from tests.daemon.running import Running, daemon
from tests.harness import QUICK, SECONDS

DEMAND = QUICK + 'load = "on_demand"\n'
ASKED = {"pool": "sim", "prompt": "x sim.tokens=1"}


@pytest.fixture
def unloaded(tmp_path: Path) -> Iterator[Running]:
    """A daemon that has loaded nothing."""
    with daemon(tmp_path, "--load_ms 100", settings=DEMAND) as running:
        yield running


def last_line(running: Running, body: dict[str, str]) -> str:
    """The end of an answer."""
    return running.client.post("/api/v1/generate", json=body).text.splitlines()[-1]


def test_a_daemon_without_a_model_is_ready(unloaded: Running) -> None:
    """Every page that says so agrees, and none of them has loaded one."""
    assert unloaded.client.get("/readyz?verbose=true").status_code == 200
    health = unloaded.client.get("/health").json()
    assert (health["status"], health["pools"]["sim"]["status"]) == ("healthy", "healthy")
    assert unloaded.client.get("/api/v1/status").json()["state"] == "running"
    assert unloaded.client.get("/livez").status_code == 200
    assert unloaded.events("worker.spawned") == []
    assert '"completed"' in last_line(unloaded, ASKED)
    assert len(unloaded.events("worker.spawned")) == 1


def test_a_load_is_no_reason_to_send_nobody(tmp_path: Path) -> None:
    """Ready before, meanwhile and afterwards; a signal ends it in the middle, and in order."""
    with (
        daemon(tmp_path, "--load_ms 60000", settings=DEMAND) as running,
        running.client.stream("POST", "/api/v1/generate", json=ASKED) as reply,
    ):
        running.wait("worker.spawned")
        assert running.client.get("/readyz").status_code == 200
        running.process.terminate()
        *_, last = reply.iter_lines()
        assert '"cancelled_by":"shutdown"' in last
        assert running.process.wait(SECONDS) == 0


def test_the_usual_model_is_loaded_before_the_daemon_is_ready(tmp_path: Path) -> None:
    """Of a group, that is the eager one; the other is not, and takes over when it is asked for."""
    guest = (
        f'[pool.guest]\ncommand = ["sllm-sim-worker"]\npass_env = ["{TEST_VARIABLE}"]\n'
        f'exclusive = "gpu"\n{DEMAND}'
    )
    settings = f'exclusive = "gpu"\n{QUICK}{guest}'
    with daemon(tmp_path, "--load_ms 200", settings=settings) as running:
        names = [
            line.split('"event":"')[1].split('"')[0]
            for line in running.log.read_text().splitlines()
        ]
        assert names.index("worker.ready") < names.index("daemon.ready")
        assert [each["pool"] for each in running.events("worker.spawned")] == ["sim"]
        assert '"completed"' in last_line(running, ASKED | {"pool": "guest"})
        assert [each["pool"] for each in running.events("worker.spawned")] == ["sim", "guest"]
        assert running.client.get("/readyz").status_code == 200
