from __future__ import annotations

import json
import os
import signal
import time

import psutil
import pytest

from tests.native.sim import SimWorker, ready, start, wait_until


def state(worker: SimWorker) -> str:
    """The process state of the worker, as psutil names it."""
    return psutil.Process(worker.process.pid).status()


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        ("exit=0", 0),
        ("exit=7", 7),
        ("signal=SEGV", -signal.SIGSEGV),
        ("signal=SIGKILL", -signal.SIGKILL),
        ("signal=PIPE", -signal.SIGPIPE),
        ("abort", -signal.SIGABRT),
    ],
)
def test_a_worker_can_end_itself_in_any_way(fault: str, status: int) -> None:
    """After the tokens before ``at``, and with nothing behind them."""
    with start() as worker:
        worker.receive()
        worker.send(prompt=f"x sim.at=2 sim.{fault}")
        lines = worker.receive_rest().splitlines()
        assert [json.loads(line) for line in lines] == [{"token": "t0 "}, {"token": "t1 "}]
        assert status == worker.wait()


@pytest.mark.parametrize("during", ["load", "prefill"])
def test_a_worker_can_end_itself_early(during: str) -> None:
    """While it loads, or before the first token."""
    with start("--exit", "3", "--during", during) as worker:
        if during == "prefill":
            worker.receive()
            worker.send(prompt="x")
        assert worker.receive_rest() == b""
        assert worker.wait() == 3


def test_a_worker_can_stop_itself() -> None:
    """SIGSTOP: it does nothing until it is continued, then it goes on."""
    with ready() as worker:
        worker.send(prompt="x sim.at=1 sim.signal=STOP sim.tokens=2")
        assert worker.receive() == {"token": "t0 "}
        wait_until(lambda: state(worker) == psutil.STATUS_STOPPED)
        worker.process.send_signal(signal.SIGCONT)
        assert worker.finish()[0] == "t1 "


def test_a_worker_can_write_garbage() -> None:
    """One line that is not JSON, between two that are."""
    with ready() as worker:
        worker.send(prompt="x sim.at=1 sim.garbage sim.tokens=2")
        lines = [worker.receive_line() for _ in range(4)]
    assert lines[:3] == ['{"token":"t0 "}', "this is not JSON", '{"token":"t1 "}']
    assert json.loads(lines[3])["done"] is True


def test_a_worker_can_break_off_in_a_line() -> None:
    """Half an object, no end of line, status 0."""
    with start() as worker:
        worker.receive()
        worker.send(prompt="x sim.at=1 sim.half_line")
        assert worker.receive_rest() == b'{"token":"t0 "}\n{"token": "hal'
        assert worker.wait() == 0


def test_a_request_can_fail() -> None:
    """The error is of that request; its tokens were sent before."""
    with ready() as worker:
        text, failed = worker.generate("x sim.at=2 sim.error=out_of_luck")
        assert (text, failed) == ("t0 t1 ", {"error": "out of luck"})
        assert worker.generate("x sim.tokens=1")[0] == "t0 "


@pytest.mark.parametrize("stage", ["prefill", "decode"])
def test_a_hung_worker_hears_no_cancel_but_dies_of_sigterm(stage: str) -> None:
    """It is silent until then."""
    with start() as worker:
        worker.receive()
        worker.send(prompt=f"x sim.hang={stage} sim.stderr=1", cancel_request_id=1)
        assert worker.process.stderr is not None
        assert worker.process.stderr.readline() == b"sim: line 0\n"
        wait_until(lambda: state(worker) == psutil.STATUS_SLEEPING)
        worker.cancel(1)
        worker.send(op="ping", nonce=1)
        assert worker.receive() == {"pong": 1}
        worker.process.terminate()
        assert worker.receive_rest() == b""
        assert worker.wait() == -signal.SIGTERM


@pytest.mark.parametrize("how", ["option", "directive"])
def test_sigterm_can_be_ignored(how: str) -> None:
    """From the start, or from a request on; the work goes on."""
    with ready(*(["--ignore_sigterm"] if how == "option" else [])) as worker:
        if how == "directive":
            worker.generate("x sim.ignore_sigterm")
        worker.process.terminate()
        assert worker.generate("x sim.tokens=1")[0] == "t0 "


def test_the_end_of_input_can_be_ignored() -> None:
    """It answers all and stays."""
    with start("--ignore_eof") as worker:
        worker.receive()
        assert worker.process.stdin is not None
        worker.send(prompt="x sim.tokens=1")
        worker.process.stdin.close()
        assert worker.finish()[0] == "t0 "
        wait_until(lambda: psutil.Process(worker.process.pid).num_threads() == 3)
        assert worker.process.poll() is None


def test_stderr_lines_come_before_the_first_token() -> None:
    """As many as asked for."""
    with ready() as worker:
        worker.generate("x sim.stderr=3")
        assert worker.leave() == 0
        assert worker.stderr() == "sim: line 0\nsim: line 1\nsim: line 2\n"


@pytest.mark.parametrize("how", ["option", "directive"])
def test_a_worker_can_have_descendants(how: str) -> None:
    """Two in its group, one with a session of its own; they outlive it."""
    words = ["--spawn", "2", "--spawn_detached", "1"]
    with ready(*(words if how == "option" else [])) as worker:
        if how == "directive":
            worker.generate("x sim.spawn=2 sim.spawn_detached=1")
        else:
            worker.generate("x")
        pid = worker.process.pid
        found = psutil.Process(pid).children()
        try:
            wait_until(
                lambda: (
                    sorted(os.getsid(each.pid) == pid for each in found)
                    == [
                        *(False, True, True),
                    ]
                )
            )
            assert [os.getpgid(each.pid) == pid for each in found].count(True) == 2
            assert worker.leave() == 0
            assert all(each.is_running() for each in found)
        finally:
            for each in found:
                each.kill()


def test_the_pace_is_as_asked() -> None:
    """Five tokens at 50 a second take a tenth of a second, not less."""
    with ready() as worker:
        before = time.monotonic()
        worker.generate("x sim.tokens=5 sim.tps=50")
        assert time.monotonic() - before >= 0.1
