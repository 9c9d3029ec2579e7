from __future__ import annotations

from pathlib import Path

import httpx
import trio
from prometheus_client.parser import text_string_to_metric_families

from supervisord_llm.core.words import CancelledBy, SlotState
from supervisord_llm.events import CancelSettled, RequestFinished, WorkerReady, WorkerUsage
from supervisord_llm.schema import Started, Token
from tests.api.conftest import Door, OpenDoor
from tests.api.house import House, ask, house, next_of, read
from tests.harness import QUICK, SECONDS
from tests.runtime.test_reconfigure import Edited, gone

PREFIX = "supervisord_llm_"


async def scrape(socket: Path) -> dict[tuple[str, ...], float]:
    """Every sample's value, by its name without the prefix and its labels' values."""
    async with httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(uds=str(socket))) as http:
        reply = await http.get("http://localhost/metrics")
    assert 200 == reply.status_code
    found = {}
    for family in text_string_to_metric_families(reply.text):
        for sample in family.samples:
            labels = (sample.labels[name] for name in sorted(sample.labels))
            found[sample.name.removeprefix(PREFIX), *labels] = sample.value
    return found


async def test_the_reply_is_what_a_scraper_expects(door: Door) -> None:
    """The content type names the format; a scraper would guess otherwise."""
    reply = await door.http.get("/metrics")
    assert 200 == reply.status_code
    assert "text/plain; version=0.0.4; charset=utf-8" == reply.headers["content-type"]
    assert reply.text.startswith("# HELP supervisord_llm_build_info ")
    head = await door.http.head("/metrics")
    assert (200, "") == (head.status_code, head.text)
    assert len(reply.content) <= int(head.headers["content-length"])


async def test_only_a_listener_for_probes_has_it(open_door: OpenDoor) -> None:
    """It is for those who may ask for the daemon's health, and says no more than they may know."""
    async with open_door(serve=("control", "inference")) as door:
        assert 404 == (await door.http.get("/metrics")).status_code
    async with open_door(serve=("probe",)) as door:
        assert 200 == (await door.http.get("/metrics")).status_code


async def check_states(made: House) -> None:
    """What a slot does is the same in the metrics and in the status."""
    found = await scrape(made.socket)
    [pool] = (await made.client.status()).pools
    states = {state: int(found["workers", "sim", state]) for state in SlotState}
    assert pool.states == {state: count for state, count in states.items() if count}
    assert pool.queued == found["queue_depth", "sim"]
    assert pool.in_flight == found["requests_in_flight", "sim"]


async def test_the_metrics_agree_with_the_status_and_with_what_happened(tmp_path: Path) -> None:
    """Real workers complete, are cancelled, crash and start again; nothing is counted apart."""
    async with house(tmp_path, workers=2) as made:
        await check_states(made)
        async with made.client.generate(ask("three words here")) as stream:
            await read(stream)
        async with made.client.generate(ask("x sim.tokens=100000 sim.tps=100")) as stream:
            await next_of(stream, Token)
            await next_of(stream, Token)
            await check_states(made)
            await made.client.cancel(stream.accepted.id)
            await read(stream)
        settled = await made.wait(CancelSettled)
        async with made.client.generate(ask("x sim.exit=3 sim.at=2")) as stream:
            await read(stream)
        await made.wait(WorkerReady, 3)
        await made.wait_serving(2)

        await check_states(made)
        found = await scrape(made.socket)
        totals = (await made.client.status()).totals
        finished = made.all(RequestFinished)

    assert totals.completed == found["requests_total", "completed", "sim"] == 1
    assert totals.cancelled == found["requests_total", "cancelled", "sim"] == 1
    assert totals.failed == found["requests_total", "failed", "sim"] == 1
    assert totals.accepted == found["events_total", "request.accepted"] == 3
    assert totals.restarts == 1 == found["worker_restarts_total", "sim", "unexpected_exit"]
    assert 1 == found["cancellations_total", "sim", settled.resolution]
    assert 3 == found["request_seconds_count", "sim"] == found["queue_seconds_count", "sim"]
    assert 3 == found["worker_load_seconds_count", "sim"]
    generated = sum(
        event.tokens if event.generated_tokens is None else event.generated_tokens
        for event in finished
    )
    assert generated == found["tokens_total", "generated", "sim"]
    assert sum(sum(event.gaps) for event in finished) == found["inter_token_seconds_count", "sim"]
    gaps_ms = sum(event.gaps_ms for event in finished)
    assert abs(gaps_ms / 1000 - found["inter_token_seconds_sum", "sim"]) < 1e-6
    assert 0 < gaps_ms < sum(event.total_ms for event in finished)


async def test_waiting_requests_are_those_that_wait(tmp_path: Path) -> None:
    """One runs and two wait; when one of these is cancelled, one does."""
    endless = ask("x sim.tokens=100000 sim.tps=100")
    async with (
        house(tmp_path) as made,
        made.client.generate(endless) as first,
        made.client.generate(endless) as second,
        made.client.generate(endless),
    ):
        await next_of(first, Started)
        await check_states(made)
        assert 2 == (await scrape(made.socket))["queue_depth", "sim"]
        await made.client.cancel(second.accepted.id)
        assert CancelledBy.API is (await made.wait(RequestFinished)).cancelled_by
        await check_states(made)
        assert 1 == (await scrape(made.socket))["queue_depth", "sim"]


async def test_slots_come_and_go_with_the_pool(tmp_path: Path) -> None:
    """Scaling changes what there is to tell of; a slot that is gone is told of no more."""
    async with house(tmp_path) as made:
        await made.client.scale("sim", 3, wait=True)
        await made.wait(WorkerUsage, 3)
        await check_states(made)
        assert ("worker_resident_bytes", "sim", "sim.2") in await scrape(made.socket)
        await made.client.scale("sim", 1, wait=True)
        with trio.fail_after(SECONDS):
            while len(made.supervisor.slots) > 1:
                await made.supervisor.wait_move()
        await check_states(made)
        found = await scrape(made.socket)
    slots = {labels[2] for labels in found if labels[0].startswith("worker_resident")}
    assert slots <= {"sim.0"}


async def test_a_pool_on_demand_has_stopped_slots(tmp_path: Path) -> None:
    """Slots that have never done anything are there all the same."""
    async with house(
        tmp_path, workers=2, settings=f'{QUICK}\nload = "on_demand"', ready=False
    ) as made:
        await check_states(made)
        assert 2 == (await scrape(made.socket))["workers", "sim", "stopped"]


async def test_a_pool_that_the_configuration_loses_leaves_its_counters(tmp_path: Path) -> None:
    """What it does is told no more, what it did still is; when it is back it goes on counting."""
    async with house(tmp_path) as made:
        edited = Edited(made, tmp_path)
        async with made.client.generate(ask("x sim.tokens=3")) as stream:
            await read(stream)
        await edited.read_again(edited.first.replace("[pool.sim]", "[pool.new]"))
        await gone(made, "sim")
        found = await scrape(made.socket)
        assert not [key for key in found if key[0] in {"workers", "queue_depth"} and "sim" in key]
        assert 1 == found["requests_total", "completed", "sim"]
        assert 1 == sum(found["workers", "new", state] for state in SlotState)

        await edited.read_again(edited.first)
        await gone(made, "new")
        await made.wait_serving(1)
        async with made.client.generate(ask("x sim.tokens=3")) as stream:
            await read(stream)
        await check_states(made)
        assert 2 == (await scrape(made.socket))["requests_total", "completed", "sim"]
