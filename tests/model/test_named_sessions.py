"""Named sessions of the real model through the daemon: what is read once is not read again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.running import Running, running
from tests.harness import QUICK, write_command
from tests.model.test_through_the_daemon import generate
from tests.model.worker import model_path

pytestmark = pytest.mark.model

COUNTING = "one, two, three, four, five, six, seven, " * 6 + "one, two,"


@pytest.fixture
def model(tmp_path: Path) -> Iterator[Running]:
    """A daemon with a worker that has room for two sessions."""
    command = ["sllm-llama-worker", "--model", str(model_path()), "--threads", "1"]
    command += ["--sessions", "2", "--ctx", "1024"]
    with running(tmp_path, write_command(tmp_path, command, 1, QUICK)) as daemon:
        yield daemon


def ask(daemon: Running, session: str, prompt: str) -> tuple[str, int]:
    """A short answer, and how much of the prompt was there already."""
    body = {"pool": "sim", "session_id": session, "prompt": prompt}
    text, record = generate(daemon, body, 2)
    assert record["outcome"] == "completed"
    return text, record["usage"]["reused_tokens"]


def test_a_conversation_is_read_once_and_said_the_same_cold(model: Running) -> None:
    """The second turn reads what was added; without the context it reads all, and says the same."""
    body = {"pool": "sim", "session_id": "trip"}
    text, first = generate(model, {**body, "prompt": COUNTING}, 6)
    prompt = f"{COUNTING}{text} one, two,"
    warm_text, warm = generate(model, {**body, "prompt": prompt}, 6)
    assert model.client.delete("/v1/sessions/trip").json()["existed"]
    cold_text, cold = generate(model, {**body, "prompt": prompt}, 6)

    assert [each["outcome"] for each in (first, warm, cold)] == ["completed"] * 3
    assert (first["usage"]["reused_tokens"], cold["usage"]["reused_tokens"]) == (0, 0)
    held = first["usage"]["prompt_tokens"] + first["usage"]["generated_tokens"]
    assert warm["usage"]["reused_tokens"] == held
    assert warm["timings"]["prefill_ms"] < cold["timings"]["prefill_ms"] / 2
    assert warm_text == cold_text


def test_more_sessions_than_there_is_room_for_are_served(model: Running) -> None:
    """Whoever was used least recently is forgotten, and cold when it comes back."""
    texts = {name: ask(model, name, COUNTING)[0] for name in "abc"}
    assert ask(model, "b", f"{COUNTING}{texts['b']} one,")[1] > 0
    assert ask(model, "a", f"{COUNTING}{texts['a']} one,")[1] == 0
    assert model.client.get("/api/v1/pools/sim").json()["sessions"] == 2
