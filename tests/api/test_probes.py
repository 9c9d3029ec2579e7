from __future__ import annotations

from typing import Any

import msgspec
import pytest

from supervisord_llm.core.words import SlotState
from tests.api.conftest import Door
from tests.api.fakes import FakePool


def set_states(pool: FakePool, *states: SlotState) -> None:
    """Put the pool's slots into these states."""
    for slot, state in zip(pool.slots, states, strict=True):
        slot.state = state
    pool.ready = pool.serving >= pool.config.min_ready


async def ask(door: Door, path: str) -> tuple[int, Any]:
    """Return the status and the body of a probe."""
    reply = await door.http.get(path)
    is_json = reply.headers["content-type"] == "application/json"
    return reply.status_code, reply.json() if is_json else reply.text


async def test_live_depends_on_the_loop_alone(door: Door) -> None:
    """No pool serves, and the daemon is live; the loop lags, and it is not."""
    set_states(door.pool, SlotState.PARKED, SlotState.PARKED)
    assert (200, "live\n") == await ask(door, "/livez")
    door.daemon.is_live = False
    assert 503 == (await ask(door, "/livez"))[0]


@pytest.mark.parametrize(
    ("states", "ready", "health", "pool"),
    [
        ((SlotState.READY, SlotState.BUSY), 200, (200, "healthy"), "healthy"),
        ((SlotState.READY, SlotState.CANCELLING), 200, (200, "healthy"), "healthy"),
        ((SlotState.CANCELLING, SlotState.CANCELLING), 200, (200, "healthy"), "healthy"),
        ((SlotState.READY, SlotState.QUARANTINED), 200, (200, "degraded"), "degraded"),
        ((SlotState.READY, SlotState.DRAINING), 200, (200, "degraded"), "degraded"),
        ((SlotState.STARTING, SlotState.STARTING), 503, (503, "unavailable"), "unavailable"),
        ((SlotState.PARKED, SlotState.BACKOFF), 503, (503, "unavailable"), "unavailable"),
    ],
)
async def test_ready_and_health_follow_the_slots(
    door: Door,
    states: tuple[SlotState, ...],
    ready: int,
    health: tuple[int, str],
    pool: str,
) -> None:
    """A cancellation within its grace is normal service; slow is not down, gone is."""
    set_states(door.pool, *states)
    assert ready == (await ask(door, "/readyz"))[0]
    status, body = await ask(door, "/health")
    assert (*health, pool) == (status, body["status"], body["pools"]["smollm"]["status"])


async def test_an_optional_pool_degrades_but_does_not_stop_service(door: Door) -> None:
    """Only required pools count for readiness; health shows all of them."""
    door.pool.config = msgspec.structs.replace(door.pool.config, required=False)
    set_states(door.pool, SlotState.PARKED, SlotState.PARKED)
    assert 200 == (await ask(door, "/readyz"))[0]
    status, body = await ask(door, "/health")
    assert (200, "degraded") == (status, body["status"])


async def test_a_daemon_that_stops_is_not_ready(door: Door) -> None:
    """Work is turned away from the first moment of a shutdown, while everything still serves."""
    door.daemon.stopping = True
    status, text = await ask(door, "/readyz?verbose")
    assert (503, True) == (status, "daemon: shutting down" in text)
    assert 503 == (await ask(door, "/health"))[0]
    assert 200 == (await ask(door, "/livez"))[0]


async def test_verbose_lists_each_pools_verdict(door: Door) -> None:
    """With the reason, where there is one."""
    set_states(door.pool, SlotState.PARKED, SlotState.BACKOFF)
    door.pool.unavailable_because = "smollm.0 parked: exit:1"
    expected = "pool smollm: not ready: 0 of 2 slots serve, 1 needed (smollm.0 parked: exit:1)"
    _, text = await ask(door, "/readyz?verbose")
    assert ["not ready", expected] == text.splitlines()
    assert (503, "not ready\n") == await ask(door, "/readyz")
