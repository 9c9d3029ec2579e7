"""Who is served next, with real workers: clients take turns, and age outweighs priority.

What is promised is proved of the arithmetic in ``tests/core/test_queueing_bound.py``; this shows
that the pool does what the arithmetic says.
"""

from __future__ import annotations

from pathlib import Path

import trio
import trio.testing

from supervisord_llm.core.words import CancelledBy, Outcome, RequestState
from supervisord_llm.events import RequestFinished, RequestStarted
from supervisord_llm.runtime.request import Request, RequestSpec, RequestStream
from tests.harness import QUICK, SECONDS, Bench, bench, read_all, read_tokens

SHORT = "x sim.tokens=4 sim.tps=200"
"""About 20 ms of a worker."""
STEP = 0.02
AGEING = QUICK + f'queue.age_step = "{STEP * 1000:.0f}ms"\n'
PATIENT = QUICK + 'queue.age_step = "1h"\n'


async def ask(made: Bench, spec: RequestSpec, taken: list[Request] | None = None) -> None:
    """Send one request and read its answer."""
    async with made.pool.request(spec) as stream:
        if taken is not None:
            taken.append(stream.request)
        await read_all(stream)


async def keep_asking(made: Bench, spec: RequestSpec, enough: trio.Event) -> None:
    """Send one request after the other until told to stop."""
    while not enough.is_set():
        await ask(made, spec)


def started(made: Bench) -> list[Request]:
    """The requests that workers were given, in that order."""
    return [
        made.supervisor.find_request(event.request) for event in made.events.all(RequestStarted)
    ]


async def blocked(made: Bench, stream: RequestStream) -> None:
    """See that the only worker has this request, so that what comes has to wait."""
    await read_tokens(stream, 1)
    assert made.slot().requests == [stream.request.id]


async def test_a_newcomer_goes_next_however_much_another_has_queued(tmp_path: Path) -> None:
    """Whoever fills the queue first does not own it."""
    async with bench(tmp_path) as made, trio.open_nursery() as nursery:
        async with made.pool.request(RequestSpec(prompt=SHORT, client="flooder")) as first:
            for _ in range(20):
                nursery.start_soon(ask, made, RequestSpec(prompt=SHORT, client="flooder"))
            await blocked(made, first)
            assert made.pool.queued == 20
            await ask(made, RequestSpec(prompt=SHORT, client="newcomer"))
            before = [request.client for request in started(made)].index("newcomer")
            assert before <= 2
            assert made.pool.queued >= 17
            await read_all(first)
        nursery.cancel_scope.cancel()


async def test_clients_take_turns_for_as_long_as_they_queue(tmp_path: Path) -> None:
    """Each gets its share, although one has asked for five times as much and before the others."""
    async with bench(tmp_path) as made:
        async with (
            trio.open_nursery() as nursery,
            made.pool.request(RequestSpec(prompt=SHORT, client="early")) as first,
        ):
            await blocked(made, first)
            for client, count in (("early", 15), ("b", 3), ("c", 3)):
                for _ in range(count):
                    nursery.start_soon(ask, made, RequestSpec(prompt="y", client=client))
            await trio.testing.wait_all_tasks_blocked()
            await read_all(first)
        order = [request.client for request in started(made)][1:]
        assert sorted(order[:3]) == sorted(order[3:6]) == ["b", "c", "early"]
        assert order[9:] == ["early"] * 12


async def test_a_higher_priority_goes_first(tmp_path: Path) -> None:
    """Among those that wait, while their ages do not count."""
    async with bench(tmp_path, settings=PATIENT) as made:
        async with (
            trio.open_nursery() as nursery,
            made.pool.request(RequestSpec(prompt=SHORT)) as first,
        ):
            await blocked(made, first)
            for priority in (-10, 0, 10, 5):
                nursery.start_soon(ask, made, RequestSpec(prompt="y", priority=priority))
            await trio.testing.wait_all_tasks_blocked()
            outlook = [made.supervisor.find_request(each).priority for each in made.pool.order()]
            await read_all(first)
        assert [request.priority for request in started(made)][1:] == [10, 5, 0, -10]
        assert outlook == [10, 5, 0, -10]


async def test_the_lowest_is_served_under_a_constant_load_of_the_highest(tmp_path: Path) -> None:
    """Once it is as old as its priority is low, each other client goes before it once at most."""
    async with bench(tmp_path, settings=AGEING) as made:
        enough = trio.Event()
        low: list[Request] = []
        others = ("a", "b", "c")
        async with trio.open_nursery() as nursery:
            for client in others * 3:
                high = RequestSpec(prompt=SHORT, client=client, priority=10)
                nursery.start_soon(keep_asking, made, high, enough)
            await made.events.wait(RequestFinished, count=5)
            with trio.fail_after(SECONDS):
                await ask(made, RequestSpec(prompt=SHORT, client="d", priority=-10), low)
            enough.set()
        [request] = low
        assert request.assigned_at is not None
        old_enough = request.accepted_at + (10 + 10) * STEP
        order = started(made)
        late = [
            each.client
            for each in order[: order.index(request)]
            if each.assigned_at is not None and each.assigned_at > old_enough
        ]
        assert len(late) == len(set(late)) <= len(others)
        overtook = [each for each in order if request.accepted_at < each.accepted_at]
        assert order.index(request) > order.index(overtook[0]), "there was no load to speak of"


async def test_no_later_request_of_its_own_client_goes_before_an_old_one(tmp_path: Path) -> None:
    """After (10 - priority) steps of age nothing that comes in its line is sooner."""
    async with bench(tmp_path, settings=AGEING) as made:
        enough = trio.Event()
        low: list[Request] = []
        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(
                    keep_asking, made, RequestSpec(prompt=SHORT, priority=10), enough
                )
            await made.events.wait(RequestFinished, count=3)
            with trio.fail_after(SECONDS):
                await ask(made, RequestSpec(prompt=SHORT, priority=0), low)
            enough.set()
        [request] = low
        order = started(made)
        before = order[: order.index(request)]
        assert all(each.accepted_at <= request.accepted_at + 10 * STEP for each in before)
        assert any(each.accepted_at > request.accepted_at for each in before)


async def test_whoever_leaves_the_queue_is_out_of_it_at_once(tmp_path: Path) -> None:
    """By leaving or by a cancellation, from any place in it; the others keep their order."""
    async with bench(tmp_path) as made:
        async with (
            trio.open_nursery() as nursery,
            made.pool.request(RequestSpec(prompt=SHORT, client="first")) as first,
        ):
            await blocked(made, first)
            waiting: list[Request] = []
            scopes = [trio.CancelScope() for _ in range(6)]

            async def wait_in(scope: trio.CancelScope) -> None:
                with scope:
                    await ask(made, RequestSpec(prompt="y"), waiting)

            for scope in scopes:
                nursery.start_soon(wait_in, scope)
                await trio.testing.wait_all_tasks_blocked()
            assert made.pool.order() == [request.id for request in waiting]
            scopes[1].cancel()
            waiting[4].cancel(CancelledBy.API)
            await trio.testing.wait_all_tasks_blocked()
            left = [waiting[at] for at in (0, 2, 3, 5)]
            assert made.pool.order() == [request.id for request in left]
            assert made.pool.queued == 4
            await read_all(first)
        assert started(made)[1:] == left
        assert {request.state for request in waiting} == {RequestState.FINISHED}
        outcomes = [request.record and request.record.outcome for request in waiting]
        assert outcomes.count(Outcome.CANCELLED) == 2
