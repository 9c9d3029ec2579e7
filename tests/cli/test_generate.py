from __future__ import annotations

import msgspec
import pytest
import trio

from supervisord_llm.cli.requests import failure
from supervisord_llm.core.words import CancelledBy, FailureReason, FinishReason, Outcome
from supervisord_llm.schema import Failure, Finished, Usage
from tests.cli.command import at_terminal, happens, llmctl, started
from tests.client import replies
from tests.client.fake_daemon import Exchange, FakeDaemon

GENERATE = "POST /api/v1/generate"
CANCEL = f"POST /api/v1/requests/{replies.ID}/cancel"
LOOK = f"GET /api/v1/requests/{replies.ID}"
FACTS = "smollm.0 · 25 tokens · first after 82 ms · 50.0 tokens/s\n"


def serve(daemon: FakeDaemon, finished: Finished = replies.COMPLETED, *texts: str) -> None:
    """Let the daemon have one pool, whose model says these texts and ends like this."""

    async def generate(exchange: Exchange) -> None:
        await exchange.begin(replies.ACCEPTED, replies.STARTED)
        await exchange.end(*replies.tokens(*texts), finished)

    daemon.answer("GET /api/v1/status", replies.STATUS)
    daemon.on(GENERATE, generate)


def sent(daemon: FakeDaemon) -> object:
    """The body that was posted."""
    bodies = [exchange.body for exchange in daemon.exchanges if exchange.method == "POST"]
    assert 1 == len(bodies)
    return msgspec.json.decode(bodies[0])


async def test_text_and_facts_go_separate_ways(daemon: FakeDaemon) -> None:
    """The answer is on standard output, whole lines; who gave it and how fast is not."""
    serve(daemon, replies.COMPLETED, "Rayleigh ", "scattering ", "é🙂")

    done = await llmctl(daemon.socket, "generate", "Why is the sky blue?")

    assert (0, "Rayleigh scattering é🙂\n", FACTS) == (done.code, done.out, done.err)
    assert {
        "pool": "smollm",
        "messages": [{"role": "user", "content": "Why is the sky blue?"}],
    } == sent(daemon)


async def test_every_option_reaches_the_request(daemon: FakeDaemon) -> None:
    """With --raw the text is a prompt; a named pool is not looked up."""
    serve(daemon)
    options = "--pool p --raw --max-new-tokens 5 --temperature 0.5 --top-p 0.9 --top-k 40 --seed 7 "
    options += "--session trip --priority -3 --deadline 1.5 --queue-timeout 0.25"

    done = await llmctl(
        daemon.socket, "generate", *options.split(), "--stop", "\n", "--stop", "END", "Once"
    )

    assert 0 == done.code
    assert {
        "pool": "p",
        "prompt": "Once",
        "max_new_tokens": 5,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 40,
        "seed": 7,
        "stop": ["\n", "END"],
        "session_id": "trip",
        "priority": -3,
        "deadline_ms": 1500,
        "queue_timeout_ms": 250,
    } == sent(daemon)
    assert [GENERATE] == daemon.asked


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], {"messages": [{"role": "user", "content": "two\nlines é"}]}),
        (["-"], {"messages": [{"role": "user", "content": "two\nlines é"}]}),
        (["--raw"], {"prompt": "two\nlines é\n"}),
    ],
)
async def test_a_prompt_can_be_piped_in(
    daemon: FakeDaemon, arguments: list[str], expected: dict[str, object]
) -> None:
    """The newline at its end is the pipe's, except where the text is to be sent as it is."""
    serve(daemon)

    done = await llmctl(daemon.socket, "generate", *arguments, stdin="two\nlines é\n".encode())

    assert 0 == done.code
    assert {"pool": "smollm", **expected} == sent(daemon)


@pytest.mark.parametrize(
    ("arguments", "stdin", "message"),
    [
        ([], b"", "The prompt is empty."),
        ([""], b"", "The prompt is empty."),
        (["-"], b"abc\xff", "cannot read the prompt from standard input: byte 3 is not UTF-8."),
        (["x", "--top-p", "nan"], b"", "'--top-p': nan is not a number."),
        (["x", "--top-p", "0"], b"", "'--top-p': 0.0 is not in the range 0.0<x<=1.0."),
        (["x", "--max-new-tokens", "0"], b"", "'--max-new-tokens': 0 is not in the range"),
        (["x", "--priority", "11"], b"", "'--priority': 11 is not in the range -10<=x<=10."),
        (["x", "--deadline", "0"], b"", "'--deadline': 0.0 is not in the range"),
        (["x", "--speed", "3"], b"", "No such option"),
    ],
)
async def test_wrong_usage_sends_nothing(
    daemon: FakeDaemon, arguments: list[str], stdin: bytes, message: str
) -> None:
    """Exit status 2, and the message names what is wrong."""
    done = await llmctl(daemon.socket, "generate", *arguments, stdin=stdin)

    assert 2 == done.code
    assert message in done.err
    assert [] == daemon.asked


async def test_a_terminal_without_a_prompt_is_not_waited_for(daemon: FakeDaemon) -> None:
    """Nobody sits before a command that silently reads the keyboard."""
    done = await at_terminal(daemon.socket, "generate")

    assert 2 == done.code
    assert "Missing argument 'PROMPT'; or pipe the prompt in." in done.err


async def test_several_pools_want_a_choice(daemon: FakeDaemon) -> None:
    """Their names are in the message."""
    other = msgspec.structs.replace(replies.POOL_SUMMARY, name="other")
    status = msgspec.structs.replace(replies.STATUS, pools=[replies.POOL_SUMMARY, other])
    daemon.answer("GET /api/v1/status", status)

    done = await llmctl(daemon.socket, "generate", "x")

    assert 2 == done.code
    assert "There are several pools, choose with --pool: smollm, other.\n" in done.err


async def test_json_lines_are_passed_on_as_they_are(daemon: FakeDaemon) -> None:
    """A program gets the stream's lines and nothing else."""
    serve(daemon, replies.COMPLETED, "a", "b")

    done = await llmctl(daemon.socket, "generate", "--json", "x")

    lines = [replies.ACCEPTED, replies.STARTED, *replies.tokens("a", "b"), replies.COMPLETED]
    expected = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
    assert (0, expected.decode(), "") == (done.code, done.out, done.err)


async def test_a_place_in_the_queue_is_told(daemon: FakeDaemon) -> None:
    """Who waits knows for how many others."""

    async def generate(exchange: Exchange) -> None:
        await exchange.begin(msgspec.structs.replace(replies.ACCEPTED, queued=3))
        await exchange.end(replies.STARTED, replies.COMPLETED)

    daemon.on(GENERATE, generate)

    done = await llmctl(daemon.socket, "generate", "--pool", "smollm", "x")

    assert (0, f"waiting, 3 before it in the queue\n{FACTS}") == (done.code, done.err)


async def test_another_attempt_is_told(daemon: FakeDaemon) -> None:
    """Who waits longer than usual knows why; the first attempt is nothing to speak of."""

    async def generate(exchange: Exchange) -> None:
        again = msgspec.structs.replace(replies.STARTED, attempt=2)
        await exchange.begin(replies.ACCEPTED, replies.STARTED)
        await exchange.end(again, replies.COMPLETED)

    daemon.on(GENERATE, generate)

    done = await llmctl(daemon.socket, "generate", "--pool", "smollm", "x")

    assert (0, f"its worker failed; attempt 2\n{FACTS}") == (done.code, done.err)


async def test_a_token_limit_is_told(daemon: FakeDaemon) -> None:
    """An answer that was cut off looks like one."""
    serve(
        daemon, msgspec.structs.replace(replies.COMPLETED, finish_reason=FinishReason.LENGTH), "a"
    )

    done = await llmctl(daemon.socket, "generate", "x")

    assert (0, FACTS.replace("smollm.0 ·", "smollm.0 · stopped at its token limit ·")) == (
        done.code,
        done.err,
    )


async def test_a_failure_tells_why_and_what_to_do(daemon: FakeDaemon) -> None:
    """What came before it is kept, and the exit status is 1."""
    error = Failure(code=FailureReason.WORKER_EXITED, message="it is gone", retryable=True)
    serve(
        daemon,
        Finished(id=replies.ID, outcome=Outcome.FAILED, error=error, timings=replies.TIMINGS),
        "half an ans",
    )

    done = await llmctl(daemon.socket, "generate", "x")

    expected = (
        "llmctl: failed (worker_exited): it is gone; the same request may be sent again; "
        'see "llmctl workers" for how it ended\n'
    )
    assert (1, "half an ans\n", expected) == (done.code, done.out, done.err)


async def test_what_a_session_saved_is_told(daemon: FakeDaemon) -> None:
    """A warm start is seen to be one."""
    usage = Usage(prompt_tokens=30, reused_tokens=28, generated_tokens=25)
    serve(daemon, msgspec.structs.replace(replies.COMPLETED, usage=usage), "yes")

    done = await llmctl(daemon.socket, "generate", "--session", "trip", "x")

    assert "25 tokens · 28 of 30 prompt tokens were there from before · first after" in done.err


def test_a_suspect_is_not_to_be_sent_again() -> None:
    """Whoever sends it again kills another worker."""
    error = Failure(
        code=FailureReason.WORKER_EXITED, message="both are gone", retryable=False, suspect=True
    )

    told = failure(error)

    assert told.startswith("failed (worker_exited): both are gone; do not send it again as it is")
    assert "the same request may be sent again" not in told


@pytest.mark.parametrize("reason", list(FailureReason))
def test_every_reason_has_a_remedy(reason: FailureReason) -> None:
    """And nobody is told to send a request again that would fail again."""
    told = failure(Failure(code=reason, message="it is gone", retryable=False))

    start = f"failed ({reason}): it is gone; "
    assert told.startswith(start)
    assert len(told) > len(start)
    assert "sent again" not in told


async def test_somebody_elses_cancellation_is_no_success(daemon: FakeDaemon) -> None:
    """Who asked for it and how it was answered is told."""
    serve(daemon, msgspec.structs.replace(replies.CANCELLED, cancelled_by=CancelledBy.SHUTDOWN))

    done = await llmctl(daemon.socket, "generate", "x")

    expected = "llmctl: cancelled by shutdown after 3 ms (answered by worker)\n"
    assert (1, expected) == (done.code, done.err)


async def test_a_refusal_says_when_to_come_back(daemon: FakeDaemon) -> None:
    """The daemon's message and its Retry-After."""

    async def generate(exchange: Exchange) -> None:
        await exchange.refuse(429, "queue_full", "the queue is full", headers={"Retry-After": "3"})

    daemon.on(GENERATE, generate)

    done = await llmctl(daemon.socket, "generate", "--pool", "smollm", "x")

    assert (1, "llmctl: the queue is full (try again in 3.0 s)\n") == (done.code, done.err)


async def test_a_stream_that_breaks_off_is_no_success(daemon: FakeDaemon) -> None:
    """The daemon is gone in the middle: exit status 3."""

    async def generate(exchange: Exchange) -> None:
        await exchange.begin(replies.ACCEPTED, *replies.tokens("half"))
        await exchange.break_off()

    daemon.on(GENERATE, generate)

    done = await llmctl(daemon.socket, "generate", "--pool", "smollm", "x")

    assert 3 == done.code
    assert "it closed the connection before its answer was complete" in done.err


async def test_a_terminal_is_not_commanded_by_a_model(daemon: FakeDaemon) -> None:
    """Escape sequences in generated text are shown at a terminal and kept in a pipe."""
    serve(daemon, replies.COMPLETED, "\x1b[31m", "red")

    shown = await at_terminal(daemon.socket, "generate", "x")
    piped = await llmctl(daemon.socket, "generate", "x")

    assert "␛[31mred\n" == shown.out
    assert "\x1b[31mred\n" == piped.out


def serve_until_cancelled(daemon: FakeDaemon) -> trio.Event:
    """Let a generation go on until a cancellation is posted, which sets the event."""
    cancelled = trio.Event()

    async def generate(exchange: Exchange) -> None:
        await exchange.begin(replies.ACCEPTED, replies.STARTED, *replies.tokens("Hello"))
        await cancelled.wait()
        await exchange.end(*replies.tokens(" again"), replies.CANCELLED)

    async def cancel(exchange: Exchange) -> None:
        cancelled.set()
        await exchange.reply(replies.cancelling(), status=202)

    daemon.on(GENERATE, generate)
    daemon.on(CANCEL, cancel)
    return cancelled


async def test_ctrl_c_cancels_and_tells_how_it_went(daemon: FakeDaemon) -> None:
    """It posts the cancellation, reads on to the end, and waits for the worker's fate."""
    serve_until_cancelled(daemon)
    looks = [replies.request(resolution=None, settled_ms=None), replies.request()]

    async def look(exchange: Exchange) -> None:
        await exchange.reply(looks.pop(0))

    daemon.on(LOOK, look)
    async with started(daemon.socket, "generate", "--pool", "smollm", "x") as running:
        assert "Hello" == await running.read()
        running.interrupt()
        done = await running.wait()

    told = "cancelled after 3 ms (answered by worker); worker settled cooperatively after 4 ms\n"
    assert (130, " again\n", told) == (done.code, done.out, done.err)
    assert [GENERATE, CANCEL, LOOK, LOOK] == daemon.asked


async def test_ctrl_c_that_comes_too_late_says_so(daemon: FakeDaemon) -> None:
    """The model had finished before; there is no worker's fate to wait for."""
    cancelled = trio.Event()
    finished = replies.request(outcome=Outcome.COMPLETED, cancel=None, resolution=None)

    async def generate(exchange: Exchange) -> None:
        await exchange.begin(replies.ACCEPTED, *replies.tokens("Hello"))
        await cancelled.wait()
        await exchange.end(replies.COMPLETED)

    async def cancel(exchange: Exchange) -> None:
        cancelled.set()
        await exchange.reply(finished)

    daemon.on(GENERATE, generate)
    daemon.on(CANCEL, cancel)
    async with started(daemon.socket, "generate", "--pool", "smollm", "x") as running:
        assert "Hello" == await running.read()
        running.interrupt()
        done = await running.wait()

    assert (130, "completed all the same\n") == (done.code, done.err)
    assert [GENERATE, CANCEL] == daemon.asked


async def test_the_second_ctrl_c_leaves(daemon: FakeDaemon) -> None:
    """A worker that does not obey is not waited for by somebody who will not wait."""
    left = trio.Event()
    posted = trio.Event()

    async def generate(exchange: Exchange) -> None:
        await exchange.begin(replies.ACCEPTED, *replies.tokens("Hello"))
        await exchange.wait_left()
        left.set()

    async def cancel(exchange: Exchange) -> None:
        await exchange.reply(replies.cancelling(), status=202)
        posted.set()

    daemon.on(GENERATE, generate)
    daemon.on(CANCEL, cancel)
    async with started(daemon.socket, "generate", "--pool", "smollm", "x") as running:
        assert "Hello" == await running.read()
        running.interrupt()
        await happens(posted)
        running.interrupt()
        done = await running.wait()
        await happens(left)

    assert (130, "\nleft; the daemon cancels the request\n") == (done.code, done.err)


async def test_ctrl_c_before_the_request_has_an_id_leaves(daemon: FakeDaemon) -> None:
    """There is nothing to post yet, and closing the connection is a cancellation."""
    arrived, left = trio.Event(), trio.Event()

    async def generate(exchange: Exchange) -> None:
        arrived.set()
        await exchange.wait_left()
        left.set()

    daemon.on(GENERATE, generate)
    async with started(daemon.socket, "generate", "--pool", "smollm", "x") as running:
        await happens(arrived)
        running.interrupt()
        done = await running.wait()
        await happens(left)

    assert (130, "\nleft; the daemon cancels the request\n") == (done.code, done.err)


async def test_a_cancellation_that_cannot_be_posted_becomes_leaving(daemon: FakeDaemon) -> None:
    """Ctrl-C always ends it, also when the daemon refuses."""

    async def generate(exchange: Exchange) -> None:
        await exchange.begin(replies.ACCEPTED, *replies.tokens("Hello"))
        await exchange.wait_left()

    async def cancel(exchange: Exchange) -> None:
        await exchange.refuse(500, "internal", "an internal error, err_1")

    daemon.on(GENERATE, generate)
    daemon.on(CANCEL, cancel)
    async with started(daemon.socket, "generate", "--pool", "smollm", "x") as running:
        assert "Hello" == await running.read()
        running.interrupt()
        done = await running.wait()

    expected = f"llmctl: cannot cancel {replies.ID}: an internal error, err_1; leaving instead\n"
    assert (130, expected) == (done.code, done.err)


async def test_a_reader_that_has_enough_ends_it_quietly(daemon: FakeDaemon) -> None:
    """As with head: no message, no failure, and the daemon sees the client leave."""
    left = trio.Event()
    closed = trio.Event()

    async def generate(exchange: Exchange) -> None:
        await exchange.begin(replies.ACCEPTED, *replies.tokens("Hello\n"))
        await closed.wait()
        await exchange.line(*replies.tokens("more\n"))
        await exchange.wait_left()
        left.set()

    daemon.on(GENERATE, generate)
    async with started(daemon.socket, "generate", "--pool", "smollm", "x") as running:
        assert "Hello\n" == await running.read()
        await running.close_output()
        closed.set()
        done = await running.wait()
        await happens(left)

    assert (0, "") == (done.code, done.err)


async def test_a_paused_reader_does_not_keep_ctrl_c_from_cancelling(daemon: FakeDaemon) -> None:
    """As with a pager that waits for a key: the pipe is full, the cancellation is posted."""
    posted = trio.Event()

    async def generate(exchange: Exchange) -> None:
        await exchange.begin(replies.ACCEPTED, *replies.tokens("Hello"))
        # Far more than a pipe holds, in one line, so that the writer is stuck in it.
        await exchange.line(*replies.tokens("x" * 1_000_000))
        await posted.wait()
        await exchange.end(replies.CANCELLED)

    async def cancel(exchange: Exchange) -> None:
        posted.set()
        await exchange.reply(replies.cancelling(), status=202)

    daemon.on(GENERATE, generate)
    daemon.on(CANCEL, cancel)
    daemon.answer(LOOK, replies.request())
    async with started(daemon.socket, "generate", "--pool", "smollm", "x") as running:
        assert "Hello" == await running.read(5)
        await running.wait_stuck()
        running.interrupt()
        await happens(posted)
        done = await running.wait()

    assert 130 == done.code
    assert "x" * 1_000_000 + "\n" == done.out
