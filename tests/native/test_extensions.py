from __future__ import annotations

from tests.native.sim import BEATING, KNOWN, Message, ready, start


def is_pong(message: Message) -> bool:
    """Whether a message answers a ping."""
    return "pong" in message


def test_a_ping_is_answered_when_idle() -> None:
    """With its own nonce, whatever whole number that is."""
    with ready() as worker:
        for nonce in (0, -1, 2**64 - 1):
            assert worker.ask(op="ping", nonce=nonce) == {"pong": nonce}


def test_a_ping_is_answered_while_the_worker_decodes() -> None:
    """Between two tokens, before the answer is over."""
    with ready() as worker:
        worker.send(prompt="x sim.tokens=1000 sim.tps=100", cancel_request_id=1)
        worker.receive()
        worker.send(op="ping", nonce=5)
        messages = worker.receive_until(is_pong)
        assert messages[-1] == {"pong": 5}
        assert all("token" in message for message in messages[:-1])
        worker.cancel(1)
        assert worker.finish()[1]["cancelled"] is True


def test_a_ping_is_answered_while_the_engine_hangs() -> None:
    """The process lives, which is all that a pong says; the beats say the rest."""
    with start() as worker:
        worker.receive()
        worker.send(prompt="x sim.hang=prefill")
        worker.send(op="ping", nonce=1)
        assert worker.receive() == {"pong": 1}


def test_a_ping_without_a_number_is_an_error() -> None:
    """It waits its turn like any other request."""
    with ready() as worker:
        assert "error" in worker.ask(op="ping")
        assert "error" in worker.ask(op="ping", nonce="1")
        assert worker.ask(op="ping", nonce=1) == {"pong": 1}


def test_a_slow_prefill_beats() -> None:
    """The phase is prefill, done stands still within a batch, beats go on."""
    with ready(env=BEATING) as worker:
        worker.send(prompt="a b c sim.slow=prefill", cancel_request_id=1)
        beats = [worker.receive()["heartbeat"] for _ in range(5)]
        worker.cancel(1)
        assert worker.finish()[1]["cancelled"] is True
    assert {(beat["phase"], beat["total"]) for beat in beats} == {("prefill", 3)}
    counts = [beat["beats"] for beat in beats]
    assert sorted(counts) == counts
    assert counts[0] < counts[-1]


def test_a_long_prompt_shows_its_progress() -> None:
    """Batch by batch."""
    with ready(env=BEATING) as worker:
        worker.send(prompt="word " * 2000 + "sim.prefill_ms=400 sim.tokens=1")
        messages = worker.receive_until(lambda message: "token" in message)
    done = [message["heartbeat"]["done"] for message in messages[:-1]]
    assert sorted(done) == done
    assert {0, 512, 1024, 1536} <= set(done) <= {0, 512, 1024, 1536, 2000}


def test_decoding_beats_with_its_tokens() -> None:
    """``done`` counts tokens, ``total`` the most that there can be."""
    with ready(env=BEATING) as worker:
        worker.send(prompt="x sim.tps=50", max_new_tokens=10)
        messages = worker.receive_until(lambda message: "done" in message)
    tokens = 0
    for message in messages:
        if "token" in message:
            tokens += 1
        elif "heartbeat" in message and message["heartbeat"]["phase"] == "decode":
            assert message["heartbeat"]["total"] == 10
            assert message["heartbeat"]["done"] in {tokens, tokens + 1}
    assert tokens == 10


def test_an_engine_that_hangs_keeps_telling_that_nothing_moves() -> None:
    """Heartbeats whose beats stand still."""
    with start(env=BEATING) as worker:
        worker.receive_until(lambda message: "ready" in message)
        worker.send(prompt="x sim.hang=decode sim.hang_at=1")
        worker.receive_until(lambda message: "token" in message)
        beats = [worker.receive()["heartbeat"] for _ in range(5)]
        assert {(beat["phase"], beat["done"]) for beat in beats[1:]} == {("decode", 1)}
        assert len({beat["beats"] for beat in beats[1:]}) == 1


def test_an_idle_worker_is_silent() -> None:
    """No heartbeat comes after a terminal: the next line is the answer to the next request."""
    with ready(env={**KNOWN, "SUPERVISORD_LLM_HEARTBEAT_MS": "1"}) as worker:
        for nonce in range(100):
            worker.send(prompt="x sim.tokens=1")
            worker.receive_until(lambda message: "done" in message)
            assert worker.ask(op="ping", nonce=nonce) == {"pong": nonce}
