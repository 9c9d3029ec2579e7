from __future__ import annotations

import os
import socket as sockets
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
import trio
import trio.testing

from supervisord_llm.client import (
    ApiError,
    Client,
    DaemonUnreachable,
    NotPermitted,
    UnreadableReply,
)
from supervisord_llm.core.words import Outcome, Resolution, SlotState
from supervisord_llm.schema import (
    ConfigChange,
    GenerateRequest,
    LogLine,
    Message,
    PoolReply,
    Pools,
    Requests,
    SessionDeleted,
    SessionReset,
    SlotReply,
    StreamGap,
    Token,
    Workers,
)
from tests.client import replies
from tests.client.fake_daemon import Exchange, FakeDaemon, fake_daemon

PROMPT = GenerateRequest(pool="smollm", prompt="Hello")


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncGenerator[FakeDaemon]:
    """A daemon that knows no route yet."""
    async with fake_daemon(tmp_path) as daemon:
        yield daemon


async def read_all(client: Client) -> None:
    """Read one generation to its end."""
    async with client.generate(PROMPT) as stream:
        async for _ in stream:
            pass


async def test_short_questions_come_back_as_typed_answers(daemon: FakeDaemon) -> None:
    """Each route has a method that returns the Struct of its reply."""
    reloaded = SlotReply(slot="smollm.0", state=SlotState.DRAINING, generation=3)
    worker = replies.worker()
    daemon.answer("GET /api/v1/status", replies.STATUS)
    daemon.answer("GET /api/v1/pools", Pools(pools=[replies.POOL]))
    daemon.answer("GET /api/v1/pools/smollm", replies.POOL)
    daemon.answer("GET /api/v1/workers", Workers(workers=[worker]))
    daemon.answer("GET /api/v1/workers/smollm.0", worker)
    for verb in ("reload", "quarantine", "resume"):
        daemon.answer(f"POST /api/v1/workers/smollm.0/{verb}", reloaded, status=202)
    daemon.answer("POST /api/v1/workers/smollm.0/drain", reloaded, status=202)
    requests = Requests(requests=[replies.request(), replies.cancelling()])
    daemon.answer("GET /api/v1/requests", requests)
    daemon.answer(f"GET /api/v1/requests/{replies.ID}", replies.request())
    daemon.answer(f"POST /api/v1/requests/{replies.ID}/cancel", replies.cancelling(), status=202)

    async with Client(daemon.socket) as client:
        assert replies.STATUS == await client.status()
        assert Pools(pools=[replies.POOL]) == await client.pools()
        assert replies.POOL == await client.pool("smollm")
        assert Workers(workers=[worker]) == await client.workers()
        assert worker == await client.worker("smollm.0")
        assert reloaded == await client.reload("smollm.0")
        assert reloaded == await client.drain("smollm.0")
        assert reloaded == await client.quarantine("smollm.0")
        assert reloaded == await client.resume("smollm.0")
        assert requests == await client.requests()
        assert replies.request() == await client.request(replies.ID)
        assert replies.cancelling() == await client.cancel(replies.ID)
        await client.cancel(replies.ID, wait=True)

    assert f"POST /api/v1/requests/{replies.ID}/cancel?wait=true" == daemon.asked[-1]


async def test_pools_configuration_and_sessions_are_commanded(daemon: FakeDaemon) -> None:
    """Each command has its method; waiting, numbers and the pool travel as the routes want them."""
    pool = PoolReply(
        pool="a b", target=3, standby=0, drained=False, reloading=False, revision=1, states={}
    )
    change = ConfigChange(digest="ab12", differences=[], needs_restart=[], warnings=[])
    reset, deleted = SessionReset(id="a/b", existed=True), SessionDeleted(id="a/b", existed=False)
    for verb in ("reload", "drain", "resume", "scale"):
        daemon.answer(f"POST /api/v1/pools/a%20b/{verb}", pool, status=202)
    daemon.answer("POST /api/v1/config/reload", change)
    daemon.answer("POST /v1/sessions/a%2Fb/reset", reset)
    daemon.answer("DELETE /v1/sessions/a%2Fb", deleted)

    async with Client(daemon.socket) as client:
        for waiting in (False, True):
            assert pool == await client.reload_pool("a b", wait=waiting)
            assert pool == await client.drain_pool("a b", wait=waiting)
            assert pool == await client.scale("a b", 3, wait=waiting)
        assert pool == await client.resume_pool("a b")
        assert change == await client.reload_config()
        assert reset == await client.reset_session("a/b", model="smollm")
        assert deleted == await client.close_session("a/b", model="smollm")
        await client.reset_session("a/b")
        await client.close_session("a/b")

    route = "POST /api/v1/pools/a%20b"
    commands = [f"{route}/{verb}" for verb in ("reload", "drain", "scale")]
    assert [*commands, *(f"{each}?wait=true" for each in commands)] == daemon.asked[:6]
    assert [
        "POST /v1/sessions/a%2Fb/reset",
        "DELETE /v1/sessions/a%2Fb?model=smollm",
        "POST /v1/sessions/a%2Fb/reset",
        "DELETE /v1/sessions/a%2Fb",
    ] == daemon.asked[-4:]
    bodies = [exchange.body for exchange in daemon.exchanges]
    assert b'{"workers":3}' == bodies[2] == bodies[5]
    assert [b'{"model":"smollm"}', b"", b"{}", b""] == bodies[-4:]


async def test_a_log_comes_as_lines_and_gaps(daemon: FakeDaemon) -> None:
    """The options become the query; a line that is neither is not the control API's."""
    line = LogLine(number=7, at="2026-05-04T03:02:01Z", generation=3, text="loading")
    gap = StreamGap(first=1, last=6)

    async def logs(exchange: Exchange) -> None:
        await exchange.begin(gap, line)
        await exchange.end(b'{"event":"token","text":"x"}\n')

    daemon.on("GET /api/v1/workers/smollm.0/logs", logs)
    async with (
        Client(daemon.socket) as client,
        client.logs("smollm.0", follow=True, lines=0) as stream,
    ):
        assert [gap, line] == [await anext(stream), await anext(stream)]
        with pytest.raises(UnreadableReply):
            await anext(stream)

    assert ["GET /api/v1/workers/smollm.0/logs?follow=true&lines=0"] == daemon.asked


async def test_a_newer_daemon_may_say_more(daemon: FakeDaemon) -> None:
    """Fields that this client does not know are ignored."""
    fields = msgspec.to_builtins(replies.STATUS)
    daemon.answer("GET /api/v1/status", {**fields, "weather": "fine"})

    async with Client(daemon.socket) as client:
        assert replies.STATUS == await client.status()


async def test_names_are_one_segment_of_the_path(daemon: FakeDaemon) -> None:
    """Whatever an operator types as a name cannot lead to another route."""
    async with Client(daemon.socket) as client:
        with pytest.raises(ApiError):
            await client.worker("a/../b?c#d e")

    assert ["GET /api/v1/workers/a%2F..%2Fb%3Fc%23d%20e"] == daemon.asked


async def test_a_generation_has_its_id_before_its_text(daemon: FakeDaemon) -> None:
    """The stream is open, with its id, before any worker has said anything."""
    go_on = trio.Event()

    async def generate(exchange: Exchange) -> None:
        await exchange.begin(replies.ACCEPTED)
        await go_on.wait()
        await exchange.end(replies.STARTED, *replies.tokens("Hel", "lo"), replies.COMPLETED)

    daemon.on("POST /api/v1/generate", generate)
    async with Client(daemon.socket) as client, client.generate(PROMPT) as stream:
        assert replies.ID == stream.accepted.id
        go_on.set()
        lines = [line async for line in stream]

    assert [replies.STARTED, *replies.tokens("Hel", "lo"), replies.COMPLETED] == lines
    assert replies.COMPLETED == stream.finished


async def test_every_question_has_a_connection_of_its_own(daemon: FakeDaemon) -> None:
    """The daemon may close a kept one in the moment in which it is used again."""

    async def status(exchange: Exchange) -> None:
        await exchange.reply(replies.STATUS)
        await exchange.wait_left()

    daemon.on("GET /api/v1/status", status)
    async with Client(daemon.socket) as client:
        await client.status()
        await client.status()

    assert ["close", "close"] == [asked.headers["connection"] for asked in daemon.exchanges]


async def test_fields_that_are_not_given_are_not_sent(daemon: FakeDaemon) -> None:
    """The pool's defaults hold for whatever a request leaves out."""

    async def generate(exchange: Exchange) -> None:
        await exchange.begin(replies.ACCEPTED)
        await exchange.end(replies.COMPLETED)

    daemon.on("POST /api/v1/generate", generate)
    request = GenerateRequest(pool="smollm", messages=[Message(role="user", content="Hi")], seed=7)
    async with Client(daemon.socket) as client, client.generate(request) as stream:
        assert [replies.COMPLETED] == [line async for line in stream]

    body = {"pool": "smollm", "messages": [{"role": "user", "content": "Hi"}], "seed": 7}
    assert body == msgspec.json.decode(daemon.exchanges[0].body)


@pytest.mark.parametrize("text", ["a\u2028b", "a\u0085b", "a\x0cb", "a\r\nb", "é🙂"])
async def test_text_may_hold_any_line_separator(daemon: FakeDaemon, text: str) -> None:
    """Only the newline byte ends a line, and lines may come in any portions."""
    stream_bytes = b"".join(
        msgspec.json.encode(line) + b"\n"
        for line in (replies.ACCEPTED, Token(text=text), replies.COMPLETED)
    )

    async def generate(exchange: Exchange) -> None:
        await exchange.begin()
        for byte in stream_bytes:
            await exchange.line(bytes([byte]))
        await exchange.end()

    daemon.on("POST /api/v1/generate", generate)
    async with Client(daemon.socket) as client, client.generate(PROMPT) as stream:
        assert Token(text=text) == await anext(stream)


async def test_leaving_the_block_closes_the_connection(daemon: FakeDaemon) -> None:
    """The daemon sees the client leave, although the stream would have gone on."""
    left = trio.Event()

    async def generate(exchange: Exchange) -> None:
        await exchange.begin(replies.ACCEPTED, *replies.tokens("a", "b", "c"))
        await exchange.wait_left()
        left.set()

    daemon.on("POST /api/v1/generate", generate)
    async with Client(daemon.socket) as client:
        async with client.generate(PROMPT) as stream:
            assert Token(text="a") == await anext(stream)
        await left.wait()


async def test_cancelling_the_reader_closes_the_connection(daemon: FakeDaemon) -> None:
    """A cancelled scope around a stream leaves nothing open behind it."""
    left = trio.Event()

    async def generate(exchange: Exchange) -> None:
        await exchange.begin(replies.ACCEPTED)
        await exchange.wait_left()
        left.set()

    daemon.on("POST /api/v1/generate", generate)
    async with Client(daemon.socket) as client:
        with trio.CancelScope() as scope:
            async with client.generate(PROMPT) as stream:
                scope.cancel()
                await anext(stream)
        assert scope.cancelled_caught
        await left.wait()


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param([], id="nothing"),
        pytest.param([replies.ACCEPTED], id="no finished line"),
        pytest.param([replies.ACCEPTED, b'{"event": "tok'], id="half a line"),
    ],
)
@pytest.mark.parametrize("orderly", [True, False])
async def test_a_stream_without_its_last_line_is_an_error(
    daemon: FakeDaemon, lines: list[object], orderly: bool
) -> None:
    """A client never takes a stream that broke off for one that has finished."""

    async def generate(exchange: Exchange) -> None:
        await exchange.begin(*lines)
        await (exchange.end() if orderly else exchange.break_off())

    daemon.on("POST /api/v1/generate", generate)
    async with Client(daemon.socket) as client:
        with pytest.raises(DaemonUnreachable, match="before its answer was complete"):
            await read_all(client)


async def test_a_refusal_carries_the_daemons_own_words(daemon: FakeDaemon) -> None:
    """Status, code, message and Retry-After come out of the envelope and the headers."""

    async def generate(exchange: Exchange) -> None:
        await exchange.refuse(429, "queue_full", "256 are waiting", headers={"Retry-After": "3"})

    daemon.on("POST /api/v1/generate", generate)
    async with Client(daemon.socket) as client:
        with pytest.raises(ApiError) as caught:
            await read_all(client)

    error = caught.value
    found = (error.status, error.code, error.message, error.retry_after)
    assert (429, "queue_full", "256 are waiting", 3.0) == found


async def test_something_else_on_the_socket_is_told(daemon: FakeDaemon) -> None:
    """What does not speak the control API is called that, with what to do."""
    daemon.answer("GET /api/v1/status", {"hello": "world"})
    daemon.answer("GET /api/v1/pools", b"<html>", status=502)
    daemon.answer("GET /api/v1/events", b'{"event":"worker.ready"}\n')
    daemon.answer("POST /api/v1/generate", b'{"event":"token","text":"a"}\n')

    async with Client(daemon.socket) as client:
        with pytest.raises(UnreadableReply, match="missing required field `version`"):
            await client.status()
        with pytest.raises(UnreadableReply, match="HTTP status 502 without an error message"):
            await client.pools()
        with pytest.raises(UnreadableReply, match=r"does not begin with `stream\.opened`"):
            async with client.events():
                pytest.fail("nothing was opened")
        with pytest.raises(UnreadableReply, match="does not begin with `accepted`"):
            await read_all(client)


async def test_events_are_read_from_where_one_asks(daemon: FakeDaemon) -> None:
    """The first line is kept apart; the rest are events, as dicts and as the bytes that came."""
    ready = b'{"ts":"2026-05-04T03:02:01.000000Z","seq":8,"event":"worker.ready"}'

    async def events(exchange: Exchange) -> None:
        await exchange.begin({"event": "stream.opened", "boot": "01JA", "seq": 8})
        await exchange.end(ready + b"\n")

    daemon.on("GET /api/v1/events", events)
    async with (
        Client(daemon.socket) as client,
        client.events(follow=True, since=8) as stream,
    ):
        assert ("01JA", 8) == (stream.opened.boot, stream.opened.seq)
        assert [8] == [event["seq"] async for event in stream]
        assert ready == stream.raw

    assert ["GET /api/v1/events?follow=true&since=8"] == daemon.asked


async def test_settled_waits_for_what_became_of_the_worker(daemon: FakeDaemon) -> None:
    """The outcome may be there long before the resolution."""
    answers = [
        replies.cancelling(),
        replies.request(resolution=None, settled_ms=None),
        replies.request(resolution=Resolution.KILLED, settled_ms=5100.0),
    ]

    async def request(exchange: Exchange) -> None:
        await exchange.reply(answers.pop(0))

    daemon.on(f"GET /api/v1/requests/{replies.ID}", request)
    async with Client(daemon.socket) as client:
        info = await client.settled(replies.ID)

    assert (Outcome.CANCELLED, Resolution.KILLED) == (info.outcome, info.resolution)


async def test_settled_does_not_wait_for_what_will_not_be_known(daemon: FakeDaemon) -> None:
    """A cancellation that came too late was aimed at no worker."""
    over = replies.request(
        outcome=Outcome.COMPLETED, cancelled_by=None, cancel=None, resolution=None, settled_ms=None
    )
    daemon.answer(f"GET /api/v1/requests/{replies.ID}", over)

    async with Client(daemon.socket) as client:
        with trio.fail_after(5):
            assert over == await client.settled(replies.ID, within=60.0)


async def test_settled_does_not_wait_for_ever(daemon: FakeDaemon) -> None:
    """After its bound it returns what is known by then."""
    unresolved = replies.request(resolution=None, settled_ms=None)
    daemon.answer(f"GET /api/v1/requests/{replies.ID}", unresolved)

    async with Client(daemon.socket) as client:
        assert unresolved == await client.settled(replies.ID, within=0.05)


async def test_no_socket_no_listener_and_no_permission_are_told_apart(tmp_path: Path) -> None:
    """Each has another remedy, so each has another message or type."""
    missing = tmp_path / "missing.sock"
    async with Client(missing) as client:
        with pytest.raises(DaemonUnreachable) as caught:
            await client.status()
    assert f"cannot reach the daemon at {missing}: no such file" == str(caught.value)

    stale = tmp_path / "stale.sock"
    with sockets.socket(sockets.AF_UNIX) as listening:
        listening.bind(os.fspath(stale))
    async with Client(stale) as client:
        with pytest.raises(DaemonUnreachable, match="nobody listens there any more"):
            await client.status()

    long = tmp_path / ("x" * 120)
    async with Client(long) as client:
        with pytest.raises(DaemonUnreachable, match="path too long"):
            await client.status()


async def test_a_socket_of_others_is_not_permitted(daemon: FakeDaemon) -> None:
    """A socket whose mode keeps this user out is there, and that is said."""
    daemon.socket.chmod(0)
    async with Client(daemon.socket) as client:
        with as_nobody(), pytest.raises(NotPermitted, match="permission denied"):
            await client.status()


@contextmanager
def as_nobody() -> Iterator[None]:
    """Give up root's way past every file mode, where the tests run as root."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(before)


async def test_a_daemon_that_does_not_answer_is_given_up(daemon: FakeDaemon) -> None:
    """A short question is not waited for endlessly."""

    async def silent(exchange: Exchange) -> None:
        await exchange.wait_left()

    daemon.on("GET /api/v1/status", silent)
    async with Client(daemon.socket, read_timeout=0.05) as client:
        with pytest.raises(DaemonUnreachable, match="no answer in time"):
            await client.status()


async def test_a_stream_may_be_silent_for_longer_than_that(daemon: FakeDaemon) -> None:
    """A model may think for as long as its pool allows; so may a cancellation that is awaited."""

    async def generate(exchange: Exchange) -> None:
        await trio.sleep(0.2)
        await exchange.begin(replies.ACCEPTED)
        await trio.sleep(0.2)
        await exchange.end(replies.COMPLETED)

    async def cancel(exchange: Exchange) -> None:
        await trio.sleep(0.2)
        await exchange.reply(replies.request())

    daemon.on("POST /api/v1/generate", generate)
    daemon.on(f"POST /api/v1/requests/{replies.ID}/cancel", cancel)
    async with Client(daemon.socket, read_timeout=0.05) as client:
        await read_all(client)
        assert replies.request() == await client.cancel(replies.ID, wait=True)
