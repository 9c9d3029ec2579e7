from __future__ import annotations

import re
import signal
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from supervisord_llm.cli.lines import InputError, Lines
from supervisord_llm.client import Client
from supervisord_llm.core.words import FailureReason, Outcome
from supervisord_llm.schema import Failure, Finished
from tests.cli.command import happens, llmctl, started
from tests.cli.terminal import at_work
from tests.cli.test_with_daemon import running_daemon
from tests.client import replies
from tests.client.fake_daemon import Exchange, FakeDaemon
from tests.harness import write_config

GENERATE = "POST /api/v1/generate"
CANCEL = f"POST /api/v1/requests/{replies.ID}/cancel"
LOOK = f"GET /api/v1/requests/{replies.ID}"
FACTS = "smollm.0 · 25 tokens · first after 82 ms · 50.0 tokens/s\n"
FAILED = msgspec.structs.replace(
    replies.COMPLETED,
    outcome=Outcome.FAILED,
    finish_reason=None,
    error=Failure(code=FailureReason.WORKER_EXITED, message="it ended", retryable=True),
)
CTRL_D = "\x04"

Body = dict[str, Any]


class Model:
    """Says ``echo`` of what was said last, and ends as the test wants it to."""

    def __init__(self, daemon: FakeDaemon) -> None:
        self.asked: list[Body] = []
        self.ends: list[Finished] = []
        daemon.answer("GET /api/v1/status", replies.STATUS)
        daemon.on(GENERATE, self.generate)

    @property
    def turns(self) -> list[list[str]]:
        """What was said before each answer, with the first letter of who said it."""
        return [
            [f"{turn['role'][0]} {turn['content']}" for turn in body["messages"]]
            for body in self.asked
        ]

    async def generate(self, exchange: Exchange) -> None:
        """Answer what was posted."""
        body = msgspec.json.decode(exchange.body)
        self.asked.append(body)
        await exchange.begin(replies.ACCEPTED, replies.STARTED)
        end = self.ends.pop(0) if self.ends else replies.COMPLETED
        await exchange.end(*replies.tokens("echo ", body["messages"][-1]["content"]), end)


@pytest.fixture
def model(daemon: FakeDaemon) -> Model:
    """The model of the fake daemon's one pool."""
    return Model(daemon)


def session_of(model: Model) -> str:
    """The one session of everything that was asked."""
    [name] = {body["session_id"] for body in model.asked}
    return str(name)


def closed(daemon: FakeDaemon) -> list[str]:
    """What was asked to be deleted."""
    return [asked for asked in daemon.asked if asked.startswith("DELETE ")]


async def test_every_turn_sends_all_that_was_said(daemon: FakeDaemon, model: Model) -> None:
    """From a pipe: the answers alone are on standard output, and the session is closed."""
    done = await llmctl(daemon.socket, "chat", "--system", "be kind", stdin=b"one\n\n  \ntwo")

    assert (0, "echo one\necho two\n", FACTS * 2) == (done.code, done.out, done.err)
    assert [
        ["s be kind", "u one"],
        ["s be kind", "u one", "a echo one", "u two"],
    ] == model.turns
    name = session_of(model)
    assert re.fullmatch("chat-[0-9a-f]{16}", name)
    assert [f"DELETE /v1/sessions/{name}?model=smollm"] == closed(daemon)


async def test_the_options_reach_every_request(daemon: FakeDaemon, model: Model) -> None:
    """A session that was named is not ours to close, and a named pool is not looked up."""
    options = "--pool p --session trip --max-new-tokens 5 --temperature 0.5 --top-p 0.9 --top-k 40 "
    options += "--seed 7 --stop END"

    done = await llmctl(daemon.socket, "chat", *options.split(), stdin=b"one")

    assert 0 == done.code
    assert [GENERATE] == daemon.asked
    assert [
        {
            "pool": "p",
            "messages": [{"role": "user", "content": "one"}],
            "max_new_tokens": 5,
            "temperature": 0.5,
            "top_p": 0.9,
            "top_k": 40,
            "seed": 7,
            "stop": ["END"],
            "session_id": "trip",
        }
    ] == model.asked


async def test_a_failed_turn_counts_as_not_said(daemon: FakeDaemon, model: Model) -> None:
    """It is told, the next line is a turn like any other, and the exit status remembers it."""
    model.ends = [replies.COMPLETED, FAILED, replies.CANCELLED]

    done = await llmctl(daemon.socket, "chat", stdin=b"one\ntwo\nthree\nfour\n")

    assert (1, "echo one\necho two\necho three\necho four\n") == (done.code, done.out)
    failed, cancelled = done.err.splitlines()[1:3]
    assert failed.startswith("llmctl: failed (worker_exited): it ended; ")
    assert cancelled.startswith("llmctl: cancelled by api after ")
    assert ["u one", "a echo one", "u four"] == model.turns[-1]


async def test_a_refusal_and_a_broken_answer_are_told_in_one_line_each(
    daemon: FakeDaemon, model: Model
) -> None:
    """And the conversation goes on; what came of the broken answer ends its line."""

    async def refuse(exchange: Exchange) -> None:
        await exchange.refuse(503, "pool_unavailable", "it is drained")
        daemon.on(GENERATE, break_off)

    async def break_off(exchange: Exchange) -> None:
        await exchange.begin(replies.ACCEPTED, replies.STARTED, *replies.tokens("half"))
        daemon.on(GENERATE, model.generate)
        await exchange.break_off()

    daemon.on(GENERATE, refuse)
    done = await llmctl(daemon.socket, "chat", stdin=b"one\ntwo\nthree\n")

    assert (1, "half\necho three\n") == (done.code, done.out)
    assert "llmctl: it is drained" == done.err.splitlines()[0]
    assert done.err.splitlines()[1].startswith("llmctl: cannot reach the daemon at ")
    assert 3 == len(done.err.splitlines())
    assert [["u three"]] == model.turns


async def test_a_line_that_is_no_text_is_refused(daemon: FakeDaemon, model: Model) -> None:
    """Bytes that are not UTF-8 cannot be sent; the others are."""
    done = await llmctl(daemon.socket, "chat", stdin=b"\xff\ngr\xc3\xbcn\n")

    assert (1, "echo grün\n") == (done.code, done.out)
    assert done.err.startswith("llmctl: cannot send this line: byte 0 is not UTF-8\n")


async def test_no_daemon_is_told_for_each_line(tmp_path: Path) -> None:
    """Each line tries again, and each that fails says so."""
    done = await llmctl(tmp_path / "none.sock", "chat", stdin=b"one\ntwo\n")

    assert (1, "", 2) == (done.code, done.out, done.err.count("llmctl: cannot reach the daemon"))


async def test_several_pools_need_a_choice(daemon: FakeDaemon) -> None:
    """Nothing that was said could be meant for one of them."""
    other = msgspec.structs.replace(replies.POOL_SUMMARY, name="other")
    status = msgspec.structs.replace(replies.STATUS, pools=[replies.POOL_SUMMARY, other])
    daemon.answer("GET /api/v1/status", status)

    done = await llmctl(daemon.socket, "chat", stdin=b"one\n")

    assert 2 == done.code
    assert "There are several pools, choose with --pool: smollm, other." in done.err


async def test_json_is_the_streams_as_they_are(daemon: FakeDaemon, model: Model) -> None:
    """One after the other, without a word of ours."""
    done = await llmctl(daemon.socket, "chat", "--json", stdin=b"one\ntwo\n")

    events = [msgspec.json.decode(line)["event"] for line in done.out.splitlines()]
    assert (0, "") == (done.code, done.err)
    assert ["accepted", "started", "token", "token", "finished"] * 2 == events
    assert ["u one", "a echo one", "u two"] == model.turns[-1]


async def test_a_pool_without_sessions_is_talked_with_all_the_same(
    daemon: FakeDaemon, model: Model
) -> None:
    """Its refusal of the session is not told, is asked for once, and there is nothing to close."""
    refused: list[Body] = []
    served = model.generate

    async def generate(exchange: Exchange) -> None:
        body = msgspec.json.decode(exchange.body)
        if "session_id" in body:
            refused.append(body)
            await exchange.refuse(400, "invalid_request", "keeps none", param="session_id")
        else:
            await served(exchange)

    daemon.on(GENERATE, generate)
    done = await llmctl(daemon.socket, "chat", stdin=b"one\ntwo\n")
    named = await llmctl(daemon.socket, "chat", "--session", "trip", stdin=b"one\n")

    assert (0, "echo one\necho two\n", FACTS * 2) == (done.code, done.out, done.err)
    assert (1, "", "llmctl: keeps none\n") == (named.code, named.out, named.err)
    assert (2, 2, []) == (len(refused), len(model.asked), closed(daemon))


async def test_the_terminal_has_a_prompt_and_two_orders(daemon: FakeDaemon, model: Model) -> None:
    """What the model says gives the terminal no orders; Ctrl-D ends it."""
    async with at_work(daemon.socket, "chat") as terminal:
        await terminal.wait_shown("> ")
        await terminal.type("/help\none\x16\x1b[2J\n")
        await terminal.wait_shown("echo one␛[2J\r\n> ")
        await terminal.type("/new\n")
        await terminal.wait_shown("> ")
        await terminal.type("/news\n")
        await terminal.wait_shown("echo /news\r\n> ")
        await terminal.type(CTRL_D)
        code, told = await terminal.wait_ended()

    assert 0 == code
    assert "\x1b" not in terminal.shown
    assert [["u one\x1b[2J"], ["u /news"]] == model.turns
    assert told.startswith("smollm; /help lists what you can do\n/new   begin anew: ")
    assert 1 == len(closed(daemon))


async def test_a_daemon_that_comes_back_is_talked_with(daemon: FakeDaemon, model: Model) -> None:
    """That it is not there is told before anything is typed; a failure does not taint the end."""

    async def hang_up(exchange: Exchange) -> None:
        daemon.answer("GET /api/v1/status", replies.STATUS)
        await exchange.break_off()

    daemon.on("GET /api/v1/status", hang_up)
    async with at_work(daemon.socket, "chat") as terminal:
        await terminal.wait_shown("> ")
        await terminal.type("one\n")
        await terminal.wait_shown("echo one\r\n> ")
        terminal.send(signal.SIGINT)
        code, told = await terminal.wait_ended()

    assert 0 == code
    assert told.startswith(f"llmctl: cannot reach the daemon at {daemon.socket}: ")
    assert ["u one"] == model.turns[-1]


async def test_ctrl_c_before_the_request_has_an_id_goes_on(
    daemon: FakeDaemon, model: Model
) -> None:
    """Nothing can be posted yet, so the connection is closed; the conversation is not."""
    arrived, left = trio.Event(), trio.Event()

    async def generate(exchange: Exchange) -> None:
        daemon.on(GENERATE, model.generate)
        arrived.set()
        await exchange.wait_left()
        left.set()

    daemon.on(GENERATE, generate)
    async with at_work(daemon.socket, "chat") as terminal:
        await terminal.wait_shown("> ")
        await terminal.type("one\n")
        await happens(arrived)
        terminal.send(signal.SIGINT)
        await happens(left)
        await terminal.wait_shown("> ")
        await terminal.type("two\n")
        await terminal.wait_shown("echo two\r\n> ")
        await terminal.type(CTRL_D)
        code, told = await terminal.wait_ended()

    assert (0, [["u two"]]) == (code, model.turns)
    assert "\nleft; the daemon cancels the request\n" in told


async def test_what_cannot_be_read_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not the end of input, after which all would seem to be well."""
    with (tmp_path / "written").open("w") as written:
        monkeypatch.setattr("sys.stdin", written)
        lines = Lines()

        with pytest.raises(InputError, match=r"^cannot read standard input: Bad file descriptor$"):
            await lines.next()


async def test_a_second_ctrl_c_leaves(daemon: FakeDaemon) -> None:
    """Whoever does not want to wait for the worker closes the connection, and the conversation."""
    posted, left = trio.Event(), trio.Event()

    async def generate(exchange: Exchange) -> None:
        await exchange.begin(replies.ACCEPTED, *replies.tokens("Hello"))
        await exchange.wait_left()
        left.set()

    async def cancel(exchange: Exchange) -> None:
        posted.set()
        await exchange.reply(replies.cancelling(), status=202)

    daemon.on(GENERATE, generate)
    daemon.on(CANCEL, cancel)
    async with at_work(daemon.socket, "chat", "--pool", "smollm") as terminal:
        await terminal.type("one\n")
        await terminal.wait_shown("Hello")
        terminal.send(signal.SIGINT)
        await happens(posted)
        terminal.send(signal.SIGINT)
        code, told = await terminal.wait_ended()
        await happens(left)

    assert 130 == code
    assert told.endswith("\nleft; the daemon cancels the request\n")


async def test_ctrl_c_from_a_pipe_ends_it_after_the_report(daemon: FakeDaemon) -> None:
    """The lines that follow are not said: nobody is there who would go on."""
    posted = trio.Event()

    async def generate(exchange: Exchange) -> None:
        await exchange.begin(replies.ACCEPTED, *replies.tokens("Hello"))
        await posted.wait()
        await exchange.end(replies.CANCELLED)

    async def cancel(exchange: Exchange) -> None:
        posted.set()
        await exchange.reply(replies.cancelling(), status=202)

    daemon.on(GENERATE, generate)
    daemon.on(CANCEL, cancel)
    daemon.answer(LOOK, replies.request())
    async with started(daemon.socket, "chat", "--pool", "smollm", stdin=b"one\ntwo\n") as running:
        assert "Hello" == await running.read()
        running.interrupt()
        done = await running.wait()

    assert (130, 1) == (done.code, daemon.asked.count(GENERATE))
    assert done.err.startswith("cancelled after ")


async def test_ctrl_c_between_two_lines_interrupts_what_is_no_conversation(
    daemon: FakeDaemon, model: Model
) -> None:
    """With --json nobody is asked for the next line, so ending it early is no usual end."""
    async with at_work(daemon.socket, "chat", "--json") as terminal:
        await terminal.type("one\n")
        await terminal.wait_shown('"finished"')
        terminal.send(signal.SIGINT)
        code, _ = await terminal.wait_ended()

    assert 130 == code
    assert "> " not in terminal.shown
    assert ["u one"] == model.turns[-1]
    assert 1 == len(closed(daemon))


async def test_a_real_worker_reads_only_what_is_new(tmp_path: Path) -> None:
    """The session is warm at the second turn, and closed at the end.

    The sim's answers are empty here, since it does not read again the tokens that it has said.
    """
    config = write_config(tmp_path, "--sessions 2 --eos_at 0")
    socket = tmp_path / "control.sock"
    async with running_daemon(config), at_work(socket, "chat") as terminal:
        for line in ("hello", "and more"):
            await terminal.wait_shown("> ")
            await terminal.type(f"{line}\n")
            await terminal.wait_shown(f"{line}\r\n")
        await terminal.wait_shown("> ")
        open_before = await kept(socket)
        await terminal.type(CTRL_D)
        code, told = await terminal.wait_ended()
        open_after = await kept(socket)

    assert (0, 1, 0) == (code, open_before, open_after)
    _greeting, cold, warm, *_ = told.splitlines()
    assert "were there from before" not in cold
    assert "4 of 10 prompt tokens were there from before" in warm


async def test_what_ctrl_c_cut_off_counts_as_said(tmp_path: Path) -> None:
    """It is reported in one line, and the next turn goes on from what is on the screen."""
    config = write_config(tmp_path, "--tps 50")
    socket = tmp_path / "control.sock"
    async with running_daemon(config), at_work(socket, "chat") as terminal:
        await terminal.wait_shown("> ")
        await terminal.type("hello sim.tokens=1000\n")
        await terminal.wait_shown("t0 t1 ")
        terminal.send(signal.SIGINT)
        shown = await terminal.wait_shown("\r\n> ")
        await terminal.type("again sim.tokens=1\n")
        await terminal.wait_shown("t0 \r\n> ")
        async with Client(socket) as client:
            _cut, last = (await client.requests()).requests
        await terminal.type(CTRL_D)
        code, told = await terminal.wait_ended()

    assert 0 == code
    _greeting, cancelled, _facts, *_ = told.splitlines()
    assert re.match(r"cancelled after .*; worker settled cooperatively after ", cancelled)
    said = len(re.findall(r"\bt\d+ ", shown))
    assert last.usage is not None
    # The template's marks are words too: "<user hello > <assistant ... > <user again > <assistant".
    assert 9 + said == last.usage.prompt_tokens


async def kept(socket: Path) -> int:
    """How many sessions the pool's workers hold."""
    async with Client(socket) as client:
        return (await client.pool("sim")).sessions


async def test_a_real_pool_without_sessions_and_a_worker_that_dies(tmp_path: Path) -> None:
    """Neither ends the conversation."""
    config = write_config(tmp_path, "--sessions 0 --tokens 2")
    async with running_daemon(config):
        done = await llmctl(
            tmp_path / "control.sock",
            "chat",
            stdin=b"one\nthis sim.exit=3 sim.at=1\ntwo\n",
        )

    assert (1, 2) == (done.code, done.out.count("t0 t1 \n")), done
    assert "llmctl: failed (worker_exited): " in done.err
