"""A pool whose workers cannot work is parked and says why, and the pool beside it does not notice.

The neighbour is a request on another pool that runs while the bad slot is resumed and fails again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.daemon.running import Running, running
from tests.harness import QUICK, write_config

BAD = """
[pool.bad]
command = {command}
workers = 1
required = false
load_limits = {{ timeout = "1s", stall = "1s" }}
cancel = {{ terminate_grace = "500ms" }}
restart = {{ backoff_initial = "10ms", backoff_max = "10ms", max_restarts = 1 }}
"""


def text_file(folder: Path) -> Path:
    """A file that is no program, and no model either."""
    path = folder / "notes.txt"
    path.write_text("not what it was taken for")
    return path


@contextmanager
def beside_a_good_pool(folder: Path, command: list[str]) -> Iterator[Running]:
    """Run a daemon with a pool of these workers and a good one; the bad slot is parked."""
    config = write_config(folder, settings=QUICK)
    config.write_text(config.read_text() + BAD.format(command=json.dumps(command)))
    with running(folder, config) as it:
        it.wait("worker.parked")
        yield it


@pytest.mark.parametrize(
    ("command", "reason", "exit_", "said"),
    [
        pytest.param(
            ["/no/such/worker"],
            "unexpected_exit",
            "exit:127",
            "cannot execute '/no/such/worker': No such file or directory",
            id="missing",
        ),
        pytest.param(
            ["{text}"],
            "unexpected_exit",
            "exit:126",
            "cannot execute '{text}': Permission denied",
            id="not executable",
        ),
        pytest.param(
            ["/bin/sh", "-c", "echo the disk is on fire >&2; exit 3"],
            "unexpected_exit",
            "exit:3",
            "the disk is on fire",
            id="exits at once",
        ),
        pytest.param(
            ["sllm-sim-worker", "--never_ready"],
            "load_timeout",
            "signal:SIGTERM",
            "not ready after 1",
            id="never ready",
        ),
        pytest.param(
            ["sllm-sim-worker", "--bad_ready", "not_json"],
            "protocol_error",
            "signal:SIGTERM",
            "not JSON: ready",
            id="nonsense",
        ),
        pytest.param(
            ["sllm-llama-worker", "--model", "/no/such.gguf"],
            "unexpected_exit",
            "exit:1",
            "cannot load model '/no/such.gguf': No such file or directory; give --model the path "
            "of a GGUF file",
            id="no model",
            marks=pytest.mark.model,
        ),
        pytest.param(
            ["sllm-llama-worker", "--model", "{text}"],
            "unexpected_exit",
            "exit:1",
            "cannot load model '{text}': it is not a GGUF file",
            id="not a model",
            marks=pytest.mark.model,
        ),
    ],
)
def test_a_worker_that_cannot_work(
    tmp_path: Path, command: list[str], reason: str, exit_: str, said: str
) -> None:
    """Parked once, with reason, exit and words for whoever looks; its requests are refused."""
    text = text_file(tmp_path)
    said = said.format(text=text)
    argv = [part.format(text=text) for part in command]
    with beside_a_good_pool(tmp_path, argv) as it:
        body = {"pool": "sim", "prompt": "y sim.tokens=100 sim.tps=100"}
        with it.client.stream("POST", "/api/v1/generate", json=body) as reply:
            lines = reply.iter_lines()
            while json.loads(next(lines))["event"] != "token":
                pass
            assert 202 == it.client.post("/api/v1/workers/bad.0/resume").status_code
            again = it.wait("worker.parked", count=2)
            neighbour = [json.loads(line) for line in lines]
        worker = it.client.get("/api/v1/workers/bad.0").json()
        log = it.client.get("/api/v1/workers/bad.0/logs").text
        refused = it.client.post("/api/v1/generate", json={"pool": "bad", "prompt": "x"})
        ready = it.client.get("/readyz?verbose")
        good = it.client.get("/api/v1/workers/sim.0").json()
        troubles = [*it.events("worker.quarantined"), *it.events("worker.exited")]

    assert ("parked", reason, None) == (worker["state"], worker["reason"], worker["pid"])
    assert exit_ == worker["last_exit"]["exit"]
    words = [*worker["last_exit"]["last_lines"], *(str(each.get("detail")) for each in troubles)]
    assert any(said in line for line in words), words
    assert all(line in log for line in map(as_json, worker["last_exit"]["last_lines"]))
    assert ((reason, exit_), worker["last_exit"]["last_lines"]) == (
        (again["reason"], again["exit"]),
        again.get("last_lines", []),
    )

    assert (503, "pool_unavailable") == (refused.status_code, refused.json()["error"]["code"])
    message = refused.json()["error"]["message"]
    assert f"no slot of pool 'bad' can serve (bad.0 parked ({reason}, {exit_}))" in message
    assert "an operator has to see to it with `llmctl workers` and `llmctl resume`" in message

    assert ("finished", "completed") == (neighbour[-1]["event"], neighbour[-1]["outcome"])
    assert 100 == neighbour[-1]["usage"]["generated_tokens"]
    assert (1, 0) == (good["generation"], good["restarts"])
    assert 200 == ready.status_code
    assert f"(bad.0 parked ({reason}, {exit_}))" in ready.text
    assert {"bad.0"} == {each["worker"] for each in troubles if not each.get("expected")}


def as_json(line: str) -> str:
    """A line as it stands in a JSON string."""
    return json.dumps(line, ensure_ascii=False)[1:-1]


@pytest.mark.parametrize(
    ("command", "fault"),
    [
        ("/no/such/worker", "there is no such file"),
        ("{text}", "it is not an executable file"),
    ],
)
def test_what_cannot_be_run_is_warned_of_at_the_start(
    tmp_path: Path, command: str, fault: str
) -> None:
    """One event before anything is spawned, with what to do."""
    program = command.format(text=text_file(tmp_path))
    with beside_a_good_pool(tmp_path, [program]) as it:
        [warning] = [each for each in it.events("daemon.warning") if each["topic"] == "command"]
    assert f"cannot run {program} for pool bad: {fault}" == warning["message"]
    assert (
        "install the worker (ours: `make build`), or correct the pool's command"
        == warning["remedy"]
    )
