"""The daemon as an operator runs it: a process with a socket, signals, and a state directory."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from supervisord_llm.host import tree
from tests.daemon.running import daemon, until
from tests.harness import QUICK, SCRIPTS, SECONDS, write_config


def alive(pids: list[int]) -> list[int]:
    """Those of the pids that are processes which still can run."""
    return [pid for pid in pids if (facts := tree.read(pid)) is not None and facts.living]


def test_it_serves_and_stops_in_order(tmp_path: Path) -> None:
    """Ready, a generation over the socket, SIGTERM, exit 0, socket and workers gone."""
    with daemon(tmp_path, workers=2) as running:
        body = {"pool": "sim", "prompt": "x sim.tokens=3"}
        reply = running.client.post("/api/v1/generate", json=body)
        lines = [json.loads(line) for line in reply.text.splitlines()]
        kinds = [line["event"] for line in lines]
        assert kinds == ["accepted", "started", "token", "token", "token", "finished"]
        assert lines[-1]["outcome"] == "completed"
        pids = running.worker_pids()
        assert len(alive(pids)) == 2
        running.process.terminate()
        assert running.process.wait(SECONDS) == 0
        assert alive(pids) == []
        assert not running.socket.exists()
        assert running.events("daemon.stopped")[0]["exit_code"] == 0


def test_a_client_may_keep_its_connection(tmp_path: Path) -> None:
    """A request that follows at once upon a reply is the next one, not a pipelined one."""
    with daemon(tmp_path) as running:
        statuses = [running.client.get("/livez").status_code for _ in range(300)]
        assert statuses == [200] * 300
        assert running.events("http.refused") == []


def test_hints_tell_what_to_try(tmp_path: Path) -> None:
    """With --hints the daemon says, once it serves, where it is and what to type."""
    config = write_config(tmp_path)
    log = tmp_path / "log"
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [SCRIPTS / "supervisord-llm", "run", "--hints", "--config", config], stderr=stderr
        )
    until(lambda: "Ctrl-C stops the daemon" in log.read_text(), "the hints")
    process.terminate()
    assert process.wait(SECONDS) == 0
    text = log.read_text()
    assert f"It serves, on {tmp_path}/control.sock" in text
    assert all(command in text for command in ("llmctl generate", "llmctl workers", "events -f"))


def test_its_workers_die_with_it(tmp_path: Path) -> None:
    """SIGKILL of the daemon: workers are gone at once, and the next start serves."""
    with daemon(tmp_path, workers=2) as running:
        pids = running.worker_pids()
        running.process.kill()
        running.process.wait(SECONDS)
        until(lambda: alive(pids) == [], "the end of the workers")
    with daemon(tmp_path, workers=2) as running:
        assert running.client.get("/readyz").status_code == 200


def test_nothing_outlives_a_killed_daemon(tmp_path: Path) -> None:
    """SIGKILL under load: workers that hear nothing and what left them, within two seconds."""
    with daemon(tmp_path, "--ignore_sigterm --ignore_eof", workers=2) as running:
        begins = "x sim.tokens=1 sim.spawn_detached=1 sim.spawn_escaped=1 sim.spawn_stubborn=1"
        runs = {"pool": "sim", "prompt": "x sim.tokens=100000 sim.tps=50 sim.ignore_cancel"}
        for _ in range(2):
            running.client.post("/api/v1/generate", json={"pool": "sim", "prompt": begins})
        with ExitStack() as stack:
            for _ in range(2):
                reply = running.client.stream("POST", "/api/v1/generate", json=runs)
                lines = stack.enter_context(reply).iter_lines()
                while json.loads(next(lines))["event"] != "token":
                    pass
            left = list(tree.descendants(running.process.pid, tree.scan()))
            assert len(left) >= 2 * 2 + 2 * 3  # guardians and workers, and what the prompts began
            running.process.kill()
            killed_at = time.monotonic()
            running.process.wait(SECONDS)
            until(lambda: alive(left) == [], "the end of everything")
            assert time.monotonic() - killed_at < 2.0
    with daemon(tmp_path, workers=2) as running:
        assert running.events("daemon.warning") == []


def test_a_killed_guardian_costs_its_own_worker_and_nothing_else(tmp_path: Path) -> None:
    """Its request fails typed, what the worker had begun goes with it, and the slot comes back."""
    with daemon(tmp_path, workers=2) as running:
        body = {"pool": "sim", "prompt": "x sim.tokens=100000 sim.tps=50 sim.spawn_escaped=1"}
        neighbour = {"pool": "sim", "prompt": "y sim.tokens=50 sim.tps=100"}
        with (
            running.client.stream("POST", "/api/v1/generate", json=body) as reply,
            running.client.stream("POST", "/api/v1/generate", json=neighbour) as other,
        ):
            lines = reply.iter_lines()
            worker = json.loads(next(line for line in lines if '"started"' in line))["worker"]
            while json.loads(next(lines))["event"] != "token":
                pass
            facts = tree.read(running.client.get(f"/api/v1/workers/{worker}").json()["pid"])
            assert facts is not None
            left = [facts.ppid, *tree.descendants(facts.ppid, tree.scan())]
            assert len(left) == 3
            os.kill(facts.ppid, signal.SIGKILL)
            last = [json.loads(line) for line in lines][-1]
            assert (last["outcome"], last["error"]["code"]) == ("failed", "worker_exited")
            assert json.loads(list(other.iter_lines())[-1])["outcome"] == "completed"
        running.wait("worker.ready", count=3)
        assert running.client.get(f"/api/v1/workers/{worker}").json()["generation"] == 2
        assert alive(left) == []


def test_the_next_start_ends_what_a_killed_daemon_and_guardian_left(tmp_path: Path) -> None:
    """A descendant in a session of its own survives both, and is ended before any spawn."""
    with daemon(tmp_path) as running:
        body = {"pool": "sim", "prompt": "x sim.tokens=1 sim.spawn_detached=1"}
        running.client.post("/api/v1/generate", json=body)
        [pid] = running.worker_pids()
        left = list(tree.descendants(pid, tree.scan()))
        assert len(left) == 1
        record = tmp_path / "state" / "workers" / "sim.0.json"
        until(lambda: str(left[0]) in record.read_text(), "the descendant in the record")
        worker = tree.read(pid)
        assert worker is not None
        os.kill(worker.ppid, signal.SIGSTOP)
        running.process.kill()
        running.process.wait(SECONDS)
        os.kill(worker.ppid, signal.SIGKILL)
        until(lambda: alive([pid]) == [], "the end of the worker")
        assert alive(left) == left
    with daemon(tmp_path) as running:
        assert alive(left) == []
        [warning] = [
            event for event in running.events("daemon.warning") if event["topic"] == "leftovers"
        ]
        assert str(left[0]) in str(warning["message"])
        # Whatever it finds on the way, these are its first words.
        assert running.events("daemon.started")[0]["seq"] == 1


def test_a_second_daemon_on_the_same_socket_is_refused(tmp_path: Path) -> None:
    """It exits at once and says whose the socket is; the first one serves on."""
    with daemon(tmp_path) as running:
        other = tmp_path / "other"
        other.mkdir()
        config = write_config(other)
        config.write_text(config.read_text().replace(f"{other}/control.sock", str(running.socket)))
        second = subprocess.run(
            [SCRIPTS / "supervisord-llm", "run", "--config", config],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert second.returncode == 1
        assert f"another daemon (pid {running.process.pid}) serves it" in second.stderr
        assert running.client.get("/livez").status_code == 200


def test_a_second_signal_ends_the_drain(tmp_path: Path) -> None:
    """The running request is cancelled by the shutdown, and gets its record."""
    with daemon(tmp_path) as running:
        body = {"pool": "sim", "prompt": "x sim.tokens=100000 sim.tps=50"}
        with running.client.stream("POST", "/api/v1/generate", json=body) as reply:
            lines = reply.iter_lines()
            while json.loads(next(lines))["event"] != "token":
                pass
            running.process.send_signal(signal.SIGTERM)
            running.wait("daemon.stopping")
            assert running.client.get("/readyz").status_code == 503
            running.process.send_signal(signal.SIGINT)
            last = [json.loads(line) for line in lines][-1]
        assert (last["event"], last["outcome"], last["cancelled_by"]) == (
            "finished",
            "cancelled",
            "shutdown",
        )
        assert running.process.wait(SECONDS) == 0


def test_a_worker_that_is_killed_leaves_the_neighbour_alone(tmp_path: Path) -> None:
    """One record for its own request; the other slot's request completes; the slot comes back."""
    with daemon(tmp_path, workers=2) as running:
        body = {"pool": "sim", "prompt": "x sim.tokens=100000 sim.tps=50"}
        neighbour = {"pool": "sim", "prompt": "y sim.tokens=50 sim.tps=100"}
        with (
            running.client.stream("POST", "/api/v1/generate", json=body) as reply,
            running.client.stream("POST", "/api/v1/generate", json=neighbour) as other,
        ):
            lines = reply.iter_lines()
            while (started := json.loads(next(lines)))["event"] != "started":
                pass
            worker = running.client.get(f"/api/v1/workers/{started['worker']}").json()
            os.kill(worker["pid"], signal.SIGKILL)
            last = [json.loads(line) for line in lines][-1]
            assert (last["outcome"], last["error"]["code"]) == ("failed", "worker_exited")
            assert json.loads(list(other.iter_lines())[-1])["outcome"] == "completed"
        running.wait("worker.ready", count=3)
        again = running.client.get(f"/api/v1/workers/{started['worker']}").json()
        assert (again["generation"], again["last_exit"]["exit"]) == (2, "signal:SIGKILL")


def test_hangup_without_a_terminal_reads_the_configuration_again(tmp_path: Path) -> None:
    """What changed is put into force and told; an invalid file changes nothing and says why."""
    with daemon(tmp_path) as running:
        path = tmp_path / "daemon.toml"
        before = path.read_text()
        path.write_text(before.replace("workers = 1", "workers = 2"))
        running.process.send_signal(signal.SIGHUP)
        reloaded = running.wait("config.reloaded")
        assert reloaded["differences"] == ["pool sim: workers 1 -> 2"]
        assert "sim.1" == running.wait("worker.ready", 2)["worker"]
        path.write_text(before.replace("workers = 1", "workers = 0"))
        running.process.send_signal(signal.SIGHUP)
        assert "pool.sim.workers" in str(running.wait("config.rejected")["error"])
        workers = running.client.get("/api/v1/workers").json()["workers"]
        assert ["sim.0", "sim.1"] == [each["slot"] for each in workers]


def test_a_parked_pool_does_not_keep_the_daemon_from_serving(tmp_path: Path) -> None:
    """The first verdict is in: live, not ready, and the reason can be read."""
    settings = QUICK.replace('"200ms" }', '"200ms", max_restarts = 1 }')
    with daemon(tmp_path, "--exit 9 --during load", settings=settings) as running:
        assert running.client.get("/livez").status_code == 200
        assert running.client.get("/readyz").status_code == 503
        assert running.client.get("/health").status_code == 503
        [worker] = running.client.get("/api/v1/workers").json()["workers"]
        assert (worker["state"], worker["last_exit"]["exit"]) == ("parked", "exit:9")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_daemon_stops_at_once(tmp_path: Path, number: signal.Signals) -> None:
    """Nothing to drain: exit 0 without waiting for any grace."""
    with daemon(tmp_path) as running:
        running.process.send_signal(number)
        assert running.process.wait(SECONDS) == 0
        [exited] = running.events("worker.exited")
        assert (exited["exit"], exited["expected"]) == ("exit:0", True)
