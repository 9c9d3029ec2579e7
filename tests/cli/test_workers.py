from __future__ import annotations

import msgspec
import pytest

from supervisord_llm.core.words import Dialect, SlotState, TeardownStage
from supervisord_llm.schema import LastExit, Memory, ReloadReply, WorkerInfo, Workers
from tests.cli.command import at_terminal, llmctl
from tests.client import replies
from tests.client.fake_daemon import Exchange, FakeDaemon

EXIT = LastExit(
    exit="signal:SIGKILL",
    reason="unexpected_exit",
    at="2026-05-04T03:02:01.000000Z",
    generation=2,
    last_lines=["out of memory"],
)
RELOADED = ReloadReply(slot="smollm.0", state=SlotState.DRAINING, generation=3)


async def test_workers_say_what_they_do_and_why(daemon: FakeDaemon) -> None:
    """One line per slot, one word per cell, and a note at the end."""
    workers = [
        replies.worker(),
        replies.worker(
            "smollm.1", state=SlotState.BUSY, requests=[replies.ID], memory=None, last_exit=EXIT
        ),
        replies.worker(
            "smollm.2",
            state=SlotState.QUARANTINED,
            stage=TeardownStage.KILLING,
            reason="token_stall",
            memory=Memory(rss=replies.MIB),
        ),
        replies.worker(
            "smollm.3",
            state=SlotState.BACKOFF,
            pid=None,
            dialect=Dialect.SERIAL,
            memory=None,
            next_start_in_ms=1234.0,
            reason="exit:1",
        ),
    ]
    daemon.answer("GET /api/v1/workers", Workers(workers=workers))

    done = await llmctl(daemon.socket, "workers")

    header, *rows = done.out.splitlines()
    assert (0, "") == (done.code, done.err)
    titles = "SLOT STATE FOR PID GEN IN-FLIGHT SERVED RESTARTS MEMORY NOTE"
    assert titles.split() == header.split()
    assert [
        "smollm.0 ready 4h10m 4712 3 0/1 7 2 160.0MiB -",
        (
            "smollm.1 busy 4h10m 4712 3 1/1 7 2 - generation 2 ended with signal:SIGKILL "
            "(unexpected_exit)"
        ),
        "smollm.2 quarantined:killing 4h10m 4712 3 0/1 7 2 1.0MiB token_stall",
        "smollm.3 backoff 4h10m - 3 0/1 7 2 - exit:1, next start in 1.2 s",
    ] == [" ".join(row.split()) for row in rows]
    assert {header.index("NOTE")} == {
        row.index(note)
        for row, note in zip(rows, (" -", "generation", "token_stall", "exit:1"), strict=True)
        if note != " -"
    }


async def test_a_pipe_gets_whole_lines(daemon: FakeDaemon) -> None:
    """However long a note is, nothing is cut and nothing is wrapped."""
    reason = "x" * 400 + "\nsecond\x1b[31m"
    daemon.answer("GET /api/v1/workers", Workers(workers=[replies.worker(reason=reason)]))

    done = await llmctl(daemon.socket, "workers")

    assert 2 == done.out.count("\n")
    assert done.out.endswith("x" * 400 + " second␛[31m\n")


async def test_a_terminal_is_not_commanded_by_a_worker(daemon: FakeDaemon) -> None:
    """A reason with an escape sequence in it is shown, not obeyed."""
    daemon.answer("GET /api/v1/workers", Workers(workers=[replies.worker(reason="\x1b]0;x\x07")]))

    done = await at_terminal(daemon.socket, "workers")

    assert "\x1b]" not in done.out
    assert "\x1b[32mready" in done.out


async def test_workers_in_json_are_as_the_daemon_said(daemon: FakeDaemon) -> None:
    """Every field is there for programs."""
    answer = Workers(workers=[replies.worker(last_exit=EXIT)])
    daemon.answer("GET /api/v1/workers", answer)

    done = await llmctl(daemon.socket, "workers", "--json")

    assert answer == msgspec.json.decode(done.out, type=Workers)


async def test_reload_returns_at_once(daemon: FakeDaemon) -> None:
    """Without --wait it tells only that it has begun."""
    daemon.answer("POST /api/v1/workers/smollm.0/reload", RELOADED, status=202)

    done = await llmctl(daemon.socket, "reload", "smollm.0")

    assert (0, "smollm.0 draining: generation 3 is replaced\n", "") == (
        done.code,
        done.out,
        done.err,
    )
    assert ["POST /api/v1/workers/smollm.0/reload"] == daemon.asked


def on_the_way(daemon: FakeDaemon, *workers: WorkerInfo) -> None:
    """Let the slot be in these states, one after the other, and stay in the last."""
    answers = list(workers)

    async def worker(exchange: Exchange) -> None:
        await exchange.reply(answers.pop(0) if len(answers) > 1 else answers[0])

    daemon.answer("POST /api/v1/workers/smollm.0/reload", RELOADED, status=202)
    daemon.on("GET /api/v1/workers/smollm.0", worker)


async def test_reload_can_wait_for_the_next_generation(daemon: FakeDaemon) -> None:
    """The old generation's readiness is not mistaken for the new one's."""
    on_the_way(
        daemon,
        replies.worker(state=SlotState.CANCELLING),
        replies.worker(state=SlotState.DRAINING),
        replies.worker(state=SlotState.STARTING, generation=4),
        replies.worker(generation=4),
    )

    done = await llmctl(daemon.socket, "reload", "smollm.0", "--wait")

    assert (0, "smollm.0 ready: generation 4\n") == (done.code, done.out)
    assert [
        "smollm.0 cancelling",
        "smollm.0 draining",
        "smollm.0 starting",
    ] == done.err.splitlines()


@pytest.mark.parametrize("as_json", [False, True])
async def test_reload_fails_when_the_slot_stays_down(daemon: FakeDaemon, as_json: bool) -> None:
    """A parked slot needs an operator, who is told why and where to look."""
    parked = replies.worker(state=SlotState.PARKED, generation=9, pid=None, reason="exit:1")
    on_the_way(daemon, parked)

    options = ["--json"] if as_json else []
    done = await llmctl(daemon.socket, "reload", "smollm.0", "--wait", *options)

    expected = 'llmctl: smollm.0 is parked (exit:1); see "llmctl events" for its last lines\n'
    assert (1, expected) == (done.code, done.err)
    if as_json:
        assert parked == msgspec.json.decode(done.out, type=WorkerInfo)


async def test_an_unknown_slot_is_the_daemons_to_refuse(daemon: FakeDaemon) -> None:
    """Its message is passed on."""

    async def refuse(exchange: Exchange) -> None:
        await exchange.refuse(404, "not_found", 'cannot find slot "x.9"; see the list of workers')

    daemon.on("POST /api/v1/workers/x.9/reload", refuse)

    done = await llmctl(daemon.socket, "reload", "x.9")

    assert (1, 'llmctl: cannot find slot "x.9"; see the list of workers\n') == (done.code, done.err)
