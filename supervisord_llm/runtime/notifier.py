"""Tells the service manager how the daemon stands: ready, loading, reloading, stopping, alive.

It is a consumer of the events, so it says what the log says. Everything is sent from the event
loop: a daemon whose loop hangs falls silent, and a service manager that watches it starts another.
What must arrive in order (that it is ready, reloads, stops) is kept until it is taken; what is
said again anyway is not.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Literal

import trio

from supervisord_llm import events
from supervisord_llm.core.words import SlotState
from supervisord_llm.host.systemd import Service
from supervisord_llm.runtime.pool_facts import PoolFacts
from supervisord_llm.runtime.request import Publish

EXTENSION = 60.0
"""Seconds that the service manager is asked to wait for the next word, while loading or stopping.
"""
EXTEND_EVERY = 15.0
"""Seconds between two such words."""
STATUS_EVERY = 0.5
"""Seconds between two status lines at least; the last one always says how things stand."""
STATUS_MAX = 1000
"""Characters of a status line; a service manager refuses a message of more than 4096 bytes."""

_RETRY = 0.1
_SETTLE = 0.05
"""Seconds from an event until what it is about has changed everywhere."""
_TELLING = (
    events.CancelSettled,
    events.ConfigRejected,
    events.ConfigReloaded,
    events.ControlOperation,
    events.DaemonReady,
    events.DaemonStopping,
    events.RequestAccepted,
    events.RequestFinished,
    events.RequestRetried,
    events.RequestStarted,
    events.WorkerParked,
    events.WorkerResumed,
    events.WorkerState,
)
"""What may change the status line."""

Pools = Callable[[], Iterable[PoolFacts]]


class Notifier:
    """One daemon's reports, from its start to its end."""

    def __init__(self, service: Service, publish: Publish) -> None:
        """Report to the service manager, if there is one; close this at the end.

        Args:
            service: what it gave.
            publish: takes the warning that no sign of life can be given.
        """
        self._to = service.notify_socket()
        self._watchdog = service.watchdog
        self._publish = publish
        self._phase: Literal["starting", "ready", "stopping"] = "starting"
        self._refused = False
        self._status = ""
        self._unsent: deque[str] = deque()
        self._changed = trio.Event()
        self._moved = trio.Event()
        self._stuck = trio.Event()

    def __call__(self, _seq: int, event: events.Event) -> None:
        """Take note of an event."""
        if self._to is None:
            return
        match event:
            case events.DaemonReady() if self._phase == "starting":
                self._phase = "ready"
                self._say("READY=1")
                self._moved.set()
            case events.DaemonStopping() if self._phase != "stopping":
                self._phase = "stopping"
                self._say("STOPPING=1")
                self._moved.set()
            case events.ConfigRejected() | events.ConfigReloaded():
                self._refused = isinstance(event, events.ConfigRejected)
            case _:
                pass
        if isinstance(event, _TELLING):
            self._changed.set()

    def reloading(self) -> None:
        """The configuration is about to be read again because of a signal."""
        if self._phase == "ready":
            # By this time the manager tells the answer to its own signal from an earlier one.
            self._say(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def reloaded(self) -> None:
        """It was read, or refused."""
        if self._phase == "ready":
            self._say("READY=1")

    def close(self) -> None:
        """Say nothing any more."""
        if self._to is not None:
            self._to.close()

    async def run(self, pools: Pools, alive: Callable[[float], Awaitable[bool]]) -> None:
        """Report until cancelled.

        Args:
            pools: the pools as they are.
            alive: whether the daemon can be said to live; to be answered within so many seconds.
        """
        if self._to is None:
            return
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._deliver)
            nursery.start_soon(self._extend)
            nursery.start_soon(self._keep_status, pools)
            if self._watchdog is not None:
                nursery.start_soon(self._feed, self._watchdog, alive)

    def _say(self, text: str) -> None:
        """Send what must arrive, after all that has to arrive before it."""
        self._unsent.append(text)
        self._flush()

    def _flush(self) -> None:
        while self._unsent and self._send(self._unsent[0]):
            self._unsent.popleft()
        if self._unsent:
            self._stuck.set()

    def _send(self, text: str) -> bool:
        return self._to is not None and self._to.send(text)

    async def _deliver(self) -> None:
        """Try again what was not taken."""
        while True:
            await self._stuck.wait()
            self._stuck = trio.Event()
            await trio.sleep(_RETRY)
            self._flush()

    async def _extend(self) -> None:
        """Ask for patience while something goes on that takes as long as it takes."""
        while True:
            self._moved = trio.Event()
            if self._phase == "ready":
                await self._moved.wait()
                continue
            self._send(f"EXTEND_TIMEOUT_USEC={int(EXTENSION * 1e6)}")
            with trio.move_on_after(EXTEND_EVERY):
                await self._moved.wait()

    async def _keep_status(self, pools: Pools) -> None:
        self._changed.set()
        while True:
            await self._changed.wait()
            self._changed = trio.Event()
            await trio.sleep(_SETTLE)
            status = self._in_words(list(pools()))
            if status != self._status:
                if self._send(f"STATUS={status}"):
                    self._status = status
                else:
                    self._changed.set()
            await trio.sleep(STATUS_EVERY)

    async def _feed(self, watchdog: float, alive: Callable[[float], Awaitable[bool]]) -> None:
        """Give a sign of life twice in the time, and look sooner again where there is none."""
        told = False
        while True:
            if await alive(watchdog / 4):
                self._send("WATCHDOG=1")
                told = False
                await trio.sleep(watchdog / 2)
                continue
            if not told:
                told = True
                self._publish(
                    events.DaemonWarning(
                        topic="watchdog",
                        message="cannot tell the service manager that the daemon is alive: its "
                        "event loop is late, or its control socket does not answer",
                        remedy="if it stays so, the service manager starts the daemon anew; look "
                        "for a machine that swaps, and at LimitNOFILE=",
                    )
                )
            await trio.sleep(watchdog / 10)

    def _in_words(self, pools: list[PoolFacts]) -> str:
        """How things stand, in one line."""
        running = sum(pool.in_flight for pool in pools)
        queued = sum(pool.queued for pool in pools)
        requests = f"{_count(running, 'request')} running, {queued} queued"
        parts = [requests if running or queued else "no requests"]
        if self._phase != "stopping":
            loaded = [pool for pool in pools if pool.loaded or not pool.on_demand]
            workers = _count(sum(len(pool.slots) for pool in loaded), "worker")
            parts.insert(0, f"{sum(pool.serving for pool in loaded)} of {workers} ready")
            parts += [_trouble(pool) for pool in pools if not pool.ready]
        if self._refused:
            parts.append("the configuration was refused when it was read again")
        head = {"starting": "starting: ", "ready": "", "stopping": "stopping: "}[self._phase]
        line = " ".join((head + "; ".join(parts)).split())
        return line if len(line) <= STATUS_MAX else line[: STATUS_MAX - 1] + "…"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _trouble(pool: PoolFacts) -> str:
    parked = bool(pool.slots) and all(slot.state is SlotState.PARKED for slot in pool.slots)
    word = "drained" if pool.drained else "parked" if parked else "not ready"
    return f"pool {pool.name} {word}: {pool.unavailable_because}"
