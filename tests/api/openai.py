"""A client of the OpenAI routes, by hand: what goes over the socket, and what comes back."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.api.house import House


@asynccontextmanager
async def http_of(path: Path) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the socket at a path."""
    transport = httpx.AsyncHTTPTransport(uds=str(path))
    async with httpx.AsyncClient(
        transport=transport, base_url="http://daemon", timeout=20
    ) as client:
        yield client


async def complete(at: House, prompt: Any, **fields: Any) -> httpx.Response:
    """Ask for a completion, and read all of it."""
    async with http_of(at.socket) as http:
        body = {"model": "sim", "prompt": prompt, "max_tokens": 1000, **fields}
        return await http.post("/v1/completions", json=body)


async def chat(at: House, content: Any, **fields: Any) -> httpx.Response:
    """Ask for a chat completion of one message, and read all of it."""
    async with http_of(at.socket) as http:
        messages = [{"role": "user", "content": content}]
        body = {"model": "sim", "messages": messages, "max_tokens": 1000, **fields}
        return await http.post("/v1/chat/completions", json=body)


def events(text: str) -> list[Any]:
    """Decode a stream that ended as it should; comments are not in the list."""
    assert text.endswith("data: [DONE]\n\n")
    pieces = text.removesuffix("data: [DONE]\n\n").split("\n\n")[:-1]
    data = [each for each in pieces if not each.startswith(":")]
    assert all(each.startswith("data: ") and "\n" not in each for each in data)
    return [json.loads(each.removeprefix("data: ")) for each in data]


def choices(chunks: list[Any], index: int = 0) -> list[Any]:
    """One choice's part of some chunks."""
    return [each for chunk in chunks for each in chunk["choices"] if each["index"] == index]


def error_of(reply: httpx.Response) -> Any:
    """The error of a reply."""
    return reply.json()["error"]
