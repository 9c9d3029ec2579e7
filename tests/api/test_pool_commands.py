"""The commands for a whole pool, and for the configuration."""

from __future__ import annotations

import os
from typing import Any

import httpx
import pytest
import trio

from supervisord_llm.core.words import RejectReason
from supervisord_llm.errors import ConfigError, Refused
from supervisord_llm.events import ControlOperation
from supervisord_llm.runtime.reconfigure import Change
from tests.api.conftest import Door
from tests.api.raw import post

POOL = "/api/v1/pools/smollm"
TOLD: dict[str, tuple[dict[str, Any] | None, dict[str, Any]]] = {
    "reload": (None, {"reloading": True, "revision": 2}),
    "drain": (None, {"drained": True}),
    "resume": (None, {}),
    "scale": ({"workers": 3}, {"target": 3}),
}
"""By verb: the body, and what is otherwise in the reply."""


def operation(door: Door) -> ControlOperation:
    """The one command, which was ours."""
    [event] = [each for each in door.daemon.events if isinstance(each, ControlOperation)]
    assert (os.getuid(), os.getpid()) == (event.uid, event.pid)
    return event


@pytest.mark.parametrize("verb", TOLD)
async def test_a_command_is_taken_and_told(door: Door, verb: str) -> None:
    """202 says what the pool is now to be; the event says who asked for what."""
    body, changed = TOLD[verb]
    reply = await door.http.post(f"{POOL}/{verb}", json=body or {})
    usual = {
        "pool": "smollm",
        "target": 2,
        "standby": 0,
        "drained": False,
        "reloading": False,
        "revision": 1,
        "states": {"ready": 2},
    }
    assert (202, usual | changed) == (reply.status_code, reply.json())
    assert [verb] == door.pool.told
    told = operation(door)
    assert (verb, "smollm", "accepted") == (told.verb, told.target, told.outcome)
    assert told.detail == ("3 workers" if verb == "scale" else None)


@pytest.mark.parametrize("verb", TOLD)
async def test_a_command_can_wait_until_all_is_done(door: Door, verb: str) -> None:
    """With wait=true the answer is what has become of the pool."""
    replies: list[httpx.Response] = []
    async with trio.open_nursery() as nursery:

        async def client() -> None:
            body, _ = TOLD[verb]
            replies.append(await door.http.post(f"{POOL}/{verb}?wait=true", json=body or {}))

        nursery.start_soon(client)
        await door.daemon.wait_event(ControlOperation)
        assert not replies
        door.pool.settled.set()
    assert (200, False) == (replies[0].status_code, replies[0].json()["reloading"])


async def test_a_client_that_leaves_has_commanded_all_the_same(door: Door) -> None:
    """Its handler ends with it; the pool goes on."""
    async with await door.connect() as stream:
        await stream.send_all(post(f"{POOL}/drain?wait=true", b""))
        await door.daemon.wait_event(ControlOperation)
    assert ["drain"] == door.pool.told
    assert 202 == (await door.http.post(f"{POOL}/resume")).status_code


@pytest.mark.parametrize("verb", TOLD)
@pytest.mark.parametrize(
    ("pool", "query", "spoilt", "status", "result"),
    [
        ("smollm", "", {}, 503, "shutting_down"),
        ("other", "", {}, 404, "not_found"),
        ("smollm", "", {"force": True}, 400, "invalid_request"),
        ("smollm", "?wait=perhaps", {}, 400, "invalid_request"),
    ],
)
async def test_a_refused_command_is_told_too(
    door: Door, verb: str, pool: str, query: str, spoilt: dict[str, Any], status: int, result: str
) -> None:
    """The event's result is the code of the reply, and nothing else happens."""
    door.pool.refusal = Refused(RejectReason.SHUTTING_DOWN, "cannot do that now")
    body, _ = TOLD[verb]
    reply = await door.http.post(f"/api/v1/pools/{pool}/{verb}{query}", json=(body or {}) | spoilt)
    assert (status, result) == (reply.status_code, reply.json()["error"]["code"])
    told = operation(door)
    assert (verb, pool, result) == (told.verb, told.target, told.outcome)
    assert (1, []) == (len(door.daemon.events), door.pool.told)


@pytest.mark.parametrize(
    "body", ["", "{}", '{"workers": 0}', '{"workers": 1025}', '{"workers": "2"}']
)
async def test_a_size_that_makes_no_sense_is_refused(door: Door, body: str) -> None:
    """Nothing is not a size: that is what drain is for."""
    reply = await door.http.post(f"{POOL}/scale", content=body)
    assert (400, "invalid_request") == (reply.status_code, reply.json()["error"]["code"])
    assert [] == door.pool.told


async def test_the_configuration_is_read_again(door: Door) -> None:
    """The reply is what changed; the event says who asked."""
    door.daemon.change = Change("cd34", ["pool a: added"], ["daemon.state_dir"], ["pool.a.env: x"])
    reply = await door.http.post("/api/v1/config/reload")
    assert 200 == reply.status_code
    assert {
        "digest": "cd34",
        "differences": ["pool a: added"],
        "needs_restart": ["daemon.state_dir"],
        "warnings": ["pool.a.env: x"],
    } == reply.json()
    told = operation(door)
    assert ("config.reload", "/etc/daemon.toml", "done") == (told.verb, told.target, told.outcome)


async def test_an_invalid_configuration_is_refused_with_all_of_its_problems(door: Door) -> None:
    """400, and nothing has changed."""
    door.daemon.change = ConfigError("/etc/daemon.toml", ["pool.a: x", "pool.b: y"])
    reply = await door.http.post("/api/v1/config/reload", json={})
    error = reply.json()["error"]
    assert (400, "invalid_config") == (reply.status_code, error["code"])
    assert (
        "cannot use /etc/daemon.toml: pool.a: x; pool.b: y; nothing has changed, correct it and "
        "try again"
    ) == error["message"]
    assert "invalid_config" == operation(door).outcome


async def test_a_configuration_is_not_sent(door: Door) -> None:
    """The file is the daemon's own; a body that looks like one is refused."""
    reply = await door.http.post("/api/v1/config/reload", json={"pool": {}})
    assert (400, "invalid_request") == (reply.status_code, reply.json()["error"]["code"])
