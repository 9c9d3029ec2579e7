"""The promises, over whole histories of faults in virtual time.

What each machine holds by itself is tested beside it; here a slot, its ladder, the cancellations
and the ledgers are put together, and only what a user sees is looked at.
"""

from __future__ import annotations

import math
from functools import partial

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from supervisord_llm.core import cancellation, escalation, restart
from supervisord_llm.core.slot import Next
from supervisord_llm.core.words import (
    AnsweredBy,
    CancelledBy,
    FailureReason,
    FinishReason,
    Outcome,
    RequestState,
    Resolution,
    SlotState,
)
from tests.core.simulated import Request, Script, Settings, Worker
from tests.core.simulation import Pool

COOPERATIVE, PREFILL, TERMINATE, KILL, REAP = 2.0, 10.0, 3.0, 2.0, 5.0
DETACH = 20.0
EPSILON = 1e-6
"""Virtual time is exact but for the rounding of sums."""


def settings(
    *,
    interruptible_prefill: bool = True,
    cancellable: bool = True,
    on_uncancellable: cancellation.Fate = "terminate",
    max_attempts: int = 1,
) -> Settings:
    """The defaults, with a policy that does not park in the time of a test."""
    return Settings(
        terms=cancellation.Terms(
            cooperative_grace=COOPERATIVE,
            prefill_grace=PREFILL,
            cancellable=cancellable,
            interruptible_prefill=interruptible_prefill,
            on_uncancellable=on_uncancellable,
            detach_timeout=DETACH,
        ),
        graces=escalation.Graces(terminate=TERMINATE, kill=KILL, reap=REAP),
        policy=restart.Policy(
            backoff_initial=1.0,
            backoff_max=60.0,
            jitter=0.0,
            healthy_after=30.0,
            max_restarts=8,
            restart_window=600.0,
        ),
        max_attempts=max_attempts,
    )


def maybe(longest: float) -> st.SearchStrategy[float | None]:
    """A delay, or never."""
    return st.none() | st.floats(0.0, longest)


scripts = st.builds(
    Script,
    spawns=st.sampled_from([True, True, True, False]),
    capacity=st.integers(1, 3),
    load=st.floats(0.0, 5.0),
    prefill=st.floats(0.0, 15.0),
    decode=st.floats(0.0, 15.0),
    heeds_cancel=maybe(12.0),
    pipe_breaks=st.booleans(),
    heeds_close=maybe(4.0),
    heeds_term=maybe(4.0),
    # SIGKILL works: only a process in an uninterruptible sleep outlives it, and that is below.
    heeds_kill=st.floats(0.0, KILL),
    exits_after=maybe(40.0),
    dies_of_prompts=st.none() | maybe(10.0),
)
histories = st.lists(
    st.tuples(
        st.floats(0.0, 60.0),
        st.sampled_from(
            ["submit", "submit", "submit", "cancel", "cancel", "stop", "condemn", "reload", "start"]
        ),
        st.integers(0, 12),
    ),
    max_size=30,
)


def play(pool: Pool, history: list[tuple[float, str, int]], *, stop_at: float = 100.0) -> None:
    """Do what the history says at its times, then stop every slot and let it all come to rest."""
    for at, wish, index in history:
        match wish:
            case "submit":
                pool.at(at, pool.submit)
            case "cancel":
                pool.at(at, partial(pool.cancel, index, CancelledBy.CLIENT))
            case "stop":
                pool.at(at, partial(pool.find_stop, index))
            case "condemn":
                pool.at(at, partial(pool.condemn, index))
            case "start":
                pool.at(at, pool.start)
            case _:
                pool.at(at, partial(pool.drain, Next.START))
    pool.at(stop_at, lambda: pool.drain(Next.STOP))
    pool.run(stop_at + 1000.0)


@given(
    first=st.lists(scripts, min_size=1, max_size=4),
    second=st.lists(scripts, min_size=1, max_size=4),
    history=histories,
    interruptible_prefill=st.booleans(),
    cancellable=st.booleans(),
    on_uncancellable=st.sampled_from(["terminate", "detach"]),
    max_attempts=st.integers(1, 3),
)
@example(
    first=[Script(heeds_cancel=None, heeds_term=None, heeds_close=None)],
    second=[Script()],
    history=[(2.0, "submit", 0), (2.0, "submit", 0), (2.1, "cancel", 0)],
    interruptible_prefill=True,
    cancellable=True,
    on_uncancellable="terminate",
    max_attempts=1,
)
@example(
    first=[Script(heeds_cancel=None, heeds_term=None, decode=60.0)],
    second=[Script()],
    history=[(2.0, "submit", 0), (4.0, "stop", 0), (5.0, "cancel", 0)],
    interruptible_prefill=True,
    cancellable=True,
    on_uncancellable="terminate",
    max_attempts=1,
)
@example(
    first=[Script(decode=5.0)],
    second=[Script()],
    history=[(2.0, "submit", 0), (4.0, "condemn", 0)],
    interruptible_prefill=True,
    cancellable=True,
    on_uncancellable="terminate",
    max_attempts=3,
)
def test_the_promises_hold_in_every_history(
    first: list[Script],
    second: list[Script],
    history: list[tuple[float, str, int]],
    *,
    interruptible_prefill: bool,
    cancellable: bool,
    on_uncancellable: cancellation.Fate,
    max_attempts: int,
) -> None:
    """Whatever two workers do, and whenever requests come and are cancelled."""
    configured = settings(
        interruptible_prefill=interruptible_prefill,
        cancellable=cancellable,
        on_uncancellable=on_uncancellable,
        max_attempts=max_attempts,
    )
    pool = Pool(configured, [first, second])
    play(pool, history)
    for request in pool.requests.values():
        check_answer(request)
        check_bound(request)
        check_stop(request)
        check_neighbours(request)
        check_attempts(request, max_attempts)
        check_charges(request)
    for each in pool.slots:
        for index, worker in enumerate(each.workers[:-1]):
            check_return(worker, each.workers[index + 1].spawned_at)
        assert sorted(set(numbers := [worker.generation for worker in each.workers])) == numbers
    assert [] == pool.alive
    assert pool.at_rest


def check_answer(request: Request) -> None:
    """Exactly one terminal record, and the end of the request, whatever happened."""
    assert 1 == len(request.seals)
    assert 1 == request.overs
    assert RequestState.FINISHED == request.state.kind


def check_bound(request: Request) -> None:
    """A cancelled request is answered within the cooperative grace, though its worker is wedged."""
    (sealed_at, record), cancel_at = request.seals[0], request.state.cancel_at
    if cancel_at is not None:
        assert sealed_at <= cancel_at + COOPERATIVE + EPSILON
    assert (record.outcome is Outcome.CANCELLED) <= (cancel_at is not None)


def check_stop(request: Request) -> None:
    """Where a stop was found the request is complete, within the same grace, and not cancelled."""
    ((sealed_at, record),) = request.seals
    if request.stopped_at is not None:
        assert sealed_at <= request.stopped_at + COOPERATIVE + EPSILON
        assert (Outcome.COMPLETED, FinishReason.STOP) == (record.outcome, record.finish_reason)
        assert request.state.cancel_at is None


def check_neighbours(request: Request) -> None:
    """A request fails by a worker only if it was on that worker and it was unfit."""
    (sealed_at, record), worker = request.seals[0], request.was_on
    if worker is None:
        return
    if record.error is FailureReason.WORKER_QUARANTINED:
        assert worker.condemned_at == pytest.approx(sealed_at)
    elif record.outcome is Outcome.FAILED:
        assert request.state.requeued_at is not None
    by_itself = record.outcome is Outcome.COMPLETED and request.stopped_at is None
    if worker.condemned_at is None and by_itself:
        assigned_at, _ = request.tries[-1]
        expected = worker.script.prefill + worker.script.decode
        assert expected == pytest.approx(sealed_at - assigned_at, abs=EPSILON)


def check_attempts(request: Request, max_attempts: int) -> None:
    """All output is one worker's, and only what had none when its worker was lost has another."""
    workers = [worker for _, worker in request.tries]
    assert len({id(worker) for worker in workers}) == len(workers) <= max_attempts
    assert all(worker is workers[-1] for worker in request.delivered)
    for index, worker in enumerate(workers[:-1]):
        assert worker.condemned_at is not None
        assert worker.condemned_at <= request.tries[index + 1][0]


def check_charges(request: Request) -> None:
    """Ends are held against a suspect, and against nobody but the slots otherwise."""
    ((_, record),) = request.seals
    assert (2 if record.suspect else 0) == len(request.charged)
    assert all(worker.excused for worker in request.charged)
    assert record.suspect <= (not request.delivered)


def check_return(worker: Worker, next_at: float) -> None:
    """An unfit worker's successor is spawned once the ladder and the backoff have ended."""
    if worker.condemned_at is not None:
        ladder = TERMINATE + KILL
        assert next_at <= worker.condemned_at + ladder + worker.restart_delay + EPSILON


@given(
    wedged=st.builds(
        Script,
        load=st.floats(0.0, 5.0),
        prefill=st.floats(0.0, 1.0),
        decode=st.just(1e6),
        heeds_cancel=st.none() | st.floats(COOPERATIVE + 0.01, 100.0),
        heeds_term=maybe(4.0),
        heeds_kill=st.floats(0.0, KILL),
    ),
    load=st.floats(0.0, 5.0),
    cancel_after=st.floats(0.0, 5.0),
)
def test_a_slot_with_a_wedged_worker_serves_again_within_its_bound(
    wedged: Script, load: float, cancel_after: float
) -> None:
    """Cooperative, terminate, kill and load; the first failure in service costs no backoff."""
    pool = Pool(settings(), [[wedged, Script(load=load)]])
    pool.at(6.0, pool.submit)
    cancel_at = 6.0 + cancel_after
    pool.at(cancel_at, lambda: pool.cancel(0, CancelledBy.API))
    pool.run(cancel_at + COOPERATIVE + TERMINATE + KILL + load + EPSILON)
    (only,) = pool.slots
    assert SlotState.READY == only.state.kind
    assert 2 == only.state.generation
    check_answer(pool.requests["req_0"])
    check_bound(pool.requests["req_0"])


@given(
    wedged=scripts,
    sound=st.builds(Script, prefill=st.floats(0.0, 2.0), decode=st.floats(0.0, 2.0)),
    cancel_after=st.floats(0.0, 3.0),
)
def test_a_wedged_worker_costs_its_neighbour_s_request_nothing(
    wedged: Script, sound: Script, cancel_after: float
) -> None:
    """The other slot's request takes exactly as long as it would have taken alone."""
    pool = Pool(settings(), [[msgspec.structs.replace(wedged, load=0.5, spawns=True)], [sound]])
    pool.at(1.5, pool.submit)
    pool.at(1.5, pool.submit)
    pool.at(1.5 + cancel_after, lambda: pool.cancel(0, CancelledBy.CLIENT))
    pool.run(40.0)
    for request in pool.requests.values():
        if request.was_on is not None and request.was_on.of.name == "p.1":
            ((_, record),) = request.seals
            if request.state.cancel_at is None:
                assert Outcome.COMPLETED == record.outcome
                assert sound.prefill + sound.decode == pytest.approx(
                    (record.total_ms - record.queued_ms) / 1000.0, abs=0.001
                )


def test_a_worker_that_cannot_be_reaped_holds_its_slot_but_not_its_client() -> None:
    """The client has its answer in time; the slot says so, tries on, and never starts a second."""
    stuck = Script(decode=1e6, heeds_cancel=None, heeds_term=None, heeds_kill=None)
    pool = Pool(settings(), [[stuck]])
    pool.at(2.0, pool.submit)
    pool.at(3.0, lambda: pool.cancel(0, CancelledBy.CLIENT))
    pool.run(1000.0)
    request = pool.requests["req_0"]
    ((sealed_at, record),) = request.seals
    assert (5.0, AnsweredBy.GRACE) == (sealed_at, record.answered_by)
    assert RequestState.HELD == request.state.kind
    (only,) = pool.slots
    (worker,) = only.workers
    assert 5.0 + TERMINATE + KILL + REAP == worker.unreapable_at
    assert SlotState.QUARANTINED == only.state.kind


def serve_one_by_one(pool: Pool, requests: int) -> None:
    """Bring requests so far apart that each is over before the next."""
    for index in range(requests):
        pool.at(2.0 + 10.0 * index, pool.submit)
    pool.run(2.0 + 10.0 * requests)


def test_a_prompt_that_ends_every_worker_parks_no_slot() -> None:
    """Each fails as a suspect after two workers, and the pool serves on."""
    deadly = Script(dies_of_prompts=0.1)
    pool = Pool(settings(max_attempts=3), [[deadly], [deadly]])
    serve_one_by_one(pool, 20)
    records = [record for request in pool.requests.values() for _, record in request.seals]
    assert [True] * 20 == [record.suspect for record in records]
    assert not any(record.retryable for record in records)
    assert {2} == {len(request.tries) for request in pool.requests.values()}
    assert [SlotState.READY] * 2 == [each.state.kind for each in pool.slots]


def test_workers_that_end_without_a_retry_to_tell_why_park_their_slot() -> None:
    """Where a request has one attempt, nothing can be held against it."""
    deadly = Script(dies_of_prompts=0.1)
    pool = Pool(settings(max_attempts=1), [[deadly]])
    for index in range(9):
        pool.at(2.0 + 65.0 * index, pool.submit)
    pool.run(600.0)
    (only,) = pool.slots
    assert SlotState.PARKED == only.state.kind
    assert not any(request.seals[0][1].suspect for request in pool.requests.values())


def test_a_slot_that_ends_with_whatever_it_is_given_is_parked_and_costs_no_request() -> None:
    """Another worker completes each request, which acquits it: the slot is to blame."""
    pool = Pool(settings(max_attempts=2), [[Script(dies_of_prompts=0.1)], [Script()]])
    serve_one_by_one(pool, 59)
    for request in pool.requests.values():
        ((_, record),) = request.seals
        assert Outcome.COMPLETED == record.outcome
    assert [SlotState.PARKED, SlotState.READY] == [each.state.kind for each in pool.slots]
    assert 10 == len(pool.slots[0].workers)


def test_what_a_lost_worker_still_says_is_told_as_late_and_reaches_nobody() -> None:
    """The request is another worker's by then."""
    stubborn = Script(prefill=1.0, decode=1.0, heeds_term=None)
    pool = Pool(settings(max_attempts=2), [[stubborn], [Script(prefill=2.0, decode=3.0)]])
    pool.at(2.0, pool.submit)
    pool.at(2.5, lambda: pool.condemn(0))
    pool.run(20.0)
    request = pool.requests["req_0"]
    ((sealed_at, record),) = request.seals
    assert (7.5, Outcome.COMPLETED) == (sealed_at, record.outcome)
    assert 1 == request.lates
    assert {"p.1"} == {worker.of.name for worker in request.delivered}


@pytest.mark.parametrize(
    ("decode", "free_at", "resolution", "generation"),
    [(6.0, 8.0, Resolution.DETACHED, 1), (1e6, 24.1, Resolution.TERMINATED, 2)],
)
def test_a_worker_that_is_left_alone_serves_again_when_it_has_ended_by_itself(
    decode: float, free_at: float, resolution: Resolution, generation: int
) -> None:
    """Its client does not wait for that, nor does the next request for longer than its time."""
    configured = settings(cancellable=False, on_uncancellable="detach")
    pool = Pool(configured, [[Script(load=0.0, prefill=1.0, decode=decode)]])
    pool.at(1.0, pool.submit)
    pool.at(4.0, lambda: pool.cancel(0, CancelledBy.DEADLINE))
    pool.at(5.0, pool.submit)
    pool.run(free_at - 0.05)
    (only,) = pool.slots
    assert SlotState.READY is not only.state.kind
    assert 0 == len(pool.requests["req_1"].tries)
    pool.run(free_at + EPSILON)
    cancelled, waiting = pool.requests.values()
    ((sealed_at, record),) = cancelled.seals
    assert (4.0, AnsweredBy.DETACH) == (sealed_at, record.answered_by)
    assert resolution == cancelled.state.resolution
    assert [generation] == [worker.generation for _, worker in waiting.tries]


def test_a_request_that_must_wait_for_a_prefill_is_answered_long_before_its_worker_is_free() -> (
    None
):
    """The longer allowance protects the loaded model; the client does not pay for it."""
    patient = Script(prefill=8.0, decode=1e6, heeds_cancel=7.5)
    pool = Pool(settings(interruptible_prefill=False), [[patient]])
    pool.at(1.0, pool.submit)
    pool.at(1.5, lambda: pool.cancel(0, CancelledBy.CLIENT))
    pool.run(20.0)
    request = pool.requests["req_0"]
    ((sealed_at, _),) = request.seals
    assert 1.5 + COOPERATIVE == sealed_at
    assert Resolution.COOPERATIVE == request.state.resolution
    (only,) = pool.slots
    assert (SlotState.READY, 1) == (only.state.kind, only.state.generation)


def test_a_slot_that_crashes_again_and_again_is_parked_and_its_queue_is_told() -> None:
    """Nobody waits for a pool that cannot serve any more."""
    pool = Pool(settings(), [[Script(load=5.0, exits_after=0.1)]])
    pool.run(100.0)
    pool.submit()
    pool.run(2000.0)
    (only,) = pool.slots
    assert SlotState.PARKED == only.state.kind
    assert 9 == len(only.workers)
    delays = [worker.restart_delay for worker in only.workers]
    assert [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, math.inf] == delays
    ((_, record),) = pool.requests["req_0"].seals
    assert Outcome.FAILED == record.outcome
    pool.submit()
    assert 1 == pool.refused
