"""The application by itself, for moments that no client can time."""

from __future__ import annotations

from typing import Any

import trio

from supervisord_llm.api.app import App
from supervisord_llm.config.schema import ListenConfig
from supervisord_llm.events import DaemonReady
from supervisord_llm.host.peers import Peer
from tests.api.fakes import FakeDaemon


def scope(method: str, target: str, *headers: tuple[bytes, bytes]) -> dict[str, Any]:
    """What the server library would say of a request."""
    path, _, query = target.partition("?")
    return {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": list(headers),
        "state": {"peer": Peer(uid=1, gid=2, pid=3)},
    }


async def test_a_reply_does_not_wait_for_a_body_that_nobody_reads() -> None:
    """The server's queue of body pieces is full when the reply ends; it is emptied meanwhile."""
    put, queue = trio.open_memory_channel[dict[str, Any]](1)
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)
        if message["type"] == "http.response.body":
            # As the server library does: its own end of the request goes through the same queue.
            await put.send({"type": "http.disconnect"})

    put.send_nowait({"type": "http.request", "body": b"x", "more_body": True})
    app = App(FakeDaemon().front(), ListenConfig())
    with put, queue, trio.fail_after(5):
        length = (b"content-length", b"1000")
        await app(scope("POST", "/nowhere", length), queue.receive, send)  # type: ignore[arg-type]
    assert 404 == sent[0]["status"]
    assert (b"connection", b"close") in sent[0]["headers"]


async def test_a_follower_is_told_what_was_published_before_the_end() -> None:
    """With the listener closing, what the ring holds is sent, and then the stream ends."""
    daemon = FakeDaemon()
    for _ in range(3):
        daemon.log.publish(DaemonReady(pools=[]))
    app = App(daemon.front(), ListenConfig())
    app.closing.set()
    put, queue = trio.open_memory_channel[dict[str, Any]](1)
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    put.send_nowait({"type": "http.request", "body": b"", "more_body": False})
    with put, queue, trio.fail_after(5):
        await app(scope("GET", "/api/v1/events?follow=true"), queue.receive, send)  # type: ignore[arg-type]
    text = b"".join(message.get("body", b"") for message in sent)
    assert [1, 2, 3] == [number for number in range(1, 9) if b'"seq":%d,"level"' % number in text]
    assert not sent[-1]["more_body"]
