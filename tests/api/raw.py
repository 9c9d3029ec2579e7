"""HTTP by hand, for what no well-behaved client library would do."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import trio

GENERATE = b'{"pool": "smollm", "prompt": "Hello"}'


def post(path: str, body: bytes, *headers: str) -> bytes:
    """Return the bytes of a POST with a body."""
    lines = [f"POST {path} HTTP/1.1", "host: daemon", f"content-length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def get(path: str, *headers: str) -> bytes:
    """Return the bytes of a GET."""
    return "\r\n".join([f"GET {path} HTTP/1.1", "host: daemon", *headers]).encode() + b"\r\n\r\n"


async def read_until(stream: trio.abc.ReceiveStream, mark: bytes) -> bytes:
    """Read until ``mark`` has come; fail if the connection ends before."""
    got = bytearray()
    with trio.fail_after(5):
        while mark not in got:
            piece = await stream.receive_some()
            assert piece, f"the connection ended after {bytes(got)!r}"
            got += piece
    return bytes(got)


async def read_to_end(stream: trio.abc.ReceiveStream) -> bytes:
    """Read until the server closes; however it closes."""
    got = bytearray()
    with trio.fail_after(5):
        try:
            async for piece in stream:
                got += piece
        except trio.BrokenResourceError:
            pass
    return bytes(got)


async def stream_lines(
    stream: trio.abc.ReceiveStream, is_last: Callable[[dict[str, Any]], bool]
) -> list[dict[str, Any]]:
    """Read the chunks of an NDJSON reply until a line is the last one that is wanted."""
    rest, found = b"", []
    with trio.fail_after(10):
        while True:
            piece = await stream.receive_some()
            assert piece, "the connection ended"
            *complete, rest = (rest + piece).split(b"\n")
            # Between the lines are the lengths of the chunks; a line is cut by none of them.
            objects = [json.loads(line) for line in complete if line.startswith(b"{")]
            for number, line in enumerate(objects, 1):
                found.append(line)
                if is_last(line):
                    assert number == len(objects), "more came than was wanted"
                    return found
