from __future__ import annotations

import random

import pytest

from tests.native.sim import PLAIN, ready, start


def test_an_answer_is_tokens_and_a_done_with_all_fields() -> None:
    """The fields of the protocol, no more, and figures that fit together."""
    with ready() as worker:
        text, done = worker.generate("one two sim.tokens=3 sim.prefill_ms=20 sim.tps=100")
    assert text == "t0 t1 t2 "
    assert set(done) == {
        *("done", "prompt_tokens", "completion_tokens", "finish_reason"),
        *("reused_prompt_tokens", "prefilled_prompt_tokens", "session_reset_reason"),
        *("prefill_ms", "decode_ms", "total_ms", "prefill_tok_s", "decode_tok_s"),
        "generated_token_ids",
    }
    assert (done["prompt_tokens"], done["completion_tokens"]) == (2, 3)
    assert (done["reused_prompt_tokens"], done["prefilled_prompt_tokens"]) == (0, 2)
    assert (done["finish_reason"], done["session_reset_reason"]) == ("length", "new")
    assert done["generated_token_ids"] == [0, 1, 2]
    assert done["prefill_ms"] >= 20
    assert done["decode_ms"] >= 30
    assert done["total_ms"] >= done["prefill_ms"] + done["decode_ms"]


def test_the_model_or_the_request_ends_the_answer() -> None:
    """``stop`` when the model ends, ``length`` when there is no more room."""
    with ready() as worker:
        assert worker.generate("x sim.eos_at=2")[1]["finish_reason"] == "stop"
        assert worker.generate("x sim.text=so_it_ends")[1]["finish_reason"] == "stop"
        text, done = worker.generate("x", max_new_tokens=2)
        assert (text, done["finish_reason"]) == ("t0 t1 ", "length")


def test_a_stop_string_across_tokens_ends_the_answer() -> None:
    """Neither the stop string nor what follows is shown."""
    with ready() as worker:
        text, done = worker.generate("x sim.text=a_big_dog_runs", stop=["g d"])
        assert (text, done["finish_reason"]) == ("a bi", "stop")
        assert "generated_token_ids" not in done


def test_characters_arrive_whole() -> None:
    """No token line holds a part of one; a cut end is one replacement character."""
    with ready() as worker:
        text, _ = worker.generate("x sim.utf8 sim.tokens=16")
        assert text == "é€😀 " * 2
        text, _ = worker.generate("x sim.utf8 sim.tokens=1")
        assert text == "\ufffd"


def test_a_prompt_that_fills_the_context_is_refused_and_the_worker_serves_on() -> None:
    """One token of room is enough, none is not."""
    with ready("--context_length", "4") as worker:
        _, refused = worker.generate("a b c d")
        assert "context of 4" in refused["error"]
        assert refused["code"] == "context_length_exceeded"
        assert worker.generate("a b c")[0] == "t0 "


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("nonsense", "JSON"),
        ("[1]", "JSON object"),
        ('{"prompt": 1}', "prompt"),
        ('{"prompt": "x", "temperature": 1e999}', "JSON"),
        ('{"prompt": "x", "top_p": 2}', "top_p"),
        ('{"prompt": "x", "speed": 2}', "'speed'"),
        ('{"op": "dance"}', "dance"),
        ('{"prompt": ""}', "empty"),
        ('{"prompt": "sim.nonsense"}', "sim.nonsense"),
        ('{"prompt_segments": []}', "prompt_segments"),
        ('{"prompt": "\xff"}', "JSON"),
    ],
)
def test_a_bad_request_is_an_error_and_the_worker_serves_on(line: str, said: str) -> None:
    """The error names what is wrong; the next request is answered as if nothing had been."""
    with ready() as worker:
        worker.send_line(line.encode("latin-1"))
        assert said in worker.receive()["error"]
        assert worker.generate("x sim.tokens=1")[0] == "t0 "


def test_a_line_over_the_limit_is_an_error_and_the_worker_serves_on() -> None:
    """16 MiB, and memory for no more than that."""
    with ready() as worker:
        worker.send_line(b"x" * (17 << 20))
        assert "16777216" in worker.receive()["error"]
        assert worker.generate("x sim.tokens=1")[0] == "t0 "


def test_the_idle_probe_is_acknowledged_and_changes_nothing() -> None:
    """``close`` and ``reset`` of a session that does not exist; ``open`` is not supported."""
    with ready() as worker:
        assert worker.ask(op="close", session_id="__probe__") == {
            "closed": True,
            "session_id": "__probe__",
        }
        assert worker.ask(op="reset", session_id="s") == {"reset": True, "session_id": "s"}
        for refused in (
            worker.ask(op="open", session_id="s"),
            worker.ask(prompt="x", session_id="s"),
        ):
            assert (refused["code"], refused["session_id"]) == ("unsupported_session", "s")


def test_requests_in_a_row_are_answered_in_a_row() -> None:
    """What is written ahead waits; the end of the input loses none of it."""
    with ready() as worker:
        for number in range(1, 40):
            worker.send(prompt=f"x sim.tokens={number}")
        assert worker.leave() == 0
        rest = worker.receive_rest()
    assert rest.count(b'"done":true') == 39
    assert rest.count(b'"token"') == sum(range(1, 40))


def test_the_last_line_needs_no_end() -> None:
    """As with any reader of lines."""
    with ready() as worker:
        assert worker.process.stdin is not None
        worker.process.stdin.write(b'{"prompt": "x sim.tokens=1"}')
        assert worker.leave() == 0
        assert b'"done":true' in worker.receive_rest()


def test_a_plain_worker_knows_no_ping() -> None:
    """An extension that was not offered is an unknown op."""
    with ready(env=PLAIN) as worker:
        assert "ping" in worker.ask(op="ping", nonce=1)["error"]


def test_a_worker_whose_replies_nobody_reads_ends() -> None:
    """It does not work on for nobody, nor die of SIGPIPE: status 1, and it says why."""
    with start() as worker:
        worker.receive()
        worker.stop_reading()
        worker.send(prompt="x sim.tokens=100000")
        assert worker.wait() == 1
        assert "nobody reads" in worker.stderr()


def mutated(rng: random.Random) -> bytes:
    """A request with some bytes changed, lost or doubled; never an end of line, never empty."""
    line = bytearray(
        b'{"prompt": "x sim.tokens=1", "stop": ["a"], "top_p": 0.5, "seed": 7, "top_k": 3}'
    )
    for _ in range(rng.choice((1, 1, 2, 6))):
        at = rng.randrange(len(line))
        match rng.randrange(3):
            case 0:
                line[at] = rng.choice(b'\x00\x7f\xff\xc3"{}[],:0-9eE.\\ntu')
            case 1 if len(line) > 1:
                del line[at]
            case _:
                line[at:at] = line[at : at + rng.randint(1, 9)]
    return bytes(line)


def test_whatever_comes_gets_exactly_one_terminal() -> None:
    """Damaged requests are answered one for one, served or refused, and the worker lives."""
    rng = random.Random(20_221_201)
    outcomes = {"done": 0, "error": 0}
    with ready() as worker:
        for number in range(2000):
            worker.send_line(mutated(rng))
            _, terminal = worker.finish()
            outcomes["done" if "done" in terminal else "error"] += 1
            if number % 100 == 0:
                assert worker.ask(op="ping", nonce=number) == {"pong": number}
    assert min(outcomes.values()) > 20
