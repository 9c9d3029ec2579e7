from __future__ import annotations

from tests.cli.command import Done, at_terminal, llmctl, started
from tests.client.fake_daemon import Exchange, FakeDaemon

OPENED = b'{"event":"stream.opened","boot":"01JA","seq":7}\n'
READY = (
    b'{"ts":"2026-05-04T03:02:01.123456Z","seq":7,"level":"info","event":"worker.ready",'
    b'"pool":"smollm","worker":"smollm.0","generation":3,"load_ms":812.25,'
    b'"dialect":"serial+cancel","extensions":["ping","model"],"capacity":1}\n'
)
GAP = b'{"event":"stream.gap","first":8,"last":10}\n'
EXITED = (
    b'{"ts":"2026-05-04T03:02:02.000000Z","seq":11,"level":"warning","event":"worker.quarantined",'
    b'"pool":"smollm","worker":"smollm.0","generation":3,"reason":"unexpected_exit",'
    b'"stage":"reaping","detail":"it \\"died\\" \\u001b[31m","requests":[],'
    b'"last_lines":["loading","out of\\u0007 memory"]}\n'
)
ERROR = (
    b'{"ts":"2026-05-04T03:02:03.5Z","seq":12,"level":"error","event":"daemon.error","id":"err_1",'
    b'"where":"api","error":"ValueError","traceback":"Traceback:\\n  line 1\\n"}\n'
)
USAGE = (
    b'{"ts":"2026-05-04T03:02:03.6Z","seq":12,"level":"debug","event":"worker.usage",'
    b'"pool":"smollm","worker":"smollm.0","generation":3,"rss":4096}\n'
)
FINISHED = (
    b'{"ts":"2026-05-04T03:02:04Z","seq":13,"level":"info","event":"request.finished",'
    b'"pool":"smollm","request":"req_1","outcome":"completed","queued_ms":0.5,"gaps":[0,1]}\n'
)
LINES = [READY, GAP, EXITED, ERROR, USAGE, FINISHED]


def serve(daemon: FakeDaemon) -> None:
    """Let the daemon's log hold these events."""

    async def events(exchange: Exchange) -> None:
        await exchange.begin(OPENED, *LINES)
        await exchange.end()

    daemon.on("GET /api/v1/events", events)


async def test_events_are_one_line_each(daemon: FakeDaemon) -> None:
    """When, how bad, what, who, and the rest by name; what has lines of its own comes below.

    What matters to programs alone is left out: debug events, and figures for statistics.
    """
    serve(daemon)

    done = await llmctl(daemon.socket, "events", TZ="UTC")

    assert (0, "") == (done.code, done.err)
    assert [
        (
            "03:02:01.123 info    worker.ready             smollm.0/3 load_ms=812.25 "
            'dialect=serial+cancel extensions=["ping","model"] capacity=1'
        ),
        "(3 events are gone: 8 to 10)",
        (
            "03:02:02.000 warning worker.quarantined       smollm.0/3 reason=unexpected_exit "
            'stage=reaping detail="it \\"died\\" \\u001b[31m" requests=[]'
        ),
        "    | loading",
        "    | out of␇ memory",
        "03:02:03.500 error   daemon.error             id=err_1 where=api error=ValueError",
        "    | Traceback:",
        "    |   line 1",
        (
            "03:02:04.000 info    request.finished         smollm req_1 outcome=completed "
            "queued_ms=0.5"
        ),
    ] == done.out.splitlines()


async def test_the_least_level_can_be_chosen(daemon: FakeDaemon) -> None:
    """More than usual, or less; what is gone is told in any case."""
    serve(daemon)

    every = await llmctl(daemon.socket, "events", "--level", "debug", TZ="UTC")
    few = await llmctl(daemon.socket, "events", "--level", "error", TZ="UTC")

    usage = "03:02:03.600 debug   worker.usage             smollm.0/3 rss=4096"
    assert usage in every.out.splitlines()
    assert ["(3 events are gone: 8 to 10)", "03:02:03.500 error"] == [
        line.partition("  ")[0] for line in few.out.splitlines() if not line.startswith(" ")
    ]


async def test_json_lines_are_passed_on_as_they_are(daemon: FakeDaemon) -> None:
    """A program gets every byte, the first line and the gaps included."""
    serve(daemon)

    done = await llmctl(daemon.socket, "events", "--json")

    assert (0, b"".join([OPENED, *LINES]).decode()) == (done.code, done.out)


async def test_where_to_begin_is_the_daemons_to_know(daemon: FakeDaemon) -> None:
    """The options become the query."""
    serve(daemon)

    await llmctl(daemon.socket, "events")
    await llmctl(daemon.socket, "events", "--since", "7")

    assert ["GET /api/v1/events", "GET /api/v1/events?since=7"] == daemon.asked


async def test_following_goes_on_until_ctrl_c(daemon: FakeDaemon) -> None:
    """Events appear as they happen; the interrupt ends it without a word."""

    async def events(exchange: Exchange) -> None:
        await exchange.begin(OPENED, READY)
        await exchange.wait_left()

    daemon.on("GET /api/v1/events", events)
    async with started(daemon.socket, "events", "-f") as running:
        assert "worker.ready" in await running.read()
        running.interrupt()
        done = await running.wait()

    assert Done(130) == done
    assert ["GET /api/v1/events?follow=true"] == daemon.asked


async def test_following_says_when_the_daemon_stops(daemon: FakeDaemon) -> None:
    """The end of the stream is not silently taken for the end of the story."""
    serve(daemon)

    done = await llmctl(daemon.socket, "events", "-f", "--json")

    assert (3, "llmctl: the daemon ended the stream, it is stopping\n") == (done.code, done.err)


async def test_a_terminal_gets_colours(daemon: FakeDaemon) -> None:
    """Levels catch the eye, and nothing from a worker commands the terminal."""
    serve(daemon)

    done = await at_terminal(daemon.socket, "events")

    assert "\x1b[33mwarning" in done.out
    assert "\x1b[1;31merror" in done.out
    assert "\x07" not in done.out
