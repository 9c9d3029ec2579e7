"""Sessions of the real model: what they save, and that nothing of a cancelled request is left."""

from __future__ import annotations

import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.model.worker import LlamaWorker, Message, chat, in_phase, llama_worker, model_path

pytestmark = pytest.mark.model

QUESTION = chat("Why is the sky blue?")
STORY = chat("Tell me a very long story about a fox.")
LONG = "The quick brown fox jumps over the lazy dog near the river bank. " * 60
COUNTING = "one, two, three, four, five, six, seven, " * 6

Segment = dict[str, object]
Answer = tuple[str, list[int]]


def ask(
    worker: LlamaWorker, segments: list[Segment], tokens: int, session: str = "s"
) -> tuple[Answer, Message]:
    """One request of segments in a session: its text, its tokens and its terminal."""
    fields = {"prompt_segments": segments, "session_id": session, "max_new_tokens": tokens}
    worker.send({"cancel_request_id": worker.reserve_id(), **fields})
    text, done = worker.finish()
    return (text, done.get("generated_token_ids", [])), done


def started(worker: LlamaWorker, prompt: str, **fields: object) -> int:
    """Start a request in the session; its id."""
    return worker.start(prompt, session_id="s", **fields)


def until_token(worker: LlamaWorker, count: int) -> str:
    """Read until that many token lines have come; their text."""
    texts: list[str] = []
    while len(texts) < count:
        texts.append(worker.receive_until(lambda message: "token" in message)[-1]["token"])
    return "".join(texts)


def in_prefill(worker: LlamaWorker) -> Message:
    """A cancel inside of a prompt."""
    wire_id = started(worker, LONG, max_new_tokens=8)
    worker.receive_until(in_phase("prefill"))
    worker.cancel(wire_id)
    done = worker.finish()[1]
    assert (done["cancelled"], done["completion_tokens"]) == (True, 0)
    return done


def in_decode(worker: LlamaWorker) -> Message:
    """A cancel in the middle of an answer."""
    wire_id = started(worker, STORY, max_new_tokens=4000)
    until_token(worker, 5)
    worker.cancel(wire_id)
    done = worker.finish()[1]
    assert done["cancelled"] is True
    return done


def on_a_stop_string(worker: LlamaWorker) -> Message:
    """A cancel that races with the stop string which the next tokens complete."""
    whole = worker.generate(STORY, max_new_tokens=12)[0]
    wire_id = started(worker, STORY, max_new_tokens=4000, stop=[whole[-4:]])
    until_token(worker, 7)
    worker.cancel(wire_id)
    return worker.finish()[1]


def at_the_limit(worker: LlamaWorker) -> Message:
    """A cancel that races with the last token of the answer."""
    wire_id = started(worker, STORY, max_new_tokens=6)
    until_token(worker, 5)
    worker.cancel(wire_id)
    return worker.finish()[1]


@pytest.fixture(scope="module")
def fresh() -> Answer:
    """What a process answers that has done nothing before."""
    with llama_worker() as (worker, _):
        return ask(worker, [{"text": QUESTION}], 24)[0]


@pytest.mark.parametrize("cancelled", [in_prefill, in_decode, on_a_stop_string, at_the_limit])
def test_a_session_is_as_a_fresh_process_after_a_cancel(
    fresh: Answer, cancelled: Callable[[LlamaWorker], Message]
) -> None:
    """Byte for byte and token for token, whoever wins where the cancel races with the end."""
    with llama_worker() as (worker, _):
        for _ in range(3):
            spoiled = cancelled(worker)
            answer, done = ask(worker, [{"text": QUESTION}], 24)
            clean = not spoiled.get("cancelled") and "generated_token_ids" in spoiled
            assert done["session_reset_reason"] == ("mismatch" if clean else "dirty")
            assert answer == fresh


def test_a_session_is_as_a_fresh_process_after_a_cancel_that_came_first(fresh: Answer) -> None:
    """The cancel waits for its request, which still spoils what the session held."""
    with llama_worker() as (worker, _):
        first, _ = ask(worker, [{"text": QUESTION}], 24)
        worker.cancel(2)
        worker.send({"op": "ping", "nonce": 1})
        worker.receive_until(lambda message: "pong" in message)
        assert started(worker, LONG, max_new_tokens=8) == 2
        assert worker.finish()[1]["cancelled"] is True
        again, done = ask(worker, [{"text": QUESTION}], 24)

    assert done["session_reset_reason"] == "dirty"
    assert first == again == fresh


def test_a_stop_string_alone_makes_a_session_dirty(fresh: Answer) -> None:
    """More was computed than was shown, so the next request begins anew."""
    with llama_worker() as (worker, _):
        stopped = worker.generate(
            QUESTION, session_id="s", max_new_tokens=24, stop=[fresh[0][20:27]]
        )[1]
        answer, done = ask(worker, [{"text": QUESTION}], 24)

    assert "generated_token_ids" not in stopped
    assert (done["session_reset_reason"], answer) == ("dirty", fresh)


def test_a_transcript_is_read_once() -> None:
    """Each turn reads only what was added, and says what a process would that read all of it."""
    segments: list[Segment] = [{"text": COUNTING}]
    with llama_worker() as (worker, _):
        (_, ids), first = ask(worker, segments, 6)
        segments += [{"ids": ids}, {"text": " one, two,"}]
        (text, ids), second = ask(worker, segments, 6)
        segments += [{"ids": ids}, {"text": " one,"}]
        _, third = ask(worker, segments, 6)
    with llama_worker() as (worker, _):
        (cold, _), whole = ask(worker, segments[:3], 6)

    assert (first["session_reset_reason"], first["finish_reason"]) == ("new", "length")
    held = first["prompt_tokens"] + 6
    assert (second["session_reset_reason"], second["reused_prompt_tokens"]) == (
        "exact_prefix",
        held,
    )
    assert second["prefilled_prompt_tokens"] == second["prompt_tokens"] - held
    assert third["reused_prompt_tokens"] == second["prompt_tokens"] + 6
    assert whole["prompt_tokens"] == second["prompt_tokens"]
    assert text == cold
    assert text.startswith(" three, four")


def test_the_same_prompt_again_starts_anew(fresh: Answer) -> None:
    """A prompt that is not the whole transcript, or all of it and no more, is read from its start.

    Both give the very tokens of a fresh process.
    """
    with llama_worker() as (worker, _):
        (_, ids), _ = ask(worker, [{"text": QUESTION}], 24)
        mismatch, left = ask(worker, [{"text": QUESTION}], 24)
        continued: list[Segment] = [{"text": QUESTION}, {"ids": ids}]
        equal, same = ask(worker, continued, 8)
    with llama_worker() as (worker, _):
        expected, _ = ask(worker, continued, 8)

    assert (left["session_reset_reason"], mismatch) == ("mismatch", fresh)
    assert (same["session_reset_reason"], equal) == ("equal", expected)


def test_a_cancel_in_one_session_leaves_the_others_as_they_are() -> None:
    """They go on warm, with the tokens that they would have had without it."""
    segments: list[Segment] = [{"text": QUESTION}]
    more: Segment = {"text": chat("And at night?")}
    answers = []
    for disturbed in (False, True):
        with llama_worker() as (worker, _):
            (_, ids), _ = ask(worker, segments, 12, "other")
            if disturbed:
                in_prefill(worker)
                in_decode(worker)
            answer, done = ask(worker, [*segments, {"ids": ids}, more], 12, "other")
            assert done["session_reset_reason"] == "exact_prefix"
            answers.append(answer)

    assert answers[0] == answers[1]


def test_segments_are_read_as_a_text_is() -> None:
    """Special tokens in a text are recognised, and nothing is added between or around."""
    with llama_worker() as (worker, _):
        expected, whole = worker.generate(QUESTION, max_new_tokens=8)
        (text, _), done = ask(worker, [{"text": QUESTION}], 8)
        cut, again = ask(worker, [{"text": QUESTION[:12]}, {"text": QUESTION[12:]}], 8)

    assert (text, done["prompt_tokens"]) == (expected, whole["prompt_tokens"])
    assert (cut[0], again["prompt_tokens"]) == (expected, whole["prompt_tokens"])


@pytest.mark.parametrize("token", [49152, 2**31 - 1])
def test_a_token_that_the_model_has_not_is_refused(token: int) -> None:
    """By its number, with those that there are; the session is not touched."""
    with llama_worker() as (worker, _):
        _, first = ask(worker, [{"ids": [1, 2, 3]}], 2)
        _, refused = ask(worker, [{"ids": [1, token]}], 2)
        ids = first["generated_token_ids"]
        _, done = ask(worker, [{"ids": [1, 2, 3, *ids, 49151]}], 2)

    assert refused["error"] == f"cannot use the token id {token}; give ids from 0 to 49151"
    assert done["session_reset_reason"] == "exact_prefix"


def control(worker: LlamaWorker, op: str, session: str) -> Message:
    """One operation on a session and its reply."""
    worker.send({"op": op, "session_id": session})
    return worker.receive_until(lambda message: "heartbeat" not in message)[-1]


def test_as_many_sessions_as_were_asked_for() -> None:
    """The ready line says how many; one more is refused until one is closed."""
    with llama_worker("--sessions", "2", "--ctx", "512") as (worker, ready):
        assert (ready["max_sessions"], ready["max_named_sessions"]) == (3, 2)
        assert control(worker, "open", "a") == {"opened": True, "session_id": "a"}
        ask(worker, [{"text": "hi"}], 1, "b")
        _, refused = ask(worker, [{"text": "hi"}], 1, "c")
        assert (refused["code"], refused["session_id"]) == ("capacity_exhausted", "c")
        assert control(worker, "open", "c")["code"] == "capacity_exhausted"
        assert control(worker, "close", "a") == {"closed": True, "session_id": "a"}
        assert control(worker, "open", "c") == {"opened": True, "session_id": "c"}


def test_no_sessions_can_be_asked_for() -> None:
    """Then a name is an error with its own code, and requests without one are served."""
    with llama_worker("--sessions", "0") as (worker, ready):
        assert (ready["max_sessions"], ready["max_named_sessions"]) == (1, 0)
        _, refused = ask(worker, [{"text": "hi"}], 1, "a")
        assert (refused["code"], refused["session_id"]) == ("unsupported_session", "a")
        assert worker.generate("hi", max_new_tokens=1)[1]["completion_tokens"] == 1


def test_a_reset_session_is_new(fresh: Answer) -> None:
    """It answers as a fresh process does."""
    with llama_worker() as (worker, _):
        ask(worker, [{"text": STORY}], 8)
        assert control(worker, "reset", "s") == {"reset": True, "session_id": "s"}
        answer, done = ask(worker, [{"text": QUESTION}], 24)

    assert (done["session_reset_reason"], answer) == ("new", fresh)


def resident_bytes(pid: int) -> int:
    """The resident memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024


def test_sessions_share_the_weights_and_cost_nothing_before_their_use() -> None:
    """Three together take less than the weights would, and give it back."""
    weights = model_path().stat().st_size
    with llama_worker("--ctx", "512", "--sessions", "1000") as (worker, _):
        worker.generate(QUESTION, max_new_tokens=4)
        before = resident_bytes(worker.pid)
        for name in "abc":
            ask(worker, [{"text": QUESTION}], 4, name)
        grown = resident_bytes(worker.pid) - before
        for name in "abc":
            control(worker, "close", name)
        left = resident_bytes(worker.pid) - before

    assert 3 * 512 * 23_040 < grown < weights * 0.9
    assert left < grown / 2


def test_a_session_that_does_not_fit_into_memory_is_refused_alone(fresh: Answer) -> None:
    """The worker goes on with the sessions that it has, and opens this one when there is room."""
    with llama_worker() as (worker, _):
        before = ask(worker, [{"text": STORY}], 4, "a")[1]
        status = Path(f"/proc/{worker.pid}/status").read_text(encoding="ascii")
        size = int(status.partition("VmSize:")[2].split()[0]) * 1024
        unlimited = resource.prlimit(worker.pid, resource.RLIMIT_AS)
        resource.prlimit(worker.pid, resource.RLIMIT_AS, (size + (64 << 20), unlimited[1]))
        refused = control(worker, "open", "b")
        assert (refused["code"], refused["session_id"]) == ("capacity_exhausted", "b")
        assert refused["error"].startswith("cannot make a context of 8192 tokens: ")
        _, also = ask(worker, [{"text": QUESTION}], 4, "b")
        assert also["code"] == "capacity_exhausted"

        ids = before["generated_token_ids"]
        _, kept = ask(worker, [{"text": STORY}, {"ids": ids}, {"text": " and"}], 4, "a")
        assert kept["session_reset_reason"] == "exact_prefix"
        resource.prlimit(worker.pid, resource.RLIMIT_AS, unlimited)
        answer, done = ask(worker, [{"text": QUESTION}], 24, "b")

    assert (done["session_reset_reason"], answer) == ("new", fresh)
