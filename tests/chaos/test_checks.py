"""Each rule finds what breaks it, in logs made by hand, and nothing in a sound one."""

from __future__ import annotations

import msgspec
import pytest

from supervisord_llm.core.words import (
    CancelledBy,
    Dialect,
    FailureReason,
    FinishReason,
    Outcome,
    PlannedReason,
    Resolution,
    SlotState,
    TeardownStage,
)
from supervisord_llm.events import (
    CancelRequested,
    CancelSettled,
    ConfigReloaded,
    ControlOperation,
    DaemonError,
    DaemonStarted,
    DaemonStopped,
    Event,
    RequestAccepted,
    RequestFinished,
    RequestFirstToken,
    RequestRetried,
    RequestStarted,
    WorkerDraining,
    WorkerExited,
    WorkerParked,
    WorkerQuarantined,
    WorkerReady,
    WorkerReaped,
    WorkerSpawned,
    WorkerState,
)
from tests.chaos.checks import BOUNDED, RULES, check
from tests.chaos.log import Entry, make, read
from tests.chaos.request_rules import Bounds

BOUNDS = Bounds(answer=3.0, settlement=9.0, attempts=2, groups={"p": "device", "q": "device"})
SLOT = "p.0"
START = DaemonStarted(version="0", boot="b", pid=1, config="c", digest="d")
STOP = DaemonStopped(exit_code=0)


def spawned(generation: int = 1, *, pool: str = "p", slot: str = SLOT) -> Event:
    """A worker is there."""
    return WorkerSpawned(pool=pool, worker=slot, generation=generation, pid=9, argv0="w")


def moved(from_: SlotState, to: SlotState, generation: int = 1, *, slot: str = SLOT) -> Event:
    """The slot does something else."""
    return WorkerState(pool="p", worker=slot, generation=generation, from_=from_, to=to)


def drains(slot: str = SLOT, reason: str = PlannedReason.RECYCLE) -> tuple[Event, ...]:
    """A slot that serves is to be replaced."""
    told = WorkerDraining(pool="p", worker=slot, generation=1, reason=reason)
    return moved(SlotState.READY, SlotState.DRAINING, slot=slot), told


def commanded(verb: str, target: str) -> Event:
    """An operator wanted something."""
    return ControlOperation(verb=verb, target=target, outcome="accepted")


def differs(*differences: str) -> Event:
    """The file was read again."""
    return ConfigReloaded(digest="d", differences=list(differences), needs_restart=[])


def parked() -> Event:
    """It stays down."""
    return WorkerParked(pool="p", worker=SLOT, generation=1, reason="r", exit=None, restarts=9)


def ready(generation: int = 1) -> Event:
    """It can serve."""
    return WorkerReady(
        pool="p",
        worker=SLOT,
        generation=generation,
        load_ms=1,
        dialect=Dialect.SERIAL_CANCEL,
        extensions=[],
        capacity=1,
    )


def condemned(generation: int = 1) -> Event:
    """It is judged."""
    return WorkerQuarantined(
        pool="p",
        worker=SLOT,
        generation=generation,
        reason="token_stall",
        stage=TeardownStage.TERMINATING,
    )


def exited(generation: int = 1) -> Event:
    """It has ended."""
    return WorkerExited(
        pool="p",
        worker=SLOT,
        generation=generation,
        exit="exit:0",
        uptime_seconds=1,
        served=0,
        expected=True,
    )


def reaped(generation: int = 1, *, pool: str = "p", slot: str = SLOT) -> Event:
    """Its status is taken."""
    return WorkerReaped(pool=pool, worker=slot, generation=generation, exit="exit:0")


def accepted(request: str = "a") -> Event:
    """A request waits."""
    return RequestAccepted(pool="p", request=request, queued=0)


def started(request: str = "a", attempt: int = 1, generation: int = 1) -> Event:
    """A worker has it."""
    return RequestStarted(
        pool="p", worker=SLOT, generation=generation, request=request, attempt=attempt, queued_ms=0
    )


def spoke(request: str = "a") -> Event:
    """It has output."""
    return RequestFirstToken(pool="p", worker=SLOT, generation=1, request=request, ttft_ms=1)


def retried(request: str = "a", attempt: int = 1) -> Event:
    """It lost its worker and waits again."""
    return RequestRetried(
        pool="p",
        request=request,
        worker=SLOT,
        generation=1,
        attempt=attempt,
        reason=FailureReason.WORKER_EXITED,
    )


def finished(request: str = "a") -> Event:
    """It has its record."""
    return RequestFinished(
        pool="p",
        request=request,
        outcome=Outcome.COMPLETED,
        finish_reason=FinishReason.STOP,
        queued_ms=0,
        total_ms=1,
    )


def asked(request: str = "a") -> Event:
    """Somebody wants its end."""
    return CancelRequested(pool="p", request=request, by=CancelledBy.API)


def settled(request: str = "a") -> Event:
    """The worker's fate is known."""
    return CancelSettled(pool="p", request=request, resolution=Resolution.COOPERATIVE, elapsed_ms=1)


UP = (
    spawned(),
    moved(SlotState.STOPPED, SlotState.STARTING),
    moved(SlotState.STARTING, SlotState.READY),
    ready(),
)
DOWN = (exited(), moved(SlotState.READY, SlotState.STOPPED), reaped())
AGAIN = (
    condemned(),
    moved(SlotState.READY, SlotState.QUARANTINED),
    exited(),
    reaped(),
    moved(SlotState.QUARANTINED, SlotState.STARTING, 2),
    spawned(2),
    moved(SlotState.STARTING, SlotState.READY, 2),
    ready(2),
)
DOWN_AGAIN = (exited(2), moved(SlotState.READY, SlotState.STOPPED, 2), reaped(2))


def log(*told: Event, seconds: float = 0.0) -> list[Entry]:
    """Make a log, each event ``seconds`` after the one before."""
    return [make(number, number * seconds, event) for number, event in enumerate(told, 1)]


def broken(*told: Event, seconds: float = 0.0) -> set[str]:
    """Which rules a log breaks."""
    return {each.rule for each in check(log(*told, seconds=seconds), BOUNDS)}


SOUND = (
    *(START, *UP, accepted(), accepted("b"), started(), *AGAIN[:2], retried(), *AGAIN[2:]),
    *(started(attempt=2, generation=2), spoke(), asked(), finished(), settled()),
    *(started("b", generation=2), finished("b"), *DOWN_AGAIN, STOP),
)


def test_a_sound_log_breaks_no_rule() -> None:
    """With a lost worker, a retry and a cancellation in it."""
    assert broken(*SOUND) == set()


def test_what_looks_like_a_breach_and_is_none_is_let_through() -> None:
    """Each of these is what the daemon promises."""
    one_by_one = (*drains("p.1"), reaped(slot="p.1"), *drains("p.2"))
    by_hand = (*drains("p.1"), *drains("p.2"), commanded("reload", "p.2"))
    resumed = (
        *drains("p.1"),
        moved(SlotState.DRAINING, SlotState.BUSY, slot="p.1"),
        *drains("p.2"),
    )
    surges_now = (*drains("p.1"), differs("pool p: reload restart -> surge"), *drains("p.2"))
    another_reason = (*drains("p.1"), *drains("p.2", PlannedReason.SCALE_DOWN))
    not_serving = (
        *drains("p.1"),
        moved(SlotState.STARTING, SlotState.DRAINING, slot="p.2"),
        drains("p.2")[1],
    )
    for told in (one_by_one, by_hand, resumed, surges_now, another_reason, not_serving):
        assert "one_after_the_other" not in broken(*told)
    before = (spawned(), reaped(), spawned(pool="q", slot="q.0"))
    alone = (spawned(), spawned(pool="other", slot="other.0"), spawned(slot="p.1"))
    for told in (before, alone):
        assert "one_on_a_device" not in broken(*told)
    assert "parked_is_told" not in broken(moved(SlotState.BACKOFF, SlotState.PARKED), parked())


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ("from_start_to_stop", (STOP,)),
        ("from_start_to_stop", (START,)),
        ("from_start_to_stop", ()),
        ("from_start_to_stop", (START, DaemonStopped(exit_code=1))),
        ("no_bug", (START, DaemonError(id="i", where="w", error="e", traceback="t"), STOP)),
        ("one_record", (START, accepted(), STOP)),
        ("one_record", (START, finished(), STOP)),
        ("one_record", (START, accepted(), finished(), finished(), STOP)),
        ("one_record", (START, accepted(), finished(), accepted(), finished(), STOP)),
        ("one_settlement", (START, accepted(), asked(), finished(), STOP)),
        ("one_settlement", (START, accepted(), finished(), settled(), STOP)),
        ("one_settlement", (START, accepted(), asked(), finished(), settled(), settled(), STOP)),
        ("one_settlement", (START, accepted(), asked(), asked(), finished(), settled(), STOP)),
        ("to_the_fit", (START, accepted(), started(), finished(), STOP)),
        ("to_the_fit", (START, *UP, condemned(), accepted(), started(), finished(), *DOWN, STOP)),
        ("to_the_fit", (START, *UP, *DOWN, accepted(), started(), finished(), STOP)),
        ("to_the_fit", (START, *UP, accepted(), started(generation=2), finished(), *DOWN, STOP)),
        (
            "to_the_fit",
            (
                *(START, *UP, moved(SlotState.READY, SlotState.DRAINING), accepted(), started()),
                *(finished(), exited(), moved(SlotState.DRAINING, SlotState.STOPPED), reaped()),
                STOP,
            ),
        ),
        (
            "attempts_in_order",
            (START, *UP, accepted(), started(attempt=2), finished(), *DOWN, STOP),
        ),
        (
            "attempts_in_order",
            (START, *UP, accepted(), started(), started(attempt=2), finished(), *DOWN, STOP),
        ),
        ("attempts_in_order", (START, *UP, accepted(), retried(), finished(), *DOWN, STOP)),
        (
            "attempts_in_order",
            (
                *(START, *UP, accepted(), started(), spoke(), retried(), started(attempt=2)),
                *(finished(), *DOWN, STOP),
            ),
        ),
        (
            "attempts_in_order",
            (START, *UP, accepted(), started(), spoke(), spoke(), finished(), *DOWN, STOP),
        ),
        ("few_attempts", (accepted(), started(attempt=3))),
        ("retried_when_lost", (*UP, accepted(), started(), retried())),
        ("retried_when_lost", (*UP, accepted(), started(generation=2), condemned(), retried())),
        ("retried_when_lost", (*UP, accepted(), started(), spoke(), exited(), retried())),
        ("one_on_a_device", (spawned(), spawned(pool="q", slot="q.0"))),
        ("one_on_a_device", (spawned(), exited(), spawned(pool="q", slot="q.0"), reaped())),
        ("one_after_the_other", (*drains("p.1"), *drains("p.2"))),
        ("one_after_the_other", (*drains("p.1"), *drains("p.2"), commanded("reload", "p"))),
        ("one_after_the_other", (*drains("p.1"), reaped(slot="p.3"), *drains("p.2"))),
        (
            "one_after_the_other",
            (
                *drains("p.1"),
                differs("pool p: workers 2 -> 1", "pool q: reload restart -> surge"),
                *drains("p.2"),
            ),
        ),
        ("parked_is_told", (moved(SlotState.BACKOFF, SlotState.PARKED),)),
        (
            "parked_is_told",
            (
                moved(SlotState.BACKOFF, SlotState.PARKED),
                moved(SlotState.PARKED, SlotState.STARTING),
                parked(),
            ),
        ),
        ("parked_is_told", (parked(),)),
        ("in_time", (asked(), finished())),
        ("one_end", (START, spawned(), STOP)),
        ("one_end", (START, spawned(), reaped(), STOP)),
        ("one_end", (START, exited(), STOP)),
        ("one_end", (START, spawned(), exited(), exited(), reaped(), STOP)),
        ("one_end", (START, spawned(), exited(), reaped(), reaped(), STOP)),
        ("one_end", (START, spawned(), spawned(2), exited(2), reaped(2), STOP)),
        (
            "one_end",
            (
                *(START, spawned(3), exited(3), reaped(3), spawned(2), exited(2), reaped(2)),
                STOP,
            ),
        ),
        ("states_join", (START, moved(SlotState.STOPPED, SlotState.STARTING), STOP)),
        (
            "states_join",
            (
                *(START, moved(SlotState.STOPPED, SlotState.STARTING)),
                *(moved(SlotState.READY, SlotState.STOPPED), STOP),
            ),
        ),
        ("gauges_return", (START, accepted(), STOP)),
        ("gauges_return", (START, *UP, accepted(), started(), *DOWN, STOP)),
        ("gauges_return", (START, *UP, accepted(), finished(), started(), *DOWN, STOP)),
        ("gauges_return", (START, *UP, accepted(), retried(), finished(), *DOWN, STOP)),
    ],
)
def test_a_rule_finds_what_breaks_it(rule: str, told: tuple[Event, ...]) -> None:
    """Whatever other rules say of the same log, whose events are four seconds apart."""
    assert rule in broken(*told, seconds=4.0)


def test_a_gap_in_the_numbers_is_found() -> None:
    """In the middle, and at the beginning."""
    entries = log(*SOUND)
    middle = [entry for entry in entries if entry.seq != 16]
    [found] = [each for each in check(middle, BOUNDS) if each.rule == "numbered"]
    assert found.message == "number 17 follows 15"
    moved_on = [msgspec.structs.replace(entry, seq=entry.seq + 1) for entry in entries]
    assert {each.rule for each in check(moved_on, BOUNDS)} == {"numbered"}


def test_a_late_answer_and_a_late_settlement_are_found() -> None:
    """Each against its own bound; the report shows the asking and the answer."""
    told = (START, accepted(), asked(), finished(), settled(), STOP)
    assert broken(*told, seconds=2.9) == set()
    late = check(log(*told, seconds=4.0), BOUNDS)
    assert [each.rule for each in late] == ["in_time"]
    assert len(late[0].lines) == 2
    assert len(check(log(*told, seconds=6.0), BOUNDS)) == 2


def test_every_rule_is_broken_by_some_log() -> None:
    """A rule that is added needs a log here."""
    cases = test_a_rule_finds_what_breaks_it.pytestmark[0].args[1]  # type: ignore[attr-defined]
    assert {*RULES, *BOUNDED} == {rule for rule, _ in cases} | {"numbered"}


def test_what_is_no_event_is_found() -> None:
    """A traceback, half a line, an event that the catalogue does not know."""
    head = b'{"ts":"2026-01-01T00:00:00Z","seq":1,"level":"info",'
    good = head + b'"event":"daemon.stopped","exit_code":0}\n'
    entries, violations = read(
        [good, b"Traceback (most recent call last):\n", good[:30], b"\xff\n"]
    )
    assert [entry.event for entry in entries] == [STOP]
    assert [each.rule for each in violations] == ["log"] * 3
    _, [unknown] = read([good.replace(b"daemon.stopped", b"daemon.danced")])
    assert "danced" in unknown.message
