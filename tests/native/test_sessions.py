"""Sessions of a worker on its pipes: the lines themselves, and each race with a cancel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.native.sim import PLAIN, Message, SimWorker, ready, start, wait_until

Segment = dict[str, object]

LONG = "x sim.tokens=100000 sim.tps=100"


def turn(worker: SimWorker, segments: list[Segment], **fields: Any) -> Message:
    """One request in session ``s``, and its terminal."""
    worker.send(prompt_segments=segments, **{"session_id": "s", **fields})
    return worker.finish()[1]


def continued(segments: list[Segment], done: Message, text: str) -> list[Segment]:
    """The whole transcript after an answer, and what comes next."""
    return [*segments, {"ids": done["generated_token_ids"]}, {"text": text}]


def start_of(done: Message) -> tuple[str, int, int]:
    """How a request began: the reason, and the tokens reused and read."""
    return (
        done["session_reset_reason"],
        done["reused_prompt_tokens"],
        done["prefilled_prompt_tokens"],
    )


def test_the_ready_line_says_how_many_sessions_there_are() -> None:
    """One more than those with a name: the anonymous one."""
    with start("--sessions", "3", env=PLAIN) as worker:
        assert worker.receive_line() == (
            '{"ready":true,"max_sessions":4,"max_named_sessions":3,"supports_cancel":true}'
        )


def test_a_session_is_opened_reset_and_closed_as_often_as_one_likes() -> None:
    """Each operation is acknowledged with its key and the name, the first time and again."""
    with ready("--sessions", "1") as worker:
        for op, key in (("open", "opened"), ("reset", "reset"), ("close", "closed")):
            for _ in range(2):
                worker.send(op=op, session_id="s\u00e9")
                assert worker.receive_line() == f'{{"{key}":true,"session_id":"s\u00e9"}}'


def test_one_session_too_many_is_refused_until_one_is_closed() -> None:
    """Opened or named by a request: the code and the name are the same."""
    with ready("--sessions", "2") as worker:
        worker.ask(op="open", session_id="a")
        assert turn(worker, [{"text": "x sim.tokens=1"}], session_id="b")["done"] is True
        for refused in (
            worker.ask(op="open", session_id="c"),
            worker.ask(prompt="x", session_id="c"),
        ):
            assert (refused["code"], refused["session_id"]) == ("capacity_exhausted", "c")
        assert worker.ask(op="open", session_id="b")["opened"] is True
        assert worker.generate("x sim.tokens=1")[0] == "t0 "
        worker.ask(op="close", session_id="a")
        assert worker.ask(op="open", session_id="c")["opened"] is True


def test_the_idle_probe_is_no_session() -> None:
    """It takes no place, closes nobody's session, and nobody can have its name."""
    with ready("--sessions", "1") as worker:
        first = turn(worker, [{"text": "a sim.tokens=1"}])
        for _ in range(3):
            assert worker.ask(op="close", session_id="__probe__") == {
                "closed": True,
                "session_id": "__probe__",
            }
        for refused in (
            worker.ask(op="open", session_id="__probe__"),
            worker.ask(prompt="x", session_id="__probe__"),
        ):
            assert (refused["code"], refused["session_id"]) == ("unsupported_session", "__probe__")
        transcript = continued([{"text": "a"}], first, "b sim.tokens=1")
        assert start_of(turn(worker, transcript)) == ("exact_prefix", 2, 1)


def test_a_transcript_is_read_once() -> None:
    """Each turn reads what was added; anything else is read from its start, for a reason."""
    with ready("--sessions", "1") as worker:
        first = turn(worker, [{"text": "a b sim.tokens=3"}])
        assert start_of(first) == ("new", 0, 2)
        assert first["generated_token_ids"] == [0, 1, 2]
        transcript = continued([{"text": "a b"}], first, "c sim.tokens=2")
        second = turn(worker, transcript)
        assert start_of(second) == ("exact_prefix", 5, 1)
        assert start_of(turn(worker, transcript)) == ("mismatch", 0, 6)
        everything = [*transcript, {"ids": second["generated_token_ids"]}]
        assert start_of(turn(worker, everything)) == ("equal", 0, 8)
        worker.ask(op="reset", session_id="s")
        assert start_of(turn(worker, transcript)) == ("new", 0, 6)


def test_the_anonymous_session_is_new_each_time() -> None:
    """It never holds anything for the next request."""
    with ready("--sessions", "1") as worker:
        first = turn(worker, [{"text": "a sim.tokens=1"}], session_id="")
        transcript = continued([{"text": "a"}], first, "b sim.tokens=1")
        assert start_of(turn(worker, transcript, session_id="")) == ("new", 0, 3)


@pytest.mark.parametrize(
    ("spoiling", "fields"),
    [
        ("c sim.slow=prefill", {"cancel_request_id": 2}),
        ("c sim.prefill_ms=3600000", {"cancel_request_id": 2}),
        ("c sim.tps=0.001", {"cancel_request_id": 2}),
        ("c sim.text=the_END_of_it", {"stop": ["END"]}),
        ("c sim.error=no_luck", {}),
        ("c sim.error=no_luck sim.at=3", {}),
    ],
)
def test_what_spoils_a_session_makes_it_dirty(spoiling: str, fields: dict[str, Any]) -> None:
    """A cancel in prefill or decode, a stop string, a failure: the next request begins anew."""
    with ready("--sessions", "1") as worker:
        first = turn(worker, [{"text": "a sim.tokens=1"}], cancel_request_id=1)
        worker.send(
            prompt_segments=continued([{"text": "a"}], first, spoiling), session_id="s", **fields
        )
        if "cancel_request_id" in fields:
            worker.cancel(2)
        spoiled = worker.finish()[1]
        assert "generated_token_ids" not in spoiled
        transcript = continued([{"text": "a"}], first, "b sim.tokens=1")
        second = turn(worker, transcript)
        assert start_of(second) == ("dirty", 0, 3)
        again = continued([*transcript], second, "c sim.tokens=1")
        assert start_of(turn(worker, again)) == ("exact_prefix", 4, 1)


def test_a_reset_of_a_dirty_session_makes_it_new() -> None:
    """There is nothing left that could be dirty."""
    with ready("--sessions", "1") as worker:
        turn(worker, [{"text": "a sim.text=the_END"}], stop=["END"])
        worker.ask(op="reset", session_id="s")
        assert start_of(turn(worker, [{"text": "a sim.tokens=1"}])) == ("new", 0, 1)


@pytest.mark.parametrize("seam", ["before_detach", "after_flush", "before_read"])
def test_a_cancel_after_the_outcome_leaves_the_session_warm(seam: str) -> None:
    """Wherever the worker is behind the seal, the frame is late and spoils nothing."""
    with ready("--sessions", "1") as worker:
        prompt = f"a sim.pause_at={seam}:200"
        worker.send(prompt=prompt, session_id="s", max_new_tokens=1, cancel_request_id=1)
        assert worker.receive() == {"token": "t0 "}
        if seam == "before_detach":
            worker.cancel(1)
            first = worker.receive()
        else:
            first = worker.receive()
            worker.cancel(1)
        assert "cancelled" not in first
        transcript = continued([{"text": "a"}], first, "b sim.tokens=1")
        second = turn(worker, transcript, cancel_request_id=2)
        assert (start_of(second), "cancelled" in second) == (("exact_prefix", 2, 1), False)


def test_a_cancel_for_the_next_request_of_a_session_spoils_that_one_only() -> None:
    """The frame comes between the outcome of one and the beginning of the other."""
    with ready("--sessions", "1") as worker:
        worker.send(
            prompt="a sim.tokens=1 sim.pause_at=before_detach:200",
            session_id="s",
            cancel_request_id=1,
        )
        assert worker.receive() == {"token": "t0 "}
        worker.cancel(2)
        first = worker.receive()
        assert first["generated_token_ids"] == [0]
        transcript = continued([{"text": "a"}], first, LONG)
        second = turn(worker, transcript, cancel_request_id=2)
        assert (second["cancelled"], start_of(second)[0]) == (True, "exact_prefix")
        third = turn(worker, [{"text": "a sim.tokens=1"}], cancel_request_id=3)
        assert start_of(third) == ("dirty", 0, 1)


def test_a_request_that_is_refused_touches_no_session() -> None:
    """Neither its place nor what it holds, nor the next one's cancel."""
    with ready("--sessions", "1") as worker:
        first = turn(worker, [{"text": "a sim.tokens=1"}], cancel_request_id=1)
        for refused in (
            turn(worker, [{"text": "x"}], cancel_request_id=1),
            turn(worker, [{"text": ""}], cancel_request_id=2),
            turn(worker, [{"text": "sim.nonsense"}], cancel_request_id=3),
            turn(worker, [{"text": "x"}], cancel_request_id=4, session_id="other"),
            turn(worker, [{"text": "x"}], cancel_request_id=5, temperature=-1),
        ):
            assert refused["error"].startswith(("cannot ", "unknown "))
        transcript = continued([{"text": "a"}], first, "b sim.tokens=1")
        assert start_of(turn(worker, transcript, cancel_request_id=6)) == ("exact_prefix", 2, 1)


def test_a_refused_session_takes_its_cancel_with_it() -> None:
    """In an upstream worker the frame stays and the next request's is lost."""
    with start("--sessions", "1", "--load_ms", "100") as worker:
        worker.cancel(2)
        worker.cancel(3)
        worker.receive()
        turn(worker, [{"text": "x sim.tokens=1"}], cancel_request_id=1)
        refused = turn(worker, [{"text": "x"}], session_id="other", cancel_request_id=2)
        assert refused["code"] == "capacity_exhausted"
        assert turn(worker, [{"text": LONG}], cancel_request_id=3)["cancelled"] is True


@pytest.mark.parametrize(
    ("segments", "said"),
    [
        ("x", "prompt_segments"),
        ([], "prompt_segments"),
        ([{}], "a segment without text and ids"),
        ([{"text": 1}], "text"),
        ([{"ids": [-1]}], "ids"),
        ([{"image": {}}], "'image'"),
        ([{"ids": []}], "empty prompt"),
    ],
)
def test_bad_segments_are_an_error_and_the_worker_serves_on(segments: object, said: str) -> None:
    """The error names what is wrong."""
    with ready() as worker:
        assert said in worker.ask(prompt_segments=segments)["error"]
        assert "one of them" in worker.ask(prompt="x", prompt_segments=[{"text": "x"}])["error"]
        assert turn(worker, [{"text": "x sim.tokens=1"}], session_id="")["done"] is True


def test_a_worker_that_can_hear_no_more_says_so_once() -> None:
    """Its control pipe has ended: it serves on, but does not take cancel ids in silence."""
    with ready() as worker:
        assert worker.ask(op="ping", nonce=1) == {"pong": 1}  # all its threads run
        threads = Path(f"/proc/{worker.process.pid}/task")
        before = len(list(threads.iterdir()))
        worker.close_control()
        wait_until(lambda: len(list(threads.iterdir())) == before - 1)
        for request in (1, 2, 3):
            assert worker.generate("x sim.tokens=1", cancel_request_id=request)[0] == "t0 "
        assert worker.leave() == 0
        assert worker.stderr().count("the control pipe has ended") == 1
