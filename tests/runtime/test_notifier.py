from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from supervisord_llm.events import (
    DaemonReady,
    DaemonStopping,
    DaemonWarning,
)
from supervisord_llm.host.systemd import Service
from supervisord_llm.runtime.notifier import EXTEND_EVERY, STATUS_EVERY, Notifier
from tests.harness import QUICK, SECONDS, Recorder, bench
from tests.manager import Manager

READY = DaemonReady(pools=[])
STOPPING = DaemonStopping(reason="SIGTERM")


@pytest.fixture
def manager(tmp_path: Path, no_fd_leak: None) -> Iterator[Manager]:
    """A service manager."""
    made = Manager(tmp_path)
    yield made
    made.close()


class Life:
    """Whether the daemon lives, and how often that was asked."""

    def __init__(self) -> None:
        self.lives = True
        self.asked: list[float] = []

    async def __call__(self, within: float) -> bool:
        """The answer."""
        self.asked.append(within)
        return self.lives


@asynccontextmanager
async def notifier(
    manager: Manager, *, watchdog: float | None = None, life: Life | None = None
) -> AsyncIterator[tuple[Notifier, Recorder]]:
    """A notifier of a daemon without pools."""
    events = Recorder()
    made = Notifier(Service(notify_address=manager.address, watchdog=watchdog), events)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.run, list, life or Life())
        await trio.testing.wait_all_tasks_blocked()
        yield made, events
        nursery.cancel_scope.cancel()
    made.close()


def spoken(manager: Manager, *, without: str = "STATUS") -> list[str]:
    """What was said, but for the status."""
    return [each for each in manager.read() if not each.startswith(without)]


async def test_patience_is_asked_for_again_and_again_while_it_loads(
    manager: Manager, autojump_clock: trio.testing.MockClock
) -> None:
    """Until it is ready, and from when it stops; never in between."""
    extend = "EXTEND_TIMEOUT_USEC=60000000"
    async with notifier(manager) as (made, _):
        await trio.sleep(EXTEND_EVERY * 2.5)
        assert [extend] * 3 == spoken(manager)
        made(1, READY)
        await trio.sleep(EXTEND_EVERY * 10)
        assert [extend] * 3 + ["READY=1"] == spoken(manager)
        made(2, STOPPING)
        made(3, DaemonStopping(reason="SIGTERM", forced=True))
        await trio.sleep(EXTEND_EVERY * 1.5)
        assert ["READY=1", "STOPPING=1", extend, extend] == spoken(manager)[3:]


async def test_a_daemon_that_is_stopped_while_it_loads_is_never_ready(
    manager: Manager, autojump_clock: trio.testing.MockClock
) -> None:
    """Whatever comes afterwards; nor does it reload."""
    async with notifier(manager) as (made, _):
        made.reloading()
        made.reloaded()
        made(1, STOPPING)
        made(2, READY)
        made.reloading()
        made.reloaded()
        await trio.sleep(1)
        assert "STOPPING=1" in manager.read()
        assert not manager.has("READY=1")
        assert not manager.has("RELOADING=1…")


async def test_what_must_arrive_arrives_in_order_however_late(
    manager: Manager, autojump_clock: trio.testing.MockClock
) -> None:
    """A service manager that is busy is not waited for, and is told when it listens again."""
    async with notifier(manager) as (made, _):
        assert made._to is not None
        while made._to.send("FILLER=1"):
            pass
        made(1, READY)
        made.reloading()
        made.reloaded()
        await trio.sleep(10)
        manager.read()
        await trio.sleep(1)
        said = [each.partition("=")[0] for each in spoken(manager, without="FILLER")]
        assert ["READY", "RELOADING", "READY"] == [
            each for each in said if each in {"READY", "RELOADING"}
        ]


async def test_signs_of_life_come_twice_in_the_time(
    manager: Manager, autojump_clock: trio.testing.MockClock
) -> None:
    """Each after the daemon was found alive, within a quarter of it."""
    life = Life()
    async with notifier(manager, watchdog=20.0, life=life):
        await trio.sleep(41)
    assert 5 == manager.read().count("WATCHDOG=1")
    assert [5.0] * 5 == life.asked


async def test_a_daemon_that_does_not_live_is_silent_and_looks_sooner_again(
    manager: Manager, autojump_clock: trio.testing.MockClock
) -> None:
    """It says why, once each time; and once it lives again, that is told in time."""
    life = Life()
    async with notifier(manager, watchdog=20.0, life=life) as (_, events):
        life.lives = False
        await trio.sleep(31)  # it looks every two seconds now
        assert 1 == manager.read().count("WATCHDOG=1")
        life.lives = True
        await trio.sleep(2)
        assert 2 == manager.read().count("WATCHDOG=1")
        [warning] = events.all(DaemonWarning)
        assert "watchdog" == warning.topic
        life.lives = False
        await trio.sleep(20)
        assert 2 == len(events.all(DaemonWarning))


async def test_without_a_service_manager_nothing_is_done() -> None:
    """The notifier ends at once, and takes the events all the same."""
    life = Life()
    made = Notifier(Service(watchdog=1.0), Recorder())
    made(1, READY)
    made.reloading()
    made.reloaded()
    await made.run(list, life)
    made.close()
    assert [] == life.asked


async def test_the_status_counts_what_there_is(tmp_path: Path, manager: Manager) -> None:
    """Workers, requests that run and wait, and why a pool does not serve; with few words."""
    events = Recorder()
    made = Notifier(Service(notify_address=manager.address), events)
    settings = QUICK + "standby = 1\n"

    async def status(text: str) -> None:
        with trio.fail_after(SECONDS):
            while not manager.has(f"STATUS={text}"):  # noqa: ASYNC110 - what comes is only looked at
                await trio.sleep(STATUS_EVERY / 10)

    async with (
        bench(tmp_path, workers=1, settings=settings) as it,
        trio.open_nursery() as nursery,
    ):
        made(1, READY)
        nursery.start_soon(made.run, lambda: [it.pool], Life())
        await status("2 of 2 workers ready; no requests")
        it.pool.drain()
        with trio.fail_after(SECONDS):
            while not it.pool.finished:
                await it.supervisor.wait_move()
        made(2, READY)
        drained = "an operator drained it; `llmctl resume sim` brings it back"
        await status(f"0 of 2 workers ready; no requests; pool sim drained: {drained}")
        nursery.cancel_scope.cancel()
    made.close()
