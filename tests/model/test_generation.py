"""What the llama worker answers: the real program, the real model, the real protocol."""

from __future__ import annotations

import pytest

from tests.model.worker import chat, is_terminal, llama_worker
from tests.openai import goldens

pytestmark = pytest.mark.model

QUESTION = chat("Why is the sky blue?")
COUNTING = "one, two, three, four, five, six, seven, " * 8 + "one, two,"


def test_ready_line_describes_the_model() -> None:
    """The ready line offers every extension and says what a client must know of the model."""
    with llama_worker() as (_, ready):
        model = ready["model"]

        assert ready["ready"] is True
        assert ready["supports_cancel"] is True
        assert set(ready["extensions"]) == {
            "ping",
            "heartbeat",
            "cancel_prefill",
            "cancel_ids",
            "model",
        }
        assert model["id"] == "Smollm2 135M 8k Lc100K Mix1 Ep2"
        assert model["context_length"] == 8192
        # What `tests/openai` renders is what the model has.
        assert model["chat_template"] == goldens.SMOLLM2
        assert (model["bos_token"], model["eos_token"]) == ("<|im_start|>", "<|im_end|>")
        assert model["parameters"] == 134_515_008
        assert model["quantization"] == "Q4_1"


def test_greedy_text_is_the_same_again() -> None:
    """Temperature 0 gives one text: twice in one worker, and in a fresh one."""
    with llama_worker() as (worker, _):
        first = worker.generate(QUESTION, max_new_tokens=24)[0]
        second = worker.generate(QUESTION, max_new_tokens=24)[0]
    with llama_worker() as (worker, _):
        fresh = worker.generate(QUESTION, max_new_tokens=24)[0]

    assert len(first) > 40
    assert first == second
    assert first == fresh


def test_an_answer_between_others_leaves_no_trace() -> None:
    """Another prompt in between does not change what a prompt is answered."""
    with llama_worker() as (worker, _):
        before = worker.generate(QUESTION, max_new_tokens=16)[0]
        other = worker.generate(chat("Name three rivers."), max_new_tokens=16)[0]
        after = worker.generate(QUESTION, max_new_tokens=16)[0]

    assert before != other
    assert before == after


def test_the_model_ends_its_own_answer() -> None:
    """The end-of-turn token ends with `stop`, is not shown and not counted."""
    with llama_worker() as (worker, _):
        text, done = worker.generate(chat("Say only: hello"), max_new_tokens=200)

    assert done["finish_reason"] == "stop"
    assert 0 < done["completion_tokens"] < 200
    assert "<|im_end|>" not in text
    assert text.strip() != ""


def test_the_limit_ends_with_length() -> None:
    """max_new_tokens is exact, and reported as `length`."""
    with llama_worker() as (worker, _):
        _, done = worker.generate(QUESTION, max_new_tokens=5)

    assert (done["finish_reason"], done["completion_tokens"]) == ("length", 5)


def test_a_stop_string_is_not_shown() -> None:
    """Text ends before a stop string, also one that spans tokens."""
    with llama_worker() as (worker, _):
        whole = worker.generate(QUESTION, max_new_tokens=24)[0]
        stop = whole[20:27]
        text, done = worker.generate(QUESTION, max_new_tokens=24, stop=[stop])

    assert text == whole[: whole.index(stop)]
    assert done["finish_reason"] == "stop"


def test_a_seed_decides_the_sampled_text() -> None:
    """The same seed gives the same text, another seed another one."""
    sampling = {"temperature": 1.0, "top_p": 0.95, "top_k": 50, "max_new_tokens": 24}
    with llama_worker() as (worker, _):
        first = worker.generate(QUESTION, seed=7, **sampling)[0]
        again = worker.generate(QUESTION, seed=7, **sampling)[0]
        other = worker.generate(QUESTION, seed=8, **sampling)[0]

    assert first == again
    assert first != other


def test_top_k_of_one_is_greedy() -> None:
    """With one candidate left, no temperature can change the choice."""
    with llama_worker() as (worker, _):
        greedy = worker.generate(QUESTION, max_new_tokens=16)[0]
        single = worker.generate(QUESTION, max_new_tokens=16, temperature=2.0, top_k=1, seed=3)[0]

    assert greedy == single


@pytest.mark.parametrize("batch", ["1", "50", "512"])
def test_batch_boundaries_do_not_change_the_text(batch: str) -> None:
    """A prompt longer than a batch is read in several, and means the same."""
    with llama_worker("--batch", batch, "--ubatch", batch) as (worker, _):
        text, done = worker.generate(COUNTING, max_new_tokens=6)

    assert text.startswith(" three, four, five")
    assert done["prompt_tokens"] > 2 * 50


def test_a_prompt_over_the_context_is_refused() -> None:
    """Such a prompt is an error before any work, and the worker goes on serving."""
    with llama_worker("--ctx", "256") as (worker, ready):
        assert ready["model"]["context_length"] == 256
        _, refused = worker.generate(COUNTING * 3)
        text, done = worker.generate(QUESTION, max_new_tokens=8)

    assert "256" in refused["error"]
    assert refused["code"] == "context_length_exceeded"
    assert text != ""
    assert done["completion_tokens"] == 8


def test_a_full_context_ends_with_length() -> None:
    """Without a limit the answer ends where the context does."""
    with llama_worker("--ctx", "256") as (worker, _):
        _, done = worker.generate("Once upon a time", max_new_tokens=0, temperature=1.0, seed=1)

    assert done["finish_reason"] in {"length", "stop"}
    assert done["prompt_tokens"] + done["completion_tokens"] <= 256


def test_characters_are_never_split() -> None:
    """Characters that span tokens arrive whole."""
    prompt = "Repeat: 🦊🌍漢字 🦊🌍漢字 🦊🌍漢字 🦊🌍"
    with llama_worker() as (worker, _):
        worker.start(prompt, max_new_tokens=24)
        messages = worker.receive_until(is_terminal)

    texts = [m["token"] for m in messages if "token" in m]
    assert "漢字" in "".join(texts)
    assert all("\ufffd" not in text for text in texts[:-1])
