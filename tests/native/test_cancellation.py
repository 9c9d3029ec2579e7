from __future__ import annotations

import struct

import pytest

from tests.native.sim import PLAIN, Message, SimWorker, ready, start

LONG = "x sim.tokens=100000 sim.tps=100"


def is_cancelled(done: Message) -> bool:
    """Whether a terminal is the one of a cancelled request."""
    return (
        done.get("cancelled") is True
        and done["finish_reason"] == "stop"
        and "generated_token_ids" not in done
    )


def serves_on(worker: SimWorker, request: int) -> bool:
    """Whether the next request is answered in full."""
    text, done = worker.generate("y sim.tokens=3", cancel_request_id=request)
    return text == "t0 t1 t2 " and "cancelled" not in done


def test_a_cancel_in_decode_ends_the_answer_and_only_that() -> None:
    """The worker serves the next request as if nothing had been."""
    with ready(env=PLAIN) as worker:
        worker.send(prompt=LONG, cancel_request_id=1)
        assert worker.receive() == {"token": "t0 "}
        worker.cancel(1)
        _, done = worker.finish()
        assert is_cancelled(done)
        assert done["completion_tokens"] < 100
        assert serves_on(worker, 2)


@pytest.mark.parametrize("prompt", ["x sim.slow=prefill", "x sim.prefill_ms=3600000"])
def test_a_cancel_in_prefill_interrupts_it(prompt: str) -> None:
    """A prefill that would last for ever ends at once."""
    with ready() as worker:
        worker.send(prompt=prompt, cancel_request_id=1)
        worker.cancel(1)
        text, done = worker.finish()
        assert (text, is_cancelled(done)) == ("", True)
        assert serves_on(worker, 2)


def test_a_prefill_that_cannot_be_interrupted_is_cancelled_behind_it() -> None:
    """The cancel waits for the end of the prefill; no token is made then."""
    with ready("--no_cancel_prefill") as worker:
        worker.send(prompt="x sim.prefill_ms=300", cancel_request_id=1)
        worker.cancel(1)
        text, done = worker.finish()
        assert (text, is_cancelled(done)) == ("", True)


def test_a_cancel_sent_ahead_waits_for_its_request() -> None:
    """Also several requests ahead. They are read before the ready line, so before any request."""
    with start("--load_ms", "100") as worker:
        worker.cancel(3)
        worker.cancel(1)
        worker.receive()
        results = []
        for request in range(1, 5):
            worker.send(prompt="x sim.tokens=2", cancel_request_id=request)
            results.append(is_cancelled(worker.finish()[1]))
        assert results == [True, False, True, False]


def test_a_cancel_queued_before_the_worker_was_ready_counts() -> None:
    """It is read before the ready line is written."""
    with start("--load_ms", "100") as worker:
        worker.cancel(1)
        worker.receive()
        _, done = worker.generate(LONG, cancel_request_id=1)
        assert is_cancelled(done)


def test_repeated_and_late_frames_change_nothing() -> None:
    """A frame may be written as often as one likes, and arrive when all is over."""
    with ready() as worker:
        worker.send(prompt=LONG, cancel_request_id=1)
        for _ in range(20):
            worker.cancel(1)
        assert is_cancelled(worker.finish()[1])
        for _ in range(20):
            worker.cancel(1)
        assert serves_on(worker, 2)


def test_a_frame_in_pieces_is_one_frame() -> None:
    """The eighth byte makes it."""
    with ready() as worker:
        worker.send(prompt=LONG, cancel_request_id=258)
        frame = struct.pack("<Q", 258)
        for at in range(len(frame)):
            assert worker.receive() == {"token": f"t{at} "}
            worker.send_control(frame[at : at + 1])
        assert is_cancelled(worker.finish()[1])


@pytest.mark.parametrize("seam", ["before_detach", "after_flush", "before_read"])
def test_a_cancel_for_the_next_request_between_two_is_not_lost(seam: str) -> None:
    """Wherever the worker is between two requests, the frame counts for the second."""
    with ready() as worker:
        worker.send(prompt=f"x sim.tokens=1 sim.pause_at={seam}:200", cancel_request_id=1)
        assert worker.receive() == {"token": "t0 "}
        if seam != "before_detach":
            assert worker.receive()["done"] is True
        worker.cancel(2)
        if seam == "before_detach":
            _, done = worker.finish()
            assert "cancelled" not in done
        _, done = worker.generate(LONG, cancel_request_id=2)
        assert is_cancelled(done)


def test_a_cancel_after_the_outcome_is_decided_is_late() -> None:
    """It is decided before the last token is written; the terminal comes later."""
    with ready() as worker:
        prompt = "x sim.pause_at=before_detach:200"
        worker.send(prompt=prompt, max_new_tokens=1, cancel_request_id=1)
        assert worker.receive() == {"token": "t0 "}
        worker.cancel(1)
        _, done = worker.finish()
        assert (done["finish_reason"], "cancelled" in done) == ("length", False)


def test_the_cancel_of_a_refused_request_goes_with_it() -> None:
    """It neither blocks the next one's nor hits it."""
    with ready() as worker:
        worker.cancel(1)
        assert "error" in worker.ask(prompt="", cancel_request_id=1)
        worker.cancel(1)
        assert serves_on(worker, 2)
        worker.cancel(3)
        assert is_cancelled(worker.generate(LONG, cancel_request_id=3)[1])


def test_a_used_id_is_refused() -> None:
    """Each request needs a larger one."""
    with ready() as worker:
        assert serves_on(worker, 5)
        for used in (5, 4):
            assert "stale" in worker.ask(prompt="x", cancel_request_id=used)["error"]
        assert serves_on(worker, 6)


def test_a_request_without_an_id_is_served_and_cannot_be_cancelled() -> None:
    """On a worker that can cancel."""
    with ready() as worker:
        assert worker.generate("x sim.tokens=2")[0] == "t0 t1 "


def test_the_end_of_the_control_pipe_costs_only_the_cancellation() -> None:
    """Requests go on."""
    with ready() as worker:
        worker.close_control()
        assert serves_on(worker, 1)


def test_a_cancelled_request_whose_engine_fails_was_cancelled() -> None:
    """The client asked for its end and gets it, not an error."""
    with start("--load_ms", "100") as worker:
        worker.cancel(1)
        worker.receive()
        _, done = worker.generate("x sim.error=no_luck", cancel_request_id=1)
        assert is_cancelled(done)


def test_a_deaf_request_runs_to_its_end() -> None:
    """``ignore_cancel`` is of one request; the next one hears again."""
    with ready() as worker:
        worker.cancel(1)
        worker.send(prompt="x sim.tokens=20 sim.tps=200 sim.ignore_cancel", cancel_request_id=1)
        assert worker.receive() == {"token": "t0 "}
        worker.cancel(1)
        text, done = worker.finish()
        assert (len(text.split()), "cancelled" in done) == (19, False)
        worker.cancel(2)
        assert is_cancelled(worker.generate(LONG, cancel_request_id=2)[1])


def test_a_late_done_comes_after_silence() -> None:
    """Pings are answered meanwhile, so the order shows that it was late."""
    with ready() as worker:
        worker.send(prompt=LONG + " sim.late_done=300", cancel_request_id=1)
        worker.receive()
        worker.cancel(1)
        worker.send(op="ping", nonce=1)
        messages = worker.receive_until(lambda message: "done" in message)
        assert {"pong": 1} in messages
        assert is_cancelled(messages[-1])


def test_a_thousand_cancels_at_any_moment_leave_one_terminal_each() -> None:
    """Frames race with short answers; each request is either whole or cancelled."""
    with ready() as worker:
        cancelled = 0
        for request in range(1, 1001):
            worker.send(prompt=f"x sim.tokens={request % 7 + 1}", cancel_request_id=request)
            worker.cancel(request)
            text, done = worker.finish()
            if is_cancelled(done):
                cancelled += 1
            else:
                assert done["completion_tokens"] == request % 7 + 1 == len(text.split())
        assert cancelled <= 1000
        assert serves_on(worker, 1001)
