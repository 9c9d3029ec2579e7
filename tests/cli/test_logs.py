from __future__ import annotations

from supervisord_llm.core.words import SlotState
from tests.cli.command import Done, llmctl, started
from tests.client import replies
from tests.client.fake_daemon import Exchange, FakeDaemon

LINES = [
    (
        b'{"event":"line","number":7,"at":"2026-05-04T03:02:01.123456Z","generation":3,'
        b'"text":"out of\\u0007 memory"}\n'
    ),
    b'{"event":"stream.gap","first":8,"last":10}\n',
    b'{"event":"line","number":11,"at":"2026-05-04T03:02:02Z","generation":4,"text":"loading"}\n',
]


def serve(daemon: FakeDaemon, **worker: object) -> None:
    """Let the slot have these lines, and its worker these facts."""

    async def logs(exchange: Exchange) -> None:
        await exchange.begin(*LINES)
        await exchange.end()

    daemon.answer("GET /api/v1/workers/smollm.0", replies.worker(**worker))  # type: ignore[arg-type]
    daemon.on("GET /api/v1/workers/smollm.0/logs", logs)


async def test_lines_have_their_time_and_generation(daemon: FakeDaemon) -> None:
    """What is lost is told, and a worker commands no terminal."""
    serve(daemon)

    done = await llmctl(daemon.socket, "logs", "smollm.0", TZ="UTC")

    assert (0, "") == (done.code, done.err)
    assert [
        "03:02:01.123 smollm.0/3 out of␇ memory",
        "(3 lines are gone: 8 to 10)",
        "03:02:02.000 smollm.0/4 loading",
    ] == done.out.splitlines()


async def test_json_lines_are_passed_on_as_they_are(daemon: FakeDaemon) -> None:
    """A program gets every byte, and the options become the query."""
    serve(daemon)

    done = await llmctl(daemon.socket, "logs", "smollm.0", "--json", "-n", "5")

    assert (0, b"".join(LINES).decode()) == (done.code, done.out)
    assert "GET /api/v1/workers/smollm.0/logs?lines=5" == daemon.asked[-1]


async def test_a_parked_slot_says_why_beside_its_log(daemon: FakeDaemon) -> None:
    """And what brings it back; the lines themselves are the output."""
    serve(daemon, state=SlotState.PARKED, pid=None, reason="load_timeout")

    done = await llmctl(daemon.socket, "logs", "smollm.0")

    assert (0, 3) == (done.code, done.out.count("\n"))
    expected = (
        "smollm.0 is parked because its workers failed too often (load_timeout: it was not ready "
        'in time); mend the cause, then run "llmctl resume smollm.0"\n'
    )
    assert expected == done.err


async def test_following_goes_on_until_ctrl_c(daemon: FakeDaemon) -> None:
    """Lines appear as they are written; the interrupt ends it without a word."""

    async def logs(exchange: Exchange) -> None:
        await exchange.begin(LINES[0])
        await exchange.wait_left()

    serve(daemon)
    daemon.on("GET /api/v1/workers/smollm.0/logs", logs)
    async with started(daemon.socket, "logs", "smollm.0", "-f", "-n", "0") as running:
        assert "out of" in await running.read()
        running.interrupt()
        done = await running.wait()

    assert Done(130) == done
    assert "GET /api/v1/workers/smollm.0/logs?follow=true&lines=0" == daemon.asked[-1]


async def test_following_says_when_the_daemon_stops(daemon: FakeDaemon) -> None:
    """The end of the stream is not silently taken for the end of the story."""
    serve(daemon)

    done = await llmctl(daemon.socket, "logs", "smollm.0", "-f", "--json")

    assert (3, "llmctl: the daemon ended the stream, it is stopping\n") == (done.code, done.err)
