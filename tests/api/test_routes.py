from __future__ import annotations

import pytest

from supervisord_llm.api.routes import ROUTES
from supervisord_llm.events import HttpRefused
from tests.api.conftest import Door, OpenDoor


def test_the_list_is_the_whole_api() -> None:
    """A route that is added or lost is noticed here."""
    expected = {
        ("GET", "/api/v1/status"),
        ("GET", "/api/v1/pools"),
        ("GET", "/api/v1/pools/{pool}"),
        ("POST", "/api/v1/pools/{pool}/reload"),
        ("POST", "/api/v1/pools/{pool}/drain"),
        ("POST", "/api/v1/pools/{pool}/resume"),
        ("POST", "/api/v1/pools/{pool}/scale"),
        ("GET", "/api/v1/workers"),
        ("GET", "/api/v1/workers/{slot}"),
        ("POST", "/api/v1/workers/{slot}/reload"),
        ("POST", "/api/v1/workers/{slot}/drain"),
        ("POST", "/api/v1/workers/{slot}/quarantine"),
        ("POST", "/api/v1/workers/{slot}/resume"),
        ("GET", "/api/v1/workers/{slot}/logs"),
        ("POST", "/api/v1/generate"),
        ("GET", "/api/v1/requests"),
        ("GET", "/api/v1/requests/{id}"),
        ("POST", "/api/v1/requests/{id}/cancel"),
        ("GET", "/api/v1/events"),
        ("POST", "/api/v1/config/reload"),
        ("GET", "/v1/models"),
        ("GET", "/v1/models/{id:path}"),
        ("POST", "/v1/chat/completions"),
        ("POST", "/v1/completions"),
        ("GET", "/metrics"),
        ("POST", "/v1/sessions/{id:path}/reset"),
        ("DELETE", "/v1/sessions/{id:path}"),
        ("GET", "/livez"),
        ("GET", "/readyz"),
        ("GET", "/health"),
    }
    assert expected == {(route.method, route.path) for route in ROUTES}


@pytest.mark.parametrize(
    ("serve", "path", "status"),
    [
        (("probe",), "/livez", 200),
        (("probe",), "/api/v1/status", 404),
        (("control",), "/api/v1/status", 200),
        (("control",), "/livez", 404),
        (("control", "probe"), "/v1/sessions/trip", 404),
        (("inference",), "/v1/sessions/trip", 405),
    ],
)
async def test_a_listener_serves_only_its_groups(
    open_door: OpenDoor, serve: tuple[str, ...], path: str, status: int
) -> None:
    """A socket for probes shows nothing of the control API, and the other way round."""
    async with open_door(serve=serve) as door:
        assert status == (await door.http.get(path)).status_code


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/api/v1",
        "/api/v1/status/",
        "/api/v2/status",
        "/metrics/all",
        "/v1/embeddings",
        "/v1/sessions",
        "/api/v1/pools/smollm/quarantine",
        "/api/v1/workers/smollm.0/scale",
        "/api/v1/config",
        "/api/v1/../../etc/passwd",
    ],
)
async def test_an_unknown_path_is_not_found(door: Door, path: str) -> None:
    """Only what is in the list exists; no slash is added or taken."""
    reply = await door.http.get(path)
    assert (404, "not_found") == (reply.status_code, reply.json()["error"]["code"])


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("POST", "/api/v1/status", "GET, HEAD"),
        ("DELETE", "/api/v1/workers/smollm.0", "GET, HEAD"),
        ("GET", "/api/v1/generate", "POST"),
        ("HEAD", "/api/v1/requests/req_1/cancel", "POST"),
        ("OPTIONS", "/livez", "GET, HEAD"),
        ("GET", "/api/v1/config/reload", "POST"),
        ("PUT", "/v1/sessions/trip", "DELETE"),
    ],
)
async def test_a_wrong_method_is_told_the_right_one(
    door: Door, method: str, path: str, allow: str
) -> None:
    """405 carries Allow, and is an event with the peer's credentials."""
    reply = await door.http.request(method, path)
    assert (405, allow) == (reply.status_code, reply.headers["allow"])
    event = await door.daemon.wait_event(HttpRefused)
    assert 405 == event.status
    assert f"method_not_allowed: {method} {path}" == event.reason


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/status",
        "/api/v1/pools/smollm",
        "/api/v1/workers",
        "/api/v1/workers/smollm.0/logs?follow=true",
        "/api/v1/requests",
        "/api/v1/events?follow=true",
        "/health",
        "/readyz",
    ],
)
async def test_head_answers_like_get_without_a_body(door: Door, path: str) -> None:
    """Every GET route takes HEAD, an endless stream included."""
    reply = await door.http.head(path)
    assert (200, b"") == (reply.status_code, reply.content)


@pytest.mark.parametrize(
    ("path", "param"),
    [
        ("/api/v1/status?x=1", "x"),
        ("/api/v1/workers?state=ready", "state"),
        ("/api/v1/events?since=-1", "since"),
        ("/api/v1/events?since=1e3", "since"),
        ("/api/v1/events?since=9223372036854775808", "since"),
        ("/api/v1/events?since=%D9%A3", "since"),
        ("/api/v1/events?follow=yes", "follow"),
        ("/api/v1/events?follow=true&follow=true", "follow"),
        ("/api/v1/requests?state=queued", "state"),
        ("/api/v1/workers/smollm.0/logs?lines=-1", "lines"),
        ("/api/v1/workers/smollm.0/logs?lines=1000001", "lines"),
        ("/api/v1/workers/smollm.0/logs?lines=", "lines"),
        ("/api/v1/workers/smollm.0/logs?since=3", "since"),
        ("/livez?deep", "deep"),
        ("/health?verbose", "verbose"),
    ],
)
async def test_a_bad_query_is_named(door: Door, path: str, param: str) -> None:
    """Unknown, repeated or unreadable parameters are a 400 that names them."""
    error = (await door.http.get(path)).json()["error"]
    assert ("invalid_request", param) == (error["code"], error["param"])


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (
            "/api/v1/status?x=1",
            "cannot use query parameter 'x': there is no such one here; leave it out",
        ),
        pytest.param(
            "/api/v1/events?x=1",
            "cannot use query parameter 'x': there is no such one here; leave it out; there are: "
            "follow, since",
        ),
        (
            f"/api/v1/status?{'x' * 9000}=1",
            f"cannot use query parameter '{'x' * 80}…': there is no such one here; leave it out",
        ),
    ],
)
async def test_an_unknown_parameter_is_told_what_to_do(door: Door, path: str, message: str) -> None:
    """In a few words, whatever its length, and with those that there are."""
    assert message == (await door.http.get(path)).json()["error"]["message"]
