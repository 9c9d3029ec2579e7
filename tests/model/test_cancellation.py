"""Cancelling the real model, in decode and inside prefill, and what comes after."""

from __future__ import annotations

import time

import pytest

from tests.model.worker import chat, in_phase, is_terminal, llama_worker

pytestmark = pytest.mark.model

QUESTION = chat("Why is the sky blue?")
STORY = chat("Tell me a very long story about a fox.")
LONG = "The quick brown fox jumps over the lazy dog near the river bank. " * 215


def test_cancelled_in_decode() -> None:
    """A cancel ends the answer as cancelled, and the next one is as from a fresh worker."""
    with llama_worker() as (worker, _):
        expected = worker.generate(QUESTION, max_new_tokens=24)[0]
        wire_id = worker.start(STORY, max_new_tokens=4000)
        worker.receive_until(lambda message: "token" in message)
        worker.cancel(wire_id)
        _, done = worker.finish()
        actual = worker.generate(QUESTION, max_new_tokens=24)[0]

    assert (done["cancelled"], done["finish_reason"]) == (True, "stop")
    assert done["completion_tokens"] < 4000
    assert "generated_token_ids" not in done
    assert expected == actual


def test_cancelled_inside_a_long_prefill() -> None:
    """A cancel takes effect inside the prompt, in a fraction of the time that the prompt takes.

    The same long prompt before and after gives the same text, so the interruption left nothing.
    """
    with llama_worker() as (worker, _):
        expected, whole = worker.generate(LONG, max_new_tokens=8)
        assert whole["prompt_tokens"] > 3000

        wire_id = worker.start(LONG, max_new_tokens=8)
        worker.receive_until(in_phase("prefill"))
        asked = time.monotonic()
        worker.cancel(wire_id)
        text, done = worker.finish()
        waited_ms = (time.monotonic() - asked) * 1000

        actual = worker.generate(LONG, max_new_tokens=8)[0]

    assert done["cancelled"] is True
    assert (text, done["completion_tokens"]) == ("", 0)
    assert waited_ms < whole["prefill_ms"] / 2
    assert expected == actual


def test_cancelled_before_the_request_arrives() -> None:
    """A cancel that overtakes its request is kept for it; the following request is untouched."""
    with llama_worker() as (worker, _):
        expected = worker.generate(QUESTION, max_new_tokens=16)[0]
        worker.cancel(2)
        worker.send({"op": "ping", "nonce": 1})
        worker.receive_until(lambda message: "pong" in message)
        assert worker.start(LONG, max_new_tokens=8) == 2
        text, done = worker.finish()
        actual = worker.generate(QUESTION, max_new_tokens=16)[0]

    assert (text, done["cancelled"]) == ("", True)
    assert expected == actual


def test_a_late_cancel_touches_nobody() -> None:
    """A cancel of a finished request changes neither it nor the next."""
    with llama_worker() as (worker, _):
        expected, _ = worker.generate(QUESTION, max_new_tokens=16)
        worker.cancel(1)
        actual, done = worker.generate(QUESTION, max_new_tokens=16)

    assert expected == actual
    assert "cancelled" not in done


def test_many_cancels_in_a_row() -> None:
    """Cancelled again and again at different depths, the worker keeps its answer exact."""
    with llama_worker() as (worker, _):
        expected = worker.generate(QUESTION, max_new_tokens=12)[0]
        for depth in range(6):
            wire_id = worker.start(STORY, max_new_tokens=4000)
            for _ in range(depth):
                worker.receive_until(lambda message: "token" in message)
            worker.cancel(wire_id)
            assert worker.finish()[1]["cancelled"] is True
            assert expected == worker.generate(QUESTION, max_new_tokens=12)[0]


def test_ping_is_answered_inside_prefill() -> None:
    """While the prompt is read the worker still answers, and its beats go up."""
    with llama_worker() as (worker, _):
        wire_id = worker.start(LONG, max_new_tokens=8)
        first = worker.receive_until(in_phase("prefill"))[-1]["heartbeat"]
        worker.send({"op": "ping", "nonce": 42})
        pong = worker.receive_until(lambda message: "pong" in message or is_terminal(message))[-1]
        later = worker.receive_until(in_phase("prefill"))[-1]["heartbeat"]
        worker.cancel(wire_id)
        done = worker.finish()[1]

    assert pong == {"pong": 42}
    assert later["beats"] > first["beats"]
    assert later["total"] > 3000
    assert done["cancelled"] is True


def test_the_end_of_input_ends_a_running_answer() -> None:
    """Closing stdin in the middle of an answer still ends with status 0."""
    with llama_worker() as (worker, _):
        worker.start(STORY, max_new_tokens=50)
        worker.receive_until(lambda message: "token" in message)
