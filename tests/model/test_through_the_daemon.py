"""The real model behind the daemon, and what a cancellation leaves behind: nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.running import Running, running
from tests.harness import QUICK, write_command
from tests.model.worker import chat, model_path

pytestmark = pytest.mark.model

QUESTION = {"pool": "sim", "messages": [{"role": "user", "content": "Why is the sky blue?"}]}
LONG = "The quick brown fox jumps over the lazy dog near the river bank. " * 215


@pytest.fixture
def model(tmp_path: Path) -> Iterator[Running]:
    """A daemon with one llama worker."""
    command = ["sllm-llama-worker", "--model", str(model_path()), "--threads", "1"]
    settings = QUICK.replace('cooperative_grace = "500ms"', 'cooperative_grace = "5s"')
    with running(tmp_path, write_command(tmp_path, command, 1, settings)) as daemon:
        yield daemon


def generate(
    daemon: Running, body: Mapping[str, object], tokens: int
) -> tuple[str, dict[str, Any]]:
    """Send a request and read to the end: the text and the terminal record."""
    reply = daemon.client.post(
        "/api/v1/generate", json={**body, "max_new_tokens": tokens}, timeout=120
    )
    lines = [json.loads(line) for line in reply.text.splitlines()]
    text = "".join(line["text"] for line in lines if line["event"] == "token")
    return text, lines[-1]


def cancel(daemon: Running, body: Mapping[str, object], *, after: str) -> dict[str, Any]:
    """Start a long request, cancel it once it has come to ``after``: the terminal record."""
    with daemon.client.stream(
        "POST", "/api/v1/generate", json={**body, "max_new_tokens": 4000}, timeout=120
    ) as reply:
        lines = (json.loads(line) for line in reply.iter_lines())
        request_id = next(line["id"] for line in lines if line["event"] == "accepted")
        next(line for line in lines if line["event"] == after)
        asked = daemon.client.post(f"/api/v1/requests/{request_id}/cancel", params={"wait": "true"})
        assert asked.json()["outcome"] == "cancelled"
        *_, last = lines
    return dict(last)


def test_a_greedy_answer_is_the_same_after_cancellations(model: Running) -> None:
    """The same text twice, after a cancel in decode, and after one inside a long prefill.

    All of it in one process: no cancellation cost the loaded model.
    """
    [pid] = model.worker_pids()
    expected, record = generate(model, QUESTION, 24)
    assert (record["outcome"], record["usage"]["generated_tokens"]) == ("completed", 24)
    texts = [generate(model, QUESTION, 24)[0]]

    in_decode = cancel(model, {"pool": "sim", "prompt": chat("Tell me a story.")}, after="token")
    texts.append(generate(model, QUESTION, 24)[0])

    in_prefill = cancel(model, {"pool": "sim", "prompt": LONG}, after="started")
    texts.append(generate(model, QUESTION, 24)[0])

    assert texts == [expected] * 3
    assert [end["cancel"]["answered_by"] for end in (in_decode, in_prefill)] == ["worker"] * 2
    assert "ttft_ms" not in in_prefill["timings"] or in_prefill["timings"]["ttft_ms"] is None
    assert model.worker_pids() == [pid]


def test_the_pool_says_what_its_model_is(model: Running) -> None:
    """Name, context and template come from the worker, for whoever wants to know."""
    pool = model.client.get("/api/v1/pools/sim").json()
    assert pool["model"]["context_length"] > 0
    assert pool["model"]["parameters"] > 100_000_000
    assert pool["model"]["chat_template"] is True


def test_a_prompt_over_the_context_fails_alone(model: Running) -> None:
    """The worker refuses it in words, and serves the next request."""
    text, record = generate(model, {"pool": "sim", "prompt": LONG * 4}, 8)
    assert (text, record["outcome"]) == ("", "failed")
    assert record["error"]["code"] == "context_length_exceeded"
    assert "into a context of" in record["error"]["message"]
    assert not record["error"]["retryable"]
    _, record = generate(model, QUESTION, 2)
    assert record["outcome"] == "completed"
