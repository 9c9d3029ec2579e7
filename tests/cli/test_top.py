from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import pytest

from supervisord_llm.client import Client
from supervisord_llm.core.words import Resolution, SlotState
from supervisord_llm.schema import GenerateRequest, Memory, Status, Token, WorkerInfo, Workers
from tests.cli.command import llmctl
from tests.cli.terminal import ENTER, LEAVE, at_work
from tests.cli.test_with_daemon import running_daemon
from tests.client import replies
from tests.client.fake_daemon import Exchange, FakeDaemon
from tests.harness import write_config

STATUS = msgspec.structs.replace(
    replies.STATUS,
    queued=3,
    cancellations={Resolution.COOPERATIVE: 5, Resolution.KILLED: 1},
)


def answer(daemon: FakeDaemon, status: Status, *looks: list[WorkerInfo]) -> None:
    """Let the daemon say these things of its workers, one at each look, and the last for good."""
    rest: Iterator[list[WorkerInfo]] = iter(looks)
    last = looks[-1]

    async def workers(exchange: Exchange) -> None:
        await exchange.reply(Workers(workers=next(rest, last)))

    daemon.answer("GET /api/v1/status", status)
    daemon.on("GET /api/v1/workers", workers)


def busy(tokens: int, generation: int = 3) -> WorkerInfo:
    """A worker in the middle of an answer."""
    return replies.worker(
        state=SlotState.BUSY,
        requests=[replies.ID],
        tokens=tokens,
        generation=generation,
        memory=Memory(rss=170 * replies.MIB, held=3 * replies.MIB),
    )


async def test_one_picture_has_everything(daemon: FakeDaemon) -> None:
    """Where nobody can watch, two looks make one picture, without a word for a terminal."""
    idle = replies.worker("smollm.1", active=False, tokens=40)
    answer(daemon, STATUS, [busy(100), idle], [busy(150), idle])

    done = await llmctl(daemon.socket, "top", "--interval", "0.2")

    assert (0, "") == (done.code, done.err)
    assert "\x1b" not in done.out
    lines = [" ".join(line.split()) for line in done.out.splitlines()]
    head = r"supervisord-llm 0\.1\.0 running for 3m12s, pid 4711, at \d\d:\d\d:\d\d"
    assert re.fullmatch(head, lines[0])
    found = re.fullmatch(r"([\d.]+) tokens/s, 1 running, 3 waiting, 163\.0MiB of memory", lines[1])
    assert found
    rate = found[1]
    assert 0 < float(rate) <= 250
    assert [
        "cancellations: 5 cooperative, 1 killed",
        "",
        "POOL READY QUEUED IN-FLIGHT TOKENS/S WORKERS",
        f"smollm yes 0 1 {rate} ready=1,busy=1",
        "",
        "SLOT STATE FOR IN-FLIGHT TOKENS/S SERVED RESTARTS MEMORY NOTE",
        f"smollm.0 busy 4h10m 1/1 {rate} 7 2 3.0MiB -",
    ] == lines[2:9]
    assert lines[9].startswith("smollm.1 ready:standby 4h10m 0/1 0.0 7 2 160.0MiB standby: ")
    assert ["GET /api/v1/status", "GET /api/v1/workers"] * 2 == daemon.asked


async def test_a_program_gets_what_the_picture_is_made_of(daemon: FakeDaemon) -> None:
    """The daemon's own words, and the rates."""
    answer(daemon, STATUS, [busy(100)], [busy(150)])

    done = await llmctl(daemon.socket, "top", "--json", "--interval", "0.1")

    found = json.loads(done.out)
    assert 0 == done.code
    assert 1 == found["status"]["cancellations"]["killed"]
    assert 150 == found["workers"][0]["tokens"]
    assert 0 < found["tokens_per_second"]["smollm.0"] <= 500


@pytest.mark.parametrize(
    "change",
    [
        {"generation": 4},
        {"pid": None},
    ],
)
async def test_a_new_worker_has_no_rate_yet(daemon: FakeDaemon, change: dict[str, object]) -> None:
    """Its tokens are not those that the one before it had."""
    answer(daemon, STATUS, [busy(100)], [msgspec.structs.replace(busy(7), **change)])

    done = await llmctl(daemon.socket, "top", "--json", "--interval", "0.1")

    assert {} == json.loads(done.out)["tokens_per_second"]


async def test_nobody_is_watched_where_nobody_answers(tmp_path: Path) -> None:
    """At the start that is a mistake to be told of."""
    done = await llmctl(tmp_path / "control.sock", "top")
    assert (3, "") == (done.code, done.out)
    assert "cannot reach the daemon" in done.err


async def test_watching_goes_on_until_ctrl_c(daemon: FakeDaemon) -> None:
    """On the second screen; then the first one is back, and nothing is said."""
    answer(daemon, STATUS, *([busy(number)] for number in range(0, 100_000, 50)))
    async with at_work(daemon.socket, "top", "--interval", "0.1") as terminal:
        first = await terminal.wait_shown("smollm.0")
        assert first.startswith(ENTER)
        assert "0.0 tokens/s" in first
        for _ in range(3):
            await terminal.wait_shown("\x1b[H")
        await terminal.wait_shown("smollm.0")
        terminal.send(signal.SIGINT)
        code, complaint = await terminal.wait_ended()

    assert (130, "") == (code, complaint)
    assert terminal.shown.endswith(LEAVE)
    assert 1 == terminal.shown.count(ENTER) == terminal.shown.count(LEAVE)


async def test_a_picture_has_no_more_lines_than_the_terminal(daemon: FakeDaemon) -> None:
    """What does not fit is left out below, so that nothing scrolls."""
    answer(daemon, STATUS, [replies.worker(f"smollm.{number}") for number in range(50)])
    async with at_work(daemon.socket, "top", "--interval", "0.1", size=(12, 100)) as terminal:
        await terminal.wait_shown("\x1b[H")
        picture = (await terminal.wait_shown("\x1b[H")).rpartition("\x1b[H")[0]
        terminal.send(signal.SIGINT)
        await terminal.wait_ended()
    shown = picture.partition("\x1b[H")[2]
    assert 11 == shown.count("\r\n")
    assert "smollm.0" in shown
    assert "smollm.49" not in shown


async def test_a_daemon_that_goes_away_is_waited_for(daemon: FakeDaemon) -> None:
    """It says so, and goes on when one is back; what that one counts begins anew."""
    answer(daemon, STATUS, [busy(1_000_000)])
    async with at_work(daemon.socket, "top", "--interval", "0.1") as terminal:
        await terminal.wait_shown("smollm.0")

        async def gone(exchange: Exchange) -> None:
            await exchange.break_off()

        daemon.on("GET /api/v1/status", gone)
        away = await terminal.wait_shown("looked for until it is back")
        assert "cannot reach the daemon" in away
        answer(daemon, msgspec.structs.replace(STATUS, boot="another"), [busy(10)])
        await terminal.wait_shown("smollm.0")
        terminal.send(signal.SIGINT)
        assert (130, "") == await terminal.wait_ended()
    assert "tokens/s" in terminal.shown.rpartition("it is back")[2]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_whoever_ends_it_finds_the_first_screen(
    daemon: FakeDaemon, number: signal.Signals
) -> None:
    """And the process has ended by that signal, for whoever looks."""
    answer(daemon, STATUS, [busy(1)])
    async with at_work(daemon.socket, "top") as terminal:
        await terminal.wait_shown("smollm.0")
        terminal.send(number)
        assert (-number, "") == await terminal.wait_ended()
    assert terminal.shown.endswith(LEAVE)


async def test_ctrl_z_gives_the_terminal_back_for_a_while(daemon: FakeDaemon) -> None:
    """The shell's prompt is on the first screen; in the foreground again it goes on."""
    answer(daemon, STATUS, [busy(1)])
    async with at_work(daemon.socket, "top", "--interval", "0.1") as terminal:
        await terminal.wait_shown("smollm.0")
        terminal.send(signal.SIGTSTP)
        await terminal.wait_stopped()
        await terminal.wait_shown(LEAVE)
        terminal.send(signal.SIGCONT)
        await terminal.wait_shown(ENTER)
        await terminal.wait_shown("smollm.0")
        terminal.send(signal.SIGINT)
        assert (130, "") == await terminal.wait_ended()
    assert terminal.shown.endswith(LEAVE)


async def test_a_real_daemon_is_watched_over_its_restart(tmp_path: Path) -> None:
    """A stream of 50 tokens a second is seen as such while it runs; then the daemon is another."""
    config = write_config(tmp_path, "--tps 50 --tokens 100000")
    socket = tmp_path / "control.sock"
    async with AsyncExitStack() as stack:
        async with running_daemon(config), Client(socket) as client:
            async with client.generate(GenerateRequest(pool="sim", prompt="hello")) as stream:
                async for line in stream:
                    if isinstance(line, Token):
                        break
                done = await llmctl(socket, "top", "--json", "--interval", "1")
            assert 25 < json.loads(done.out)["tokens_per_second"]["sim.0"] < 75
            await client.settled(stream.accepted.id)
            assert {Resolution.COOPERATIVE: 1} == (await client.status()).cancellations
            watching = at_work(socket, "top", "--interval", "0.1")
            terminal = await stack.enter_async_context(watching)
            await terminal.wait_shown("cancellations: 1 cooperative")
            await terminal.wait_shown("sim.0")
        await terminal.wait_shown("looked for until it is back")
        async with running_daemon(config):
            await terminal.wait_shown("cancellations: none")
            terminal.send(signal.SIGINT)
            assert (130, "") == await terminal.wait_ended()
