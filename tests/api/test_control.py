"""Status, pools, workers and requests, as the control API shows and commands them."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from supervisord_llm.core.words import RejectReason, SlotState
from supervisord_llm.errors import Refused
from supervisord_llm.events import CancelRequested, ControlOperation
from supervisord_llm.runtime.request import RequestSpec
from supervisord_llm.wire.messages import Model
from tests.api.conftest import Door
from tests.api.raw import post, read_until


async def get(door: Door, path: str) -> Any:
    """Return the JSON of a GET that succeeds."""
    reply = await door.http.get(path)
    assert 200 == reply.status_code
    return reply.json()


def operation(door: Door) -> tuple[str, str, str]:
    """Return verb, target and result of the one command, which was ours."""
    [event] = [each for each in door.daemon.events if isinstance(each, ControlOperation)]
    assert (os.getuid(), os.getgid(), os.getpid()) == (event.uid, event.gid, event.pid)
    return event.verb, event.target, event.outcome


async def test_status_sums_up(door: Door) -> None:
    """Version, boot and pid say which daemon this is; counts say how it is doing."""
    door.pool.queued = 2
    door.daemon.totals.completed = 5
    status = await get(door, "/api/v1/status")
    assert ("1.2.3", "boot-1", os.getpid(), "running", 2, 5) == (
        status["version"],
        status["boot"],
        status["pid"],
        status["state"],
        status["queued"],
        status["totals"]["completed"],
    )
    assert [{"ready": 2}] == [pool["states"] for pool in status["pools"]]
    assert status["uptime_seconds"] >= 0


async def test_status_is_starting_until_the_first_verdict(door: Door) -> None:
    """A first load is a start; the load after a crash is not, and a shutdown is a stop."""
    door.pool.ready = False
    for slot in door.pool.slots:
        slot.state = SlotState.STARTING
    assert "starting" == (await get(door, "/api/v1/status"))["state"]
    for slot in door.pool.slots:
        slot.last_exit = last_exit(door)
    assert "running" == (await get(door, "/api/v1/status"))["state"]
    door.daemon.stopping = True
    assert "stopping" == (await get(door, "/api/v1/status"))["state"]


async def test_a_pool_shows_its_model_and_configuration(door: Door) -> None:
    """The template itself is not shown, only whether there is one."""
    door.pool.model = Model(id="SmolLM2", context_length=8192, chat_template="{{ secret }}")
    pool = await get(door, "/api/v1/pools/smollm")
    assert (True, 2, 1) == (pool["ready"], pool["workers"], pool["min_ready"])
    assert ("SmolLM2", 8192, True) == (
        pool["model"]["id"],
        pool["model"]["context_length"],
        pool["model"]["chat_template"],
    )
    assert ["worker"] == pool["config"]["command"]
    assert [pool] == (await get(door, "/api/v1/pools"))["pools"]


async def test_a_pool_shows_what_is_wanted_of_it(door: Door) -> None:
    """Its size, and whether it is drained, loaded, or being reloaded."""
    door.pool.target, door.pool.standby, door.pool.sessions = 3, 1, 5
    door.pool.drained, door.pool.loaded, door.pool.reloading = True, False, True
    pool = await get(door, "/api/v1/pools/smollm")
    assert (3, 1, 5, True, False, True, 1) == tuple(
        pool[key]
        for key in (
            "target",
            "standby",
            "sessions",
            "drained",
            "loaded",
            "reloading",
            "revision",
        )
    )


async def test_a_worker_shows_what_its_slot_knows(door: Door) -> None:
    """Times are RFC 3339, what is unknown is null."""
    slot = door.pool.slots[0]
    slot.state, slot.pid, slot.dialect = SlotState.BACKOFF, None, None
    slot.next_start_at = door.daemon.clock.now() + 60
    slot.last_exit = last_exit(door)
    slot.active, slot.revision = False, 3
    slot.usage = SimpleNamespace(
        rss=10,
        pss=9,
        anonymous=8,
        swap=0,
        gpu=7,
        held=6,
        processes=2,
        cpu_seconds=1.5,
    )
    worker = await get(door, "/api/v1/workers/smollm.0")
    assert ("smollm.0", "smollm", "backoff", None, None) == tuple(
        worker[key] for key in ("slot", "pool", "state", "pid", "dialect")
    )
    assert 0 < worker["next_start_in_ms"] <= 60_000
    assert ("exit:3", ["bad"]) == (worker["last_exit"]["exit"], worker["last_exit"]["last_lines"])
    memory = {"rss": 10, "pss": 9, "anonymous": 8, "swap": 0, "gpu": 7, "held": 6, "processes": 2}
    assert memory == worker["memory"]
    assert (False, 3) == (worker["active"], worker["revision"])
    assert worker["since"].endswith("Z")
    both = (await get(door, "/api/v1/workers"))["workers"]
    assert ["smollm.0", "smollm.1"] == [each["slot"] for each in both]


@pytest.mark.parametrize(
    ("path", "param"),
    [
        ("/api/v1/pools/other", "pool"),
        ("/api/v1/workers/smollm.7", "slot"),
        ("/api/v1/requests/req_7", "id"),
    ],
)
async def test_what_does_not_exist_is_not_found(door: Door, path: str, param: str) -> None:
    """404 names what there is, and is no event."""
    reply = await door.http.get(path)
    error = reply.json()["error"]
    assert (404, "not_found", param) == (reply.status_code, error["code"], error["param"])
    assert not door.daemon.events


@pytest.mark.parametrize(
    ("verb", "state"),
    [
        ("reload", "draining"),
        ("drain", "draining"),
        ("quarantine", "quarantined"),
        ("resume", "starting"),
    ],
)
async def test_a_command_is_taken_and_told(door: Door, verb: str, state: str) -> None:
    """202 says which generation it found and what the slot does now; the event says who asked."""
    reply = await door.http.post(f"/api/v1/workers/smollm.1/{verb}")
    assert 202 == reply.status_code
    assert {"slot": "smollm.1", "state": state, "generation": 1} == reply.json()
    assert [verb] == door.pool.slots[1].told
    assert (verb, "smollm.1", "accepted") == operation(door)


@pytest.mark.parametrize("verb", ["reload", "drain", "quarantine", "resume"])
@pytest.mark.parametrize(
    ("slot", "body", "status", "result"),
    [
        ("smollm.1", b"", 503, "shutting_down"),
        ("smollm.9", b"", 404, "not_found"),
        ("smollm.1", b'{"force": true}', 400, "invalid_request"),
    ],
)
async def test_a_refused_command_is_told_too(
    door: Door, verb: str, slot: str, body: bytes, status: int, result: str
) -> None:
    """The event's result is the code of the reply, and there is only that one event."""
    door.pool.slots[1].refusal = Refused(RejectReason.SHUTTING_DOWN, "cannot reload now")
    reply = await door.http.post(f"/api/v1/workers/{slot}/{verb}", content=body)
    assert (status, result) == (reply.status_code, reply.json()["error"]["code"])
    assert (verb, slot, result) == operation(door)
    assert 1 == len(door.daemon.events)


async def test_a_command_that_breaks_off_is_not_carried_out(door: Door) -> None:
    """A client that leaves before its body is whole has commanded nothing, and that is told."""
    async with await door.connect() as stream:
        head = b"POST /api/v1/workers/smollm.1/reload HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n"
        await stream.send_all(head + b"\r\n{")
    await door.daemon.wait_event(ControlOperation)
    assert ("reload", "smollm.1", "client_gone") == operation(door)
    assert [] == door.pool.slots[1].told


async def test_requests_are_listed_with_their_places_in_the_queue(door: Door) -> None:
    """Those that wait are numbered as they will be served; each is as by its own route."""
    spec = RequestSpec(prompt="x", priority=3, client="uid:7", session_id="trip")
    running, over, *_ = [door.daemon.new_request(door.pool, spec) for _ in "1234"]
    for request in (running, over):
        door.pool.assign(request)
    door.pool.complete(over)
    listed = (await get(door, "/api/v1/requests"))["requests"]
    assert [
        ("req_1", "dispatched", None, None),
        ("req_2", "finished", None, "completed"),
        ("req_3", "queued", 2, None),
        ("req_4", "queued", 1, None),
    ] == [(each["id"], each["state"], each["position"], each["outcome"]) for each in listed]
    assert {(3, "uid:7", "trip")} == {
        (each["priority"], each["client"], each["session_id"]) for each in listed
    }
    alone = [await get(door, f"/api/v1/requests/{each['id']}") for each in listed]
    assert [without_time(each) for each in listed] == [without_time(each) for each in alone]


async def test_a_request_of_a_pool_that_is_gone_is_still_shown(door: Door) -> None:
    """The configuration may lose a pool while what it served is remembered."""
    request = door.daemon.new_request(door.pool, RequestSpec(prompt="x"))
    door.pool.assign(request)
    door.pool.complete(request)
    door.daemon.pools.clear()
    assert "completed" == (await get(door, "/api/v1/requests/req_1"))["outcome"]


async def test_cancelling_a_queued_request(door: Door) -> None:
    """It is over at once: 200 with its outcome, and the queue lets it go."""
    request = door.daemon.new_request(door.pool, RequestSpec(prompt="x"))
    reply = await door.http.post("/api/v1/requests/req_1/cancel")
    body = reply.json()
    assert (200, "finished", "cancelled", "api") == (
        reply.status_code,
        body["state"],
        body["outcome"],
        body["cancelled_by"],
    )
    assert {"answered_by": "queue", "elapsed_ms": 0.0} == body["cancel"]
    assert "queued" == body["resolution"]
    assert [request.id] == door.pool.withdrawn
    assert ("cancel", "req_1", "accepted") == operation(door)


async def test_cancelling_a_running_request_is_taken(door: Door) -> None:
    """202 while the worker has not answered; the request can be looked at meanwhile."""
    request = deaf_request(door)
    reply = await door.http.post("/api/v1/requests/req_1/cancel", json={})
    assert (202, "cancelling", None) == (
        reply.status_code,
        reply.json()["state"],
        reply.json()["outcome"],
    )
    door.pool.complete(request, cancelled=True)
    body = await get(door, "/api/v1/requests/req_1")
    assert ("finished", "cooperative") == (body["state"], body["resolution"])
    assert body["settled_ms"] >= 0


async def test_cancel_can_wait_for_the_terminal(door: Door) -> None:
    """With wait=true the answer is the outcome."""
    request = deaf_request(door)
    replies = []
    async with trio.open_nursery() as nursery:

        async def client() -> None:
            replies.append(await door.http.post("/api/v1/requests/req_1/cancel?wait=true"))

        nursery.start_soon(client)
        await door.daemon.wait_event(CancelRequested)
        door.pool.complete(request, cancelled=True)
    assert (200, "cancelled") == (replies[0].status_code, replies[0].json()["outcome"])


async def test_a_waiting_client_that_leaves_has_cancelled_all_the_same(door: Door) -> None:
    """Its handler ends with it; the request does not come back."""
    request = deaf_request(door)
    async with await door.connect() as stream:
        await stream.send_all(post("/api/v1/requests/req_1/cancel?wait=true", b""))
        await door.daemon.wait_event(CancelRequested)
    assert "cancelling" == (await get(door, "/api/v1/requests/req_1"))["state"]
    door.pool.complete(request, cancelled=True)
    assert "cancelled" == (await get(door, "/api/v1/requests/req_1"))["outcome"]


async def test_cancelling_twice_and_too_late(door: Door) -> None:
    """A finished request answers 200 with the outcome it had."""
    request = door.daemon.new_request(door.pool, RequestSpec(prompt="x"))
    door.pool.assign(request)
    door.pool.complete(request)
    reply = await door.http.post("/api/v1/requests/req_1/cancel")
    assert (200, "completed", None) == (
        reply.status_code,
        reply.json()["outcome"],
        reply.json()["cancelled_by"],
    )
    assert ("cancel", "req_1", "finished") == operation(door)


async def test_cancelling_what_is_unknown(door: Door) -> None:
    """404, and the attempt is told."""
    reply = await door.http.post("/api/v1/requests/req_9/cancel")
    assert 404 == reply.status_code
    assert ("cancel", "req_9", "not_found") == operation(door)


async def test_a_command_works_over_a_half_closed_connection(door: Door) -> None:
    """Tools that send everything and then end their side still get the answer."""
    deaf_request(door)
    async with await door.connect() as stream:
        await stream.send_all(post("/api/v1/requests/req_1/cancel", b""))
        await stream.send_eof()
        await read_until(stream, b"cancelling")


def without_time(info: dict[str, Any]) -> dict[str, Any]:
    """Return what does not change from one moment to the next."""
    return {key: value for key, value in info.items() if key != "timings"}


def deaf_request(door: Door) -> Any:
    """Return a request on a worker that does not answer its cancellation."""
    request = door.daemon.new_request(door.pool, RequestSpec(prompt="x"))
    door.pool.assign(request)
    request._holder = SimpleNamespace(ask_to_stop=lambda _: None)
    return request


def last_exit(door: Door) -> SimpleNamespace:
    """Return how a worker ended."""
    now = door.daemon.clock.now()
    return SimpleNamespace(
        exit="exit:3", reason="unexpected_exit", at=now, generation=1, last_lines=["bad"]
    )
