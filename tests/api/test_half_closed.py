"""A client that closes its sending side has cancelled, and is told so: it still reads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trio

from supervisord_llm.core.words import Outcome
from supervisord_llm.events import CancelSettled, RequestFinished, WorkerReady
from tests.api.house import House, ask, house, read
from tests.api.raw import post, read_to_end, read_until, stream_lines
from tests.harness import QUICK

GENERATE = "/api/v1/generate"
ENDLESS = "x sim.tokens=100000 sim.tps=100"


def body(prompt: str) -> bytes:
    """A generation of the pool ``sim``."""
    return f'{{"pool": "sim", "prompt": "{prompt}", "max_new_tokens": 100000}}'.encode()


async def rest_of(stream: trio.SocketStream) -> list[dict[str, Any]]:
    """The lines that still come, up to the end of the reply and of the connection."""
    lines = await stream_lines(stream, lambda line: line["event"] == "finished")
    assert lines is not None
    assert await read_to_end(stream) in {b"", b"0\r\n\r\n", b"\r\n0\r\n\r\n"}
    return lines


def check_cancelled(finished: Mapping[str, Any], answered_by: str) -> None:
    """The last line says that the client has cancelled."""
    assert (finished["event"], finished["outcome"]) == ("finished", "cancelled")
    assert finished["cancelled_by"] == "client"
    assert finished["cancel"]["answered_by"] == answered_by


@pytest.mark.parametrize(
    ("prompt", "mark"),
    [(ENDLESS, b'"token"'), ("x sim.slow=prefill", b'"started"')],
    ids=["decode", "prefill"],
)
async def test_the_stream_still_ends_with_its_last_line(
    tmp_path: Path, prompt: str, mark: bytes
) -> None:
    """As the worker acknowledges it; then the connection is closed."""
    async with house(tmp_path) as at:
        async with await trio.open_unix_socket(at.socket) as stream:
            await stream.send_all(post(GENERATE, body(prompt)))
            await read_until(stream, mark)
            await stream.send_eof()
            lines = await rest_of(stream)
        check_cancelled(lines[-1], "worker")
        assert {line["event"] for line in lines[:-1]} <= {"token"}
        await serves(at)


async def test_a_request_that_waits_is_answered_at_once(tmp_path: Path) -> None:
    """It leaves the queue, and the one before it runs on."""
    async with house(tmp_path) as at, at.client.generate(ask("y sim.tokens=50 sim.tps=100")) as one:
        async with await trio.open_unix_socket(at.socket) as stream:
            await stream.send_all(post(GENERATE, body("x")))
            await read_until(stream, b'"accepted"')
            await stream.send_eof()
            [finished] = await rest_of(stream)
        check_cancelled(finished, "queue")
        _, finished_one = await read(one)
        assert finished_one.outcome is Outcome.COMPLETED


async def test_a_request_and_the_end_in_one_go_are_answered(tmp_path: Path) -> None:
    """What a tool does that sends all it has and then closes: it is cancelled, and reads that."""
    async with house(tmp_path) as at:
        async with await trio.open_unix_socket(at.socket) as stream:
            await stream.send_all(post(GENERATE, body(ENDLESS)))
            await stream.send_eof()
            lines = await rest_of(stream)
        assert lines[0]["event"] == "accepted"
        assert (lines[-1]["outcome"], lines[-1]["cancelled_by"]) == ("cancelled", "client")
        await serves(at)


async def test_a_deaf_worker_does_not_hold_the_last_line(tmp_path: Path) -> None:
    """It comes when the grace is over."""
    async with house(tmp_path) as at:
        async with await trio.open_unix_socket(at.socket) as stream:
            await stream.send_all(post(GENERATE, body(ENDLESS + " sim.ignore_cancel")))
            await read_until(stream, b'"token"')
            await stream.send_eof()
            lines = await rest_of(stream)
        check_cancelled(lines[-1], "grace")
        assert 500 <= lines[-1]["cancel"]["elapsed_ms"] < 2000
        await at.wait(WorkerReady, 2)
        await serves(at)


async def test_a_client_that_is_gone_altogether_holds_nothing(tmp_path: Path) -> None:
    """The rest is written to nobody, and no worker waits for it to be read."""
    async with house(tmp_path, settings=QUICK + "queue.mailbox_tokens = 8\n") as at:
        for prompt in (ENDLESS, "x sim.tokens=100000 sim.tps=5000 sim.late_done=200"):
            async with await trio.open_unix_socket(at.socket) as stream:
                await stream.send_all(post(GENERATE, body(prompt)))
                await read_until(stream, b'"token"')
        await at.wait(CancelSettled, 2)
        assert [event.resolution for event in at.all(CancelSettled)] == ["cooperative"] * 2
        await serves(at)


async def serves(at: House) -> None:
    """See that the next request is answered, and that each had one end."""
    async with at.client.generate(ask("z sim.tokens=2")) as stream:
        text, finished = await read(stream)
    assert ("t0 t1 ", Outcome.COMPLETED) == (text, finished.outcome)
    ended = [event.request for event in at.all(RequestFinished)]
    assert len(ended) == len(set(ended))
