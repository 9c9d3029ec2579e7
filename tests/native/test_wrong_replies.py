from __future__ import annotations

import json
import os
import signal

import psutil
import pytest

from tests.native.sim import SimWorker, ready, start, wait_until

SESSION = {"op": "close", "session_id": "__probe__"}


def test_a_worker_can_write_a_line_of_any_length() -> None:
    """Ten million bytes of one token; what follows is in order again."""
    with ready() as worker:
        worker.send(prompt="x sim.big_line=10000000 sim.at=1 sim.tokens=2")
        lines = [worker.receive_line() for _ in range(4)]
    assert [len(json.loads(line)["token"]) for line in lines[:3]] == [3, 10_000_000, 3]
    assert json.loads(lines[3])["done"] is True


def test_a_worker_can_close_its_stdout_and_live() -> None:
    """The end of the pipe comes after the tokens before it, and the process stays."""
    with start() as worker:
        worker.receive()
        worker.send(prompt="x sim.close_stdout sim.at=1")
        assert worker.receive_rest() == b'{"token":"t0 "}\n'
        wait_until(lambda: psutil.Process(worker.process.pid).status() == psutil.STATUS_SLEEPING)
        assert worker.process.poll() is None
        worker.process.terminate()
        assert worker.wait() == -signal.SIGTERM


def test_a_worker_can_end_a_request_twice() -> None:
    """The second terminal is well-formed, and follows the first one."""
    with ready() as worker:
        _, done = worker.generate("x sim.tokens=1 sim.two_dones")
        assert done["completion_tokens"] == 1
        assert worker.receive()["done"] is True
        assert worker.generate("x sim.tokens=1")[0] == "t0 "


@pytest.mark.parametrize("how", ["option", "directive"])
def test_an_idle_worker_can_end_what_nobody_asked_for(how: str) -> None:
    """Once; after the ready line, or after a request's own terminal."""
    with ready(*(["--stray_done", "0"] if how == "option" else [])) as worker:
        if how == "directive":
            assert worker.generate("x sim.tokens=1 sim.stray_done=0")[0] == "t0 "
        assert worker.receive()["done"] is True
        assert worker.generate("x sim.tokens=2")[0] == "t0 t1 "


def test_a_worker_can_acknowledge_the_wrong_session() -> None:
    """Everything else about the reply is right."""
    with ready("--wrong_session") as worker:
        assert worker.ask(**SESSION) == {"closed": True, "session_id": "somebody"}
        assert worker.generate("x sim.tokens=1")[0] == "t0 "
    with ready() as worker:
        assert worker.ask(**SESSION) == {"closed": True, "session_id": "__probe__"}


def test_a_worker_can_answer_another_ping() -> None:
    """A pong with a nonce that was not sent."""
    with ready("--wrong_nonce") as worker:
        assert worker.ask(op="ping", nonce=7) == {"pong": 2**32 - 1}


def fill(worker: SimWorker) -> int:
    """Write lines to stdin until the worker takes no more; how many bytes that were."""
    assert worker.process.stdin is not None
    descriptor = worker.process.stdin.fileno()
    os.set_blocking(descriptor, False)
    written = 0
    line = b'{"op": "ping", "nonce": 1}\n'
    try:
        # Beyond the largest pipe there can be: a worker that reads would end the loop by that.
        while written < 1 << 22:
            written += os.write(descriptor, line)
    except BlockingIOError:
        pass
    return written


@pytest.mark.parametrize("how", ["option", "directive"])
def test_a_worker_can_stop_reading(how: str) -> None:
    """Its input fills up and is not broken; it goes on with what it has and hears cancels."""
    with start(*(["--deaf"] if how == "option" else [])) as worker:
        worker.receive()
        if how == "directive":
            worker.send(prompt="x sim.deaf sim.tps=100 sim.tokens=100000", cancel_request_id=1)
            worker.receive()
        assert fill(worker) <= 1 << 20
        if how == "directive":
            worker.cancel(1)
            assert worker.finish()[1]["cancelled"] is True
        assert worker.process.stdin is not None
        worker.process.stdin.close()
        assert worker.process.poll() is None
        worker.process.terminate()
        assert worker.receive_rest() == b""
        assert worker.wait() == -signal.SIGTERM
