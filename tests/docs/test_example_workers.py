"""The workers of the documentation, built as it says, served by the daemon."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scripts.build_native import configure_and_build
from scripts.cache import locked
from scripts.sources import ROOT, llama_source
from scripts.toolchain import find_toolchain
from supervisord_llm.wire.messages import (
    Done,
    Failed,
    Generate,
    Message,
    ProbeAck,
    Ready,
    SessionDone,
    SessionRefused,
    Tokens,
)
from supervisord_llm.wire.serial import SerialConnection
from tests.daemon.running import Running, running
from tests.harness import QUICK, write_command

PAGE = ROOT / "docs" / "write-a-worker.md"


@pytest.fixture(scope="session")
def echo_worker() -> Path:
    """The C++ example, built as a project of its own; only what changed is compiled again."""
    tree = ROOT / "build" / "echo"
    with locked(ROOT / "build" / "echo.lock"):
        configure_and_build(
            "building the example worker",
            ROOT / "native" / "examples" / "echo",
            tree,
            [
                "-DCMAKE_BUILD_TYPE=Debug",
                "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror",
                f"-DSLLM_JSON_INCLUDE={llama_source() / 'vendor'}",
            ],
            find_toolchain(),
            name="echo",
            target="echo-worker",
        )
    return tree / "echo-worker"


@pytest.fixture
def python_worker(tmp_path: Path) -> list[str]:
    """The command of the first Python example."""
    return from_page(tmp_path, 0)


@pytest.fixture
def keeper(tmp_path: Path) -> list[str]:
    """The command of the second one, which keeps sessions."""
    return from_page(tmp_path, 1)


def from_page(folder: Path, number: int) -> list[str]:
    """The command of a Python example, taken from the page."""
    found = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert 2 == len(found)
    path = folder / "worker.py"
    path.write_text(found[number])
    return [sys.executable, str(path)]


def generate(daemon: Running, **body: object) -> tuple[str, dict[str, Any]]:
    """Send a request and read to its end: the text and the last line."""
    reply = daemon.client.post("/api/v1/generate", json={"pool": "sim", **body})
    lines = [json.loads(line) for line in reply.text.splitlines()]
    return "".join(line["text"] for line in lines if line["event"] == "token"), lines[-1]


def cancel_at_the_first_token(daemon: Running, prompt: str) -> dict[str, Any]:
    """Begin a long answer, cancel it once it is under way, and return its last line."""
    body = {"pool": "sim", "prompt": prompt}
    with daemon.client.stream("POST", "/api/v1/generate", json=body) as reply:
        lines = (json.loads(line) for line in reply.iter_lines())
        id_ = next(lines)["id"]
        next(line for line in lines if line["event"] == "token")
        daemon.client.post(f"/api/v1/requests/{id_}/cancel")
        finished: dict[str, Any] = list(lines)[-1]
    return finished


def test_the_example_engine_serves(echo_worker: Path, tmp_path: Path) -> None:
    """It offers all that the runtime has, and echoes text and messages, characters whole."""
    with running(tmp_path, write_command(tmp_path, [str(echo_worker)], 1, QUICK)) as daemon:
        (ready,) = daemon.events("worker.ready")
        assert "serial+cancel" == ready["dialect"]
        offered = ["ping", "heartbeat", "cancel_prefill", "cancel_ids", "model"]
        assert offered == ready["extensions"]

        text, finished = generate(daemon, prompt="héllo €")
        assert ("héllo €", "completed", "stop") == (
            text,
            finished["outcome"],
            finished["finish_reason"],
        )
        assert 10 == finished["usage"]["generated_tokens"]

        turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
        assert "ab" == generate(daemon, messages=turns)[0]

        text, finished = generate(daemon, prompt="a long story", max_new_tokens=6)
        assert ("a long", "length") == (text, finished["finish_reason"])


def test_the_example_engine_is_cancelled(echo_worker: Path, tmp_path: Path) -> None:
    """In the middle of an answer, by its own word; and it serves on."""
    with running(tmp_path, write_command(tmp_path, [str(echo_worker)], 1, QUICK)) as daemon:
        finished = cancel_at_the_first_token(daemon, "x" * 4000)

        assert "cancelled" == finished["outcome"]
        assert "worker" == finished["cancel"]["answered_by"]
        assert "cooperative" == daemon.wait("cancel.settled")["resolution"]
        assert "ok" == generate(daemon, prompt="ok")[0]
        assert 1 == len(daemon.events("worker.spawned"))


def test_the_python_worker_serves_and_is_replaced(python_worker: list[str], tmp_path: Path) -> None:
    """It speaks the least there is to speak, and the daemon can do with it what it must."""
    with running(tmp_path, write_command(tmp_path, python_worker, 1, QUICK)) as daemon:
        (ready,) = daemon.events("worker.ready")
        assert ("serial", []) == (ready["dialect"], ready.get("extensions", []))
        assert "why not " == generate(daemon, prompt="why not")[0]

        finished = generate(daemon, prompt="one two three", max_new_tokens=2)[1]
        assert ("length", 2) == (finished["finish_reason"], finished["usage"]["generated_tokens"])

        taken = daemon.client.post("/api/v1/workers/sim.0/quarantine")
        assert 202 == taken.status_code
        assert 2 == daemon.wait("worker.ready", count=2)["generation"]


def test_the_python_worker_answers_the_idle_probe(python_worker: list[str]) -> None:
    """And takes the next request after it; at the end of its input it leaves with status 0."""
    connection = SerialConnection(max_line=2**20, dialect="auto")
    with subprocess.Popen(
        python_worker, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    ) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        heard: list[Message] = connection.receive(worker.stdout.readline())
        for send, lines in (
            (connection.send_probe, 1),
            (lambda: connection.send_generate(Generate(prompt="hi"), 1), 2),
        ):
            worker.stdin.write(send())
            for _ in range(lines):
                heard += connection.receive(worker.stdout.readline())
        worker.stdin.close()
        assert b"" == worker.stdout.read()

    assert [Ready, ProbeAck, Tokens, Done] == [type(message) for message in heard]
    assert 0 == worker.returncode


def test_the_python_worker_keeps_sessions(keeper: list[str], tmp_path: Path) -> None:
    """It goes on from what it holds, forgets when it is told, and never runs out of places."""
    with running(tmp_path, write_command(tmp_path, keeper, 1, QUICK)) as daemon:
        text, finished = generate(daemon, prompt="one two", session_id="trip")
        assert ("one two ", 0) == (text, finished["usage"]["reused_tokens"])

        text, finished = generate(daemon, prompt="one two one two three", session_id="trip")
        assert ("three ", 4) == (text, finished["usage"]["reused_tokens"])

        reset = daemon.client.post("/v1/sessions/trip/reset").json()
        assert reset["existed"] is True
        finished = generate(daemon, prompt="one two one two three four", session_id="trip")[1]
        assert 0 == finished["usage"]["reused_tokens"]

        for name in ("notes", "letter"):
            assert "completed" == generate(daemon, prompt="x", session_id=name)[1]["outcome"]
        assert daemon.client.delete("/v1/sessions/trip").json()["existed"] is False
        assert daemon.client.delete("/v1/sessions/letter").json()["existed"] is True


def test_the_example_engine_keeps_sessions(echo_worker: Path, tmp_path: Path) -> None:
    """The runtime compares, and the engine is shown the rest only."""
    with running(tmp_path, write_command(tmp_path, [str(echo_worker)], 1, QUICK)) as daemon:
        assert "ab" == generate(daemon, prompt="ab", session_id="trip")[0]

        text, finished = generate(daemon, prompt="ababc", session_id="trip")
        assert ("c", 4) == (text, finished["usage"]["reused_tokens"])


def test_the_python_worker_says_when_it_is_full(keeper: list[str]) -> None:
    """For `open` and for a request, with the code; and an `open` of what is there is well."""
    connection = SerialConnection(max_line=2**20, dialect="auto")
    heard: list[Message] = []
    with subprocess.Popen(
        keeper, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    ) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        connection.receive(worker.stdout.readline())
        sends: list[Callable[[], bytes]] = [
            lambda: connection.send_open("a"),
            lambda: connection.send_open("b"),
            lambda: connection.send_open("a"),
            lambda: connection.send_open("c"),
            lambda: connection.send_generate(Generate(prompt="hi", session_id="c"), 1),
            lambda: connection.send_close("a"),
            lambda: connection.send_open("c"),
        ]
        for send in sends:
            worker.stdin.write(send())
            heard += connection.receive(worker.stdout.readline())

    kinds = [
        SessionDone,
        SessionDone,
        SessionDone,
        SessionRefused,
        Failed,
        SessionDone,
        SessionDone,
    ]
    assert kinds == [type(message) for message in heard]
    refused = [each.code for each in heard if isinstance(each, SessionRefused | Failed)]
    assert ["capacity_exhausted", "capacity_exhausted"] == refused
