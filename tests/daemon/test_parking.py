"""A parked slot stays parked over a restart of the daemon, until somebody has seen to it."""

from __future__ import annotations

import json
import os
import signal
from datetime import datetime, timedelta
from pathlib import Path

from tests.daemon.running import Running, running, until
from tests.harness import QUICK, SCRIPTS, SECONDS, write_command

PARKS = QUICK.replace('"200ms" }', '"200ms", max_restarts = 1 }')
SIM = SCRIPTS / "sllm-sim-worker"


def broken(folder: Path, *, slot: str = "*", settings: str = PARKS, workers: int = 1) -> Path:
    """A configuration whose slots of that name lack something that is called ``cure``."""
    script = folder / "worker.sh"
    script.write_text(
        f'case "$SUPERVISORD_LLM_SLOT" in {slot}/*) [ -e {folder}/cure ] ||\n'
        f"{{ echo 'cannot find cure' >&2; exit 9; }};; esac; exec {SIM}\n"
    )
    return write_command(folder, ["sh", str(script)], workers, settings)


def end(daemon: Running, number: signal.Signals) -> None:
    """End a daemon in order, or at once."""
    daemon.process.send_signal(number)
    assert daemon.process.wait(SECONDS) == (0 if number is signal.SIGTERM else -number)


def slot(daemon: Running, name: str = "sim.0") -> dict[str, object]:
    """What the daemon says of a slot."""
    answer: dict[str, object] = daemon.client.get(f"/api/v1/workers/{name}").json()
    return answer


def pids(daemon: Running) -> dict[str, int]:
    """The workers' processes by slot, as far as there are any."""
    workers = daemon.client.get("/api/v1/workers").json()["workers"]
    return {worker["slot"]: worker["pid"] for worker in workers}


def record(folder: Path, name: str = "sim.0") -> Path:
    """The file that keeps a slot parked."""
    return folder / "state" / "parked" / f"{name}.json"


def test_a_parked_slot_stays_parked_with_its_reason(tmp_path: Path) -> None:
    """Nothing is started after a kill or a stop; it is told why, since when, and what it said."""
    config = broken(tmp_path, settings=PARKS + 'env = { KEY = "s3cret" }\n')
    with running(tmp_path, config) as daemon:
        parked = slot(daemon)
        [first] = daemon.events("worker.parked")
        assert (parked["state"], parked["reason"]) == ("parked", "unexpected_exit")
        content = record(tmp_path).read_text()
        assert (len(json.loads(content)["launch_digest"]), "s3cret" in content) == (64, False)
        end(daemon, signal.SIGKILL)
    for _ in range(2):
        with running(tmp_path, config) as daemon:
            assert daemon.events("worker.spawned") == []
            [told] = daemon.events("worker.parked")
            same = ("reason", "exit", "restarts", "last_lines")
            assert [first[key] for key in same] == [told[key] for key in same]
            again = slot(daemon)
            assert (again["state"], again["reason"]) == ("parked", "unexpected_exit")
            begun = [datetime.fromisoformat(str(each["since"])) for each in (parked, again)]
            assert abs(begun[1] - begun[0]) < timedelta(seconds=1)
            last = again["last_exit"]
            assert isinstance(last, dict)
            assert (last["exit"], last["last_lines"]) == ("exit:9", ["cannot find cure"])
            assert daemon.client.get("/readyz").status_code == 503
            refused = daemon.client.post(
                "/api/v1/generate", json={"pool": "sim", "prompt": "x sim.tokens=1"}
            )
            assert refused.status_code == 503
            assert "sim.0 parked (unexpected_exit, exit:9)" in refused.text
            end(daemon, signal.SIGTERM)


def test_resume_is_remembered_as_well(tmp_path: Path) -> None:
    """Once the cause is mended and an operator has said so, the next start begins as usual."""
    config = broken(tmp_path)
    with running(tmp_path, config) as daemon:
        end(daemon, signal.SIGKILL)
    (tmp_path / "cure").touch()
    with running(tmp_path, config) as daemon:
        assert slot(daemon)["state"] == "parked"
        assert daemon.client.post("/api/v1/workers/sim.0/resume").status_code == 202
        daemon.wait("worker.resumed")
        daemon.wait("worker.ready")
        assert not record(tmp_path).exists()
        end(daemon, signal.SIGKILL)
    with running(tmp_path, config) as daemon:
        assert slot(daemon)["state"] == "ready"
        assert daemon.events("worker.parked") == []


def test_a_slot_that_fails_again_after_its_resume_is_parked_anew(tmp_path: Path) -> None:
    """It gets all of its attempts again, and the newest reason counts."""
    config = broken(tmp_path)
    with running(tmp_path, config) as daemon:
        end(daemon, signal.SIGTERM)
    with running(tmp_path, config) as daemon:
        daemon.client.post("/api/v1/pools/sim/resume")
        daemon.wait("worker.parked", 2)  # the first one is told at the start
        assert len(daemon.events("worker.spawned")) == 2
        end(daemon, signal.SIGKILL)
    with running(tmp_path, config) as daemon:
        assert slot(daemon)["state"] == "parked"


def test_another_command_is_tried_and_other_settings_are_not(tmp_path: Path) -> None:
    """What it was parked for is gone with the command, not with the length of a queue."""
    with running(tmp_path, broken(tmp_path)) as daemon:
        end(daemon, signal.SIGTERM)
    with running(tmp_path, broken(tmp_path, settings=PARKS + "queue.max_queued = 7\n")) as daemon:
        assert slot(daemon)["state"] == "parked"
        end(daemon, signal.SIGTERM)
    mended = write_command(tmp_path, ["sllm-sim-worker"], 1, PARKS)
    with running(tmp_path, mended) as daemon:
        assert slot(daemon)["state"] == "ready"
        assert not record(tmp_path).exists()


def test_a_command_that_is_changed_while_the_daemon_runs_is_tried(tmp_path: Path) -> None:
    """SIGHUP with a mended file: the parked slot comes into service, and is not remembered."""
    config = broken(tmp_path)
    with running(tmp_path, config) as daemon:
        end(daemon, signal.SIGTERM)
    with running(tmp_path, config) as daemon:
        write_command(tmp_path, ["sllm-sim-worker"], 1, PARKS)
        daemon.process.send_signal(signal.SIGHUP)
        daemon.wait("worker.ready")
        assert slot(daemon)["state"] == "ready"
        assert not record(tmp_path).exists()


def test_a_slot_that_took_the_place_of_another_stays_parked(tmp_path: Path) -> None:
    """A rolling reload has moved the pool to sim.1; after the restart its only slot is sim.0."""
    config = broken(tmp_path)
    (tmp_path / "cure").touch()
    with running(tmp_path, config) as daemon:
        daemon.client.post("/api/v1/pools/sim/reload")
        until(lambda: set(pids(daemon)) == {"sim.1"}, "the end of the reload")
        (tmp_path / "cure").unlink()
        os.kill(pids(daemon)["sim.1"], signal.SIGKILL)
        daemon.wait("worker.parked")
        end(daemon, signal.SIGKILL)
    with running(tmp_path, config) as daemon:
        assert slot(daemon)["state"] == "parked"
        assert (record(tmp_path).exists(), record(tmp_path, "sim.1").exists()) == (True, False)


def test_a_slot_that_is_scaled_away_is_forgotten(tmp_path: Path) -> None:
    """The parked one goes first, and one that gets its name later has its attempts."""
    config = broken(tmp_path, slot="sim.1", workers=2)
    with running(tmp_path, config) as daemon:
        daemon.wait("worker.parked")
        assert record(tmp_path, "sim.1").exists()
        daemon.client.post("/api/v1/pools/sim/scale", json={"workers": 1})
        until(lambda: not record(tmp_path, "sim.1").exists(), "the end of the record")
        assert slot(daemon)["state"] == "ready"
        (tmp_path / "cure").touch()
        daemon.client.post("/api/v1/pools/sim/scale", json={"workers": 2})
        until(lambda: slot(daemon, "sim.1")["state"] == "ready", "the second slot")
        end(daemon, signal.SIGKILL)


def test_a_record_that_is_torn_parks_nothing(tmp_path: Path) -> None:
    """It is told of and removed, and its slot starts."""
    config = broken(tmp_path)
    (tmp_path / "cure").touch()
    record(tmp_path).parent.mkdir(parents=True, mode=0o700)
    record(tmp_path).write_text('{"reason": "unexp')
    with running(tmp_path, config) as daemon:
        assert slot(daemon)["state"] == "ready"
        [warning] = [
            event for event in daemon.events("daemon.warning") if event["topic"] == "state_dir"
        ]
        message = str(warning["message"])
        assert message.startswith(f"cannot read {record(tmp_path)}: ")
        assert message.endswith("it was removed, its slot starts as if it had not been parked")
        assert not record(tmp_path).exists()
