from __future__ import annotations

import msgspec

from supervisord_llm.core.words import Dialect, SlotState, TeardownStage
from supervisord_llm.schema import LastExit, Memory, Workers
from tests.cli.command import at_terminal, llmctl
from tests.client import replies
from tests.client.fake_daemon import FakeDaemon

EXIT = LastExit(
    exit="signal:SIGKILL",
    reason="unexpected_exit",
    at="2026-05-04T03:02:01.000000Z",
    generation=2,
    last_lines=["out of memory"],
)


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
            memory=Memory(rss=replies.MIB, pss=0),
        ),
        replies.worker(
            "smollm.3",
            state=SlotState.BACKOFF,
            pid=None,
            dialect=Dialect.SERIAL,
            memory=None,
            next_start_in_ms=1234.0,
            reason="load_stalled",
        ),
        replies.worker("smollm.4", active=False, memory=Memory(rss=1, pss=2, held=3 * replies.MIB)),
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
        (
            "smollm.2 quarantined:killing 4h10m 4712 3 0/1 7 2 0B token_stall: it fell silent in "
            "the middle of an answer"
        ),
        (
            "smollm.3 backoff 4h10m - 3 0/1 7 2 - load_stalled: it made no more progress with "
            "loading its model, next start in 1.2 s"
        ),
        (
            "smollm.4 ready:standby 4h10m 4712 3 0/1 7 2 3.0MiB standby: it takes over when "
            "another worker does not serve"
        ),
    ] == [" ".join(row.split()) for row in rows]
    assert {header.index("NOTE")} == {
        row.index(note)
        for row, note in zip(
            rows, (" -", "generation", "token_stall", "load_stalled", "standby: "), strict=True
        )
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


async def test_a_parked_slot_says_why_and_what_to_do(daemon: FakeDaemon) -> None:
    """The table stays a table; the last words of the worker are beside it, and command nothing."""
    exit_ = LastExit(
        exit="exit:1",
        reason="unexpected_exit",
        at="2026-05-04T03:02:01.000000Z",
        generation=6,
        last_lines=["loading", "cannot load model 'x.gguf'\x1b[2J"],
    )
    parked = replies.worker(
        state=SlotState.PARKED,
        pid=None,
        generation=6,
        memory=None,
        reason="unexpected_exit",
        last_exit=exit_,
    )
    busy = replies.worker("smollm.1", last_exit=EXIT)
    daemon.answer("GET /api/v1/workers", Workers(workers=[parked, busy]))

    done = await llmctl(daemon.socket, "workers")

    assert (0, 3) == (done.code, done.out.count("\n"))
    assert [
        "",
        (
            "smollm.0 is parked because its workers failed too often (unexpected_exit: it ended "
            "though nobody had asked it to, generation 6 ended with exit:1); mend the cause, then "
            'run "llmctl resume smollm.0"'
        ),
        "    | loading",
        "    | cannot load model 'x.gguf'␛[2J",
    ] == done.err.splitlines()
