"""A session holds what somebody has said: with keys, it is theirs alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from supervisord_llm.config.keys import key_line, new_key
from tests.api.house import house

ALICE, BOB = new_key(), new_key()


@asynccontextmanager
async def strangers(folder: Path) -> AsyncIterator[tuple[httpx.AsyncClient, httpx.AsyncClient]]:
    """Two users of one daemon, each with a key, and a worker that keeps two sessions."""
    keys = folder / "keys"
    keys.write_text(key_line("alice", ALICE) + "\n" + key_line("bob", BOB) + "\n")
    keys.chmod(0o600)
    listen = f'api_keys = "{keys}"'
    async with house(folder, "--sessions 2", listen=listen) as made:
        transport = httpx.AsyncHTTPTransport(uds=str(made.socket))
        async with httpx.AsyncClient(transport=transport, base_url="http://x/v1") as client:
            others = httpx.AsyncHTTPTransport(uds=str(made.socket))
            async with httpx.AsyncClient(transport=others, base_url="http://x/v1") as other:
                client.headers["Authorization"] = f"Bearer {ALICE}"
                other.headers["Authorization"] = f"Bearer {BOB}"
                yield client, other


async def reused(client: httpx.AsyncClient, prompt: str, **fields: object) -> int:
    """How much of a prompt the session ``trip`` held before."""
    body = {"model": "sim", "prompt": prompt, "session_id": "trip", "max_tokens": 1, **fields}
    reply: Any = (await client.post("/completions", json=body)).raise_for_status().json()
    return int(reply["usage"]["prompt_tokens_details"]["cached_tokens"])


SAID = "my secret is seven words long sim.eos_at=0"


async def test_nobody_learns_from_anothers_session_what_is_in_it(tmp_path: Path) -> None:
    """What was read before is told to whom it was read for, not to who guesses its beginning."""
    async with strangers(tmp_path) as (alice, bob):
        assert await reused(alice, SAID) == 0
        assert await reused(bob, f"{SAID} and more") == 0
        assert await reused(alice, f"{SAID} and more") > 0


async def test_nobody_empties_or_closes_anothers_session(tmp_path: Path) -> None:
    """For them there is none of that name; for its owner there is."""
    async with strangers(tmp_path) as (alice, bob):
        await reused(alice, SAID)
        for client, existed in ((bob, False), (alice, True)):
            reply = await client.post("/sessions/trip/reset")
            assert reply.json() == {"id": "trip", "existed": existed, **reply.json()}
        for client, existed in ((bob, False), (alice, True)):
            assert (await client.delete("/sessions/trip")).json()["existed"] is existed


async def test_a_name_cannot_pretend_to_be_anothers(tmp_path: Path) -> None:
    """What would join the key's name and the session's cannot be written."""
    async with strangers(tmp_path) as (alice, bob):
        await reused(alice, SAID)
        for name in ("alice trip", "key:alice trip", "alice%20trip"):
            body = {"model": "sim", "prompt": SAID, "session_id": name, "max_tokens": 1}
            reply = await bob.post("/completions", json=body)
            if " " in name:
                assert reply.status_code == 400
        assert (await bob.delete("/sessions/alice%20trip")).status_code == 400
