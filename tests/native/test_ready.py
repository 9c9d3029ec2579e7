from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.native.sim import BEATING, KNOWN, PLAIN, program, start


def test_a_plain_worker_says_only_what_upstream_says() -> None:
    """Without the protocol variable no key is added, with or without the control pipe."""
    with start(env=PLAIN, cancel=False) as worker:
        assert worker.receive_line() == '{"ready":true,"max_sessions":1,"max_named_sessions":0}'
    with start(env=PLAIN) as worker:
        expected = '{"ready":true,"max_sessions":1,"max_named_sessions":0,"supports_cancel":true}'
        assert expected == worker.receive_line()


def test_a_known_protocol_brings_the_extensions() -> None:
    """All five are offered, with what there is to say of the model."""
    with start("--chat-template", "{{ messages }}", "--context_length", "99") as worker:
        assert worker.receive() == {
            "ready": True,
            "max_sessions": 1,
            "max_named_sessions": 0,
            "supports_cancel": True,
            "extensions": ["ping", "heartbeat", "cancel_prefill", "cancel_ids", "model"],
            "model": {
                "id": "sim",
                "context_length": 99,
                "chat_template": "{{ messages }}",
                "bos_token": "<|im_start|>",
                "eos_token": "<|im_end|>",
            },
        }


@pytest.mark.parametrize(
    ("options", "cancel", "extensions"),
    [
        (["--no_cancel"], True, ["ping", "heartbeat", "model"]),
        ([], False, ["ping", "heartbeat", "model"]),
        (["--no_cancel_prefill"], True, ["ping", "heartbeat", "cancel_ids", "model"]),
        (["--no-ping"], True, ["heartbeat", "cancel_prefill", "cancel_ids", "model"]),
        (["--no-heartbeat"], True, ["ping", "cancel_prefill", "cancel_ids", "model"]),
        (["--no-extensions"], True, None),
    ],
)
def test_what_is_withheld_is_not_offered(
    options: list[str], cancel: bool, extensions: list[str] | None
) -> None:
    """Each extension can be missing; what depends on cancellation goes with it."""
    with start(*options, cancel=cancel) as worker:
        said = worker.receive()
    assert extensions == said.get("extensions")
    assert ("--no_cancel" not in options and cancel) == said.get("supports_cancel", False)
    assert (extensions is not None) == ("model" in said)


def test_a_control_pipe_at_its_end_is_not_offered() -> None:
    """If the daemon's end is closed before the worker is ready, there is nothing to cancel with."""
    with start("--load_ms", "200") as worker:
        worker.close_control()
        assert "supports_cancel" not in worker.receive()


def test_loading_beats_and_progresses() -> None:
    """Heartbeats before the ready line tell how far the load is."""
    with start("--load_ms", "300", env=BEATING) as worker:
        *beats, last = worker.receive_until(lambda message: "ready" in message)
        assert last["ready"] is True
    heartbeats = [message["heartbeat"] for message in beats]
    assert {(beat["phase"], beat["total"]) for beat in heartbeats} == {("load", 1000)}
    assert len(heartbeats) > 2
    done = [beat["done"] for beat in heartbeats]
    assert sorted(done) == done
    assert done[0] < done[-1] <= 1000
    assert heartbeats[0]["beats"] < heartbeats[-1]["beats"]


def test_a_plain_worker_never_beats() -> None:
    """Without the protocol variable the first line is the ready line, however long it takes."""
    with start("--load_ms", "100", env={"SUPERVISORD_LLM_HEARTBEAT_MS": "1"}) as worker:
        assert worker.receive()["ready"] is True


def test_a_load_that_hangs_keeps_telling_that_nothing_moves() -> None:
    """The heartbeat goes on while its beats stand still: stuck, not slow."""
    with start("--hang", "load", env=BEATING) as worker:
        beats = [worker.receive()["heartbeat"] for _ in range(5)]
    assert {(beat["phase"], beat["done"], beat["beats"]) for beat in beats} == {("load", 0, 0)}


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("not_json", "ready"),
        ("not_object", '["ready"]'),
        ("false", '{"ready": false}'),
        ("string", '{"ready": "yes"}'),
    ],
)
def test_bad_ready_lines_can_be_had(kind: str, line: str) -> None:
    """Each kind that a daemon must refuse."""
    with start("--bad_ready", kind) as worker:
        assert line == worker.receive_line()


def test_not_ready_ends_without_a_word() -> None:
    """Status 0 and no line."""
    with start("--not_ready") as worker:
        assert worker.receive_rest() == b""
        assert worker.wait() == 0


def test_never_ready_says_nothing_and_stays() -> None:
    """It keeps beating for the load that is over, but the ready line does not come."""
    with start("--never_ready", env=BEATING) as worker:
        for _ in range(5):
            assert worker.receive()["heartbeat"]["phase"] == "load"
        assert worker.process.poll() is None


@pytest.mark.parametrize(
    "options",
    [["--nonsense"], ["--tokens"], ["--tokens", "many"], ["--utf8=1"], ["word"], ["--hang=away"]],
)
def test_a_bad_option_is_status_2_and_named(options: list[str]) -> None:
    """Nothing is started, and stderr says which word it was."""
    with start(*options) as worker:
        assert worker.receive_rest() == b""
        assert worker.wait() == 2
        said = worker.stderr()
    assert said.startswith("sllm-sim-worker: ")
    assert options[0].partition("=")[0] in said


def test_a_bad_environment_is_status_2_and_named() -> None:
    """A heartbeat period that means nothing is not silently replaced by another."""
    with start(env={**KNOWN, "SUPERVISORD_LLM_HEARTBEAT_MS": "soon"}) as worker:
        assert worker.wait() == 2
        assert "SUPERVISORD_LLM_HEARTBEAT_MS='soon'" in worker.stderr()


@pytest.mark.parametrize("number", ["0", "1", "2", "-1", "x", "77"])
def test_a_control_variable_that_names_no_pipe_costs_only_the_cancellation(number: str) -> None:
    """The worker serves, and its standard streams are unharmed."""
    env = {"EXECUTORCH_LLM_WORKER_CONTROL_FD": number}
    with start(env=env, cancel=False) as worker:
        assert "supports_cancel" not in worker.receive()
        assert worker.generate("x sim.tokens=1 sim.stderr=1")[0] == "t0 "
        assert worker.leave() == 0
        assert worker.stderr() == "sim: line 0\n"


def test_standard_output_is_private() -> None:
    """A library that prints reaches stderr, not the protocol."""
    with start() as worker:
        worker.receive()
        folder = Path(f"/proc/{worker.process.pid}/fd")
        assert (folder / "1").readlink() == (folder / "2").readlink()


def test_missing_standard_streams_do_no_harm() -> None:
    """Without stdin there is nothing to serve; without stderr nothing to log to."""
    shell = f"{shlex.quote(str(program('sllm-sim-worker')))} <&- 2>&-"
    done = subprocess.run(["sh", "-c", shell], capture_output=True, timeout=30, check=False)
    assert (done.returncode, done.stdout.startswith(b'{"ready":true')) == (0, True)


def test_help_explains_and_ends() -> None:
    """--help is for stdout and status 0."""
    done = subprocess.run(
        [program("sllm-sim-worker"), "--help"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("usage: sllm-sim-worker ")
    assert done.stderr == ""


def test_every_line_is_json_of_its_own() -> None:
    """A whole conversation is lines of JSON objects and nothing else."""
    with start("--tokens", "3") as worker:
        worker.send(prompt="a")
        worker.send(op="close", session_id="x")
        assert worker.leave() == 0
        lines = worker.receive_rest().decode().splitlines()
    assert [next(iter(json.loads(line))) for line in lines] == [
        *("ready", "token", "token", "token", "done", "closed"),
    ]
