"""What a client says about its conversation as a whole."""

from __future__ import annotations

from typing import Any

import pytest

from supervisord_llm.core.words import RejectReason
from supervisord_llm.errors import Refused
from tests.api.conftest import Door
from tests.api.fakes import FakePool


async def test_a_session_is_reset(door: Door) -> None:
    """The reply says whether there was one; its name may hold a slash."""
    reply = await door.http.post("/v1/sessions/trip/reset")
    other = await door.http.post("/v1/sessions/a%2Freset/reset", json={"model": "smollm"})
    assert (200, {"id": "trip", "object": "session", "reset": True, "existed": True}) == (
        reply.status_code,
        reply.json(),
    )
    assert ("a/reset", False) == (other.json()["id"], other.json()["existed"])
    assert ["reset trip", "reset a/reset"] == door.pool.told


async def test_a_session_is_closed(door: Door) -> None:
    """Closing it twice is no error; the second time there is none."""
    first = await door.http.delete("/v1/sessions/trip?model=smollm")
    second = await door.http.request("DELETE", "/v1/sessions/trip", json={"model": "smollm"})
    assert (200, {"id": "trip", "object": "session", "deleted": True, "existed": True}) == (
        first.status_code,
        first.json(),
    )
    assert (200, False) == (second.status_code, second.json()["existed"])
    assert ["close trip", "close trip"] == door.pool.told


@pytest.mark.parametrize(
    ("path", "body", "status", "code", "param"),
    [
        ("trip?model=other", None, 404, "unknown_model", "model"),
        ("trip", {"model": "other"}, 404, "unknown_model", "model"),
        ("trip?model=smollm", {"model": "other"}, 400, "invalid_request", "model"),
        ("trip?pool=smollm", None, 400, "invalid_request", "pool"),
        ("trip", {"pool": "smollm"}, 400, "invalid_request", "pool"),
        ("a%20b", None, 400, "invalid_request", "session_id"),
        ("%C3%A9", None, 400, "invalid_request", "session_id"),
        ("%FF", None, 400, "invalid_request", "session_id"),
        ("x" * 129, None, 400, "invalid_request", "session_id"),
        ("", None, 400, "invalid_request", "session_id"),
        ("__probe__", None, 400, "invalid_request", "session_id"),
    ],
)
async def test_what_cannot_be_meant_is_named(
    door: Door, path: str, body: dict[str, Any] | None, status: int, code: str, param: str
) -> None:
    """A 4xx that names the field, and no session is touched."""
    reply = await door.http.request("DELETE", f"/v1/sessions/{path}", json=body)
    error = reply.json()["error"]
    assert (status, code, param) == (reply.status_code, error["code"], error["param"])
    assert [] == door.pool.told


async def test_with_several_pools_one_is_named(door: Door) -> None:
    """Their names are in the message."""
    door.daemon.pools["other"] = FakePool("other", door.daemon)
    reply = await door.http.post("/v1/sessions/trip/reset")
    assert 400 == reply.status_code
    assert reply.json()["error"]["message"].endswith("name the pool in 'model': smollm, other")


async def test_a_refusal_says_when_to_come_back(door: Door) -> None:
    """As for generations."""
    door.pool.refusal = Refused(RejectReason.POOL_UNAVAILABLE, "cannot now", retry_after=7)
    reply = await door.http.post("/v1/sessions/trip/reset")
    assert (503, "7") == (reply.status_code, reply.headers["retry-after"])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("session_id", ""),
        ("session_id", "a b"),
        ("session_id", "a\n"),
        ("session_id", "__probe__"),
        ("session_id", "x" * 129),
        ("priority", 11),
        ("priority", -11),
        ("priority", 0.5),
        ("deadline_ms", 0),
        ("queue_timeout_ms", 0),
        ("deadline_ms", 2**31),
    ],
)
async def test_a_generation_that_cannot_be_meant_is_named(
    door: Door, field: str, value: object
) -> None:
    """The bounds of what a request says about its place in the queue and its conversation."""
    body = {"pool": "smollm", "prompt": "x", field: value}
    reply = await door.http.post("/api/v1/generate", json=body)
    error = reply.json()["error"]
    assert (400, "invalid_request", field) == (reply.status_code, error["code"], error["param"])
