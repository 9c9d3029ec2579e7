"""Whole exchanges, line by line, as the upstream workers and ours have them."""

from __future__ import annotations

import msgspec
import pytest

from supervisord_llm.core.words import FinishReason, Phase
from supervisord_llm.wire.messages import (
    Done,
    Failed,
    Generate,
    Heartbeat,
    Message,
    Pong,
    ProbeAck,
    Ready,
    SessionDone,
    SessionOp,
    SessionRefused,
    Tokens,
)
from tests.wire.connections import DONE, HI, generating, idle, line, loading, probing

UPSTREAM_READY = b'{"ready":true,"max_sessions":4,"max_named_sessions":3,"supports_cancel":true}\n'


def test_a_cancelled_generation_of_an_upstream_worker() -> None:
    """Ready, a request with its cancel id, tokens, and a terminal that confesses the cancel."""
    connection = loading()

    expected: list[Message] = [Ready(max_sessions=4, max_named_sessions=3, supports_cancel=True)]
    assert expected == connection.receive(UPSTREAM_READY)

    request = Generate(
        prompt="Hi", max_new_tokens=64, temperature=0.0, top_p=1.0, top_k=0, seed=0, stop=()
    )
    assert (
        b'{"prompt":"Hi","max_new_tokens":64,"temperature":0.0,"top_p":1.0,"top_k":0,"seed":0,'
        b'"stop":[],"cancel_request_id":7}\n'
    ) == connection.send_generate(request, 7)

    assert [Tokens(7, ["Hel"])] == connection.receive(b'{"token":"Hel"}\n')
    assert [Tokens(7, ["lo"])] == connection.receive(b'{"token":"lo"}\n')
    terminal = (
        b'{"done":true,"finish_reason":"stop","cancelled":true,"prompt_tokens":2,'
        b'"completion_tokens":2,"reused_prompt_tokens":0,"prefilled_prompt_tokens":2,'
        b'"session_reset_reason":"new","prefill_ms":1.5,"decode_ms":2.5,"total_ms":4,'
        b'"prefill_tok_s":1333.3,"decode_tok_s":800.0}\n'
    )
    done = Done(
        wire_id=7,
        finish_reason=FinishReason.STOP,
        cancelled=True,
        prompt_tokens=2,
        completion_tokens=2,
        prefill_ms=1.5,
        decode_ms=2.5,
        total_ms=4.0,
    )
    assert [done] == connection.receive(terminal)


def test_a_worker_without_cancellation_sees_the_legacy_request() -> None:
    """A cancel id is never sent to a worker that would refuse it."""
    connection = idle(b'{"ready":true}\n')

    assert b'{"prompt":"Hi","stop":[]}\n' == connection.send_generate(HI, 1)


def test_what_a_request_leaves_open_is_not_on_the_wire() -> None:
    """A choice that nobody made stays the worker's."""
    sent = idle().send_generate(Generate(prompt="é", temperature=0.5, stop=("\n",)), 3)

    expected = {"prompt": "é", "temperature": 0.5, "stop": ["\n"], "cancel_request_id": 3}
    assert expected == msgspec.json.decode(sent)


def test_a_prompt_of_token_ids_is_one_segment() -> None:
    """Nothing is added to them, and there is no text beside them."""
    sent = idle().send_generate(Generate(prompt=(504, 2260)), 3)

    expected = {"prompt_segments": [{"ids": [504, 2260]}], "stop": [], "cancel_request_id": 3}
    assert expected == msgspec.json.decode(sent)


def test_an_error_ends_its_request_and_nothing_else() -> None:
    """After an error the worker takes the next request."""
    connection = generating()

    assert [Failed(7, "no room", "capacity_exhausted")] == connection.receive(
        b'{"error":"no room","code":"capacity_exhausted","session_id":"s9"}\n'
    )
    connection.send_generate(HI, 8)
    assert [Failed(8, "bad sampling")] == connection.receive(b'{"error":"bad sampling"}\n')


def test_a_long_error_is_cut() -> None:
    """It is kept with its request and in the event log, for which a line's length is too much."""
    connection = generating()
    [failed] = connection.receive(line({"error": "x" * 1500, "code": "y" * 1500}))
    assert failed == Failed(7, "x" * 500 + "…", "y" * 500 + "…")


def test_runs_of_tokens_of_one_read_are_one_message() -> None:
    """A heartbeat between tokens divides the run, and order is kept."""
    connection = generating()
    data = (
        b'{"token":"a"}\n{"token":"b"}\n'
        b'{"heartbeat":{"phase":"decode","done":2,"total":64,"beats":90}}\n'
        b'{"token":""}\n' + line(DONE)
    )

    tokens, beat, more, done = connection.receive(data)

    assert Tokens(7, ["a", "b"]) == tokens
    assert Heartbeat(phase=Phase.DECODE, done=2, total=64, beats=90) == beat
    assert Tokens(7, [""]) == more
    assert isinstance(done, Done)


def test_a_whole_prompt_may_be_reused() -> None:
    """As many prompt tokens as there are, and no more, can come from the session."""
    (done,) = generating().receive(line(DONE | {"reused_prompt_tokens": 2, "prompt_tokens": 2}))

    assert isinstance(done, Done)
    assert 2 == done.reused_prompt_tokens


@pytest.mark.parametrize(
    "text", ["a: b", "1, 2", '{"a": 1, "b": 2}', '"token":', "\\", "a\nb", "é", "\x00", "🙂"]
)
def test_text_that_looks_like_protocol_is_text(text: str) -> None:
    """Colons, commas, quotes and braces in the output change nothing."""
    assert [Tokens(7, [text])] == generating().receive(line({"token": text}))


def test_keys_that_a_worker_adds_are_passed_over() -> None:
    """A model's extras in any line do not hurt."""
    connection = loading()
    ready = line({"ready": True, "supports_image": True, "max_images": 4})
    assert [Ready()] == connection.receive(ready)
    connection.send_generate(HI, 1)
    assert [Tokens(1, ["a"])] == connection.receive(line({"token": "a", "logprob": -0.5}))

    (done,) = connection.receive(line(DONE | {"vision_encoder_ms": 12.5, "cancelled": False}))

    assert isinstance(done, Done)
    assert not done.cancelled


@pytest.mark.parametrize(
    "reply",
    [
        {"closed": True, "session_id": "__probe__"},
        {"closed": True},
        {"error": "no such session"},
    ],
)
def test_the_idle_probe_is_answered_by_whatever_comes_in_step(reply: object) -> None:
    """The acknowledgement, with or without its echo; an error shows a live worker as well."""
    connection = idle()

    assert b'{"op":"close","session_id":"__probe__"}\n' == connection.send_probe()
    assert [ProbeAck()] == connection.receive(line(reply))
    connection.send_generate(HI, 1)


def test_a_generation_names_its_session() -> None:
    """Under the key that workers know, and only where there is one."""
    sent = idle().send_generate(Generate(prompt="Hi", session_id="s\u00e9"), 1)

    expected = {"prompt": "Hi", "stop": [], "session_id": "s\u00e9", "cancel_request_id": 1}
    assert expected == msgspec.json.decode(sent)


@pytest.mark.parametrize(
    ("op", "key"),
    [(SessionOp.OPEN, "opened"), (SessionOp.CLOSE, "closed"), (SessionOp.RESET, "reset")],
)
def test_an_operation_on_a_session_is_acknowledged_or_refused(op: SessionOp, key: str) -> None:
    """With or without its echo; a refusal brings its code; then the worker takes the next one."""
    connection = idle()
    send = {
        SessionOp.OPEN: connection.send_open,
        SessionOp.CLOSE: connection.send_close,
        SessionOp.RESET: connection.send_reset,
    }[op]

    for reply in ({key: True, "session_id": "s1"}, {key: True}):
        assert f'{{"op":"{op}","session_id":"s1"}}\n'.encode() == send("s1")
        assert [SessionDone(op, "s1")] == connection.receive(line(reply))

    send("s1")
    assert [SessionRefused(op, "s1", "no room", "capacity_exhausted")] == connection.receive(
        b'{"error":"no room","code":"capacity_exhausted","session_id":"s1"}\n'
    )
    send("s1")
    assert [SessionRefused(op, "s1", "no luck")] == connection.receive(b'{"error":"no luck"}\n')
    connection.send_generate(HI, 1)


def test_pings_stand_beside_a_generation() -> None:
    """A pong falls between tokens, in any order with other pongs, and ends nothing."""
    connection = generating()

    assert b'{"op":"ping","nonce":1}\n' == connection.send_ping(1)
    connection.send_ping(2)
    data = b'{"token":"a"}\n{"pong":2}\n{"token":"b"}\n{"pong":1}\n'
    expected = [Tokens(7, ["a"]), Pong(2), Tokens(7, ["b"]), Pong(1)]
    assert expected == connection.receive(data)


def test_pings_and_heartbeats_stand_beside_the_probe() -> None:
    """The probe still waits for its own answer."""
    connection = probing()
    connection.send_ping(1)
    data = b'{"pong":1}\n{"heartbeat":{"phase":"prefill","beats":1}}\n{"closed":true}\n'

    pong, beat, ack = connection.receive(data)

    assert Pong(1) == pong
    assert isinstance(beat, Heartbeat)
    assert ProbeAck() == ack
