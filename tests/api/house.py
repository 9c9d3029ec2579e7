"""The HTTP front over the real runtime in this process, with sim workers behind it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest
import trio

from supervisord_llm.api.front import Front
from supervisord_llm.api.keys import KeyRings
from supervisord_llm.api.listeners import open_listeners
from supervisord_llm.api.server import serve
from supervisord_llm.client import Client, GenerateStream
from supervisord_llm.config.load import load
from supervisord_llm.core.words import SlotState
from supervisord_llm.events import Event
from supervisord_llm.host.leftovers import WorkerRecords
from supervisord_llm.host.parking import ParkingRecords
from supervisord_llm.runtime.gpu import GpuMemory
from supervisord_llm.runtime.machine import Machine
from supervisord_llm.runtime.reconfigure import Reconfiguration
from supervisord_llm.runtime.records import RecordKeeper
from supervisord_llm.runtime.supervisor import Supervisor
from supervisord_llm.schema import Finished, GenerateRequest, Token
from supervisord_llm.telemetry.log import EventLog
from supervisord_llm.telemetry.metrics import Metrics
from supervisord_llm.telemetry.ring import Ring
from supervisord_llm.telemetry.totals import Totals
from tests.harness import QUICK, SCRIPTS, SECONDS, write_command

E = TypeVar("E", bound=Event)
T = TypeVar("T")


@dataclass
class House:
    """A supervisor and its front in this process, the socket, and the events."""

    supervisor: Supervisor
    ring: Ring
    events: list[Event]
    socket: Path
    client: Client

    def all(self, kind: type[E]) -> list[E]:
        """The events of a kind so far."""
        return [event for event in self.events if isinstance(event, kind)]

    async def wait(self, kind: type[E], count: int = 1) -> E:
        """Wait until ``count`` events of a kind were published; the last of them."""
        with trio.fail_after(SECONDS):
            while len(found := self.all(kind)) < count:
                await self.ring.wait_appended()
        return found[count - 1]

    async def wait_serving(self, count: int) -> None:
        """Wait until so many slots are ready."""
        with trio.fail_after(SECONDS):
            while count != sum(
                slot.state is SlotState.READY for slot in self.supervisor.slots.values()
            ):
                await self.ring.wait_appended()


@asynccontextmanager
async def house(
    folder: Path,
    options: str = "",
    *,
    workers: int = 1,
    settings: str = QUICK,
    ready: bool = True,
    command: Sequence[str] = (),
    listen: str = "",
) -> AsyncIterator[House]:
    """Serve one pool ``sim``; at the end it is stopped in the daemon's order, in a hurry.

    Its workers are the sim worker with ``options``, or any other ``command``; ``listen`` is more
    lines for the listener.
    """
    argv = command or ["sllm-sim-worker", *options.split()]
    path = write_command(folder, argv, workers, settings)
    path.write_text(path.read_text().replace("[pool.sim]", f"{listen}\n[pool.sim]"))
    loaded = load(path, os.environ)
    events: list[Event] = []
    ring, totals, metrics = Ring(loaded.config.log.ring_events), Totals(), Metrics()
    log = EventLog(
        boot="boot-1",
        ring=ring,
        consumers=[totals, metrics, lambda _, event: events.append(event)],
    )
    with (
        WorkerRecords(folder / "state") as records,
        open_listeners(loaded.config.listen) as listeners,
    ):
        supervisor = Supervisor(
            loaded.config,
            boot="boot-1",
            publish=log.publish,
            records=RecordKeeper(records, ParkingRecords(folder / "state"), log.publish),
            machine=Machine(None, None, GpuMemory(None), log.publish),
            environ=os.environ,
            launcher=SCRIPTS / "sllm-launch",
            sweep=False,
        )
        keys = KeyRings(loaded.keys)
        reconfigure = Reconfiguration(
            loaded, supervisor, log.publish, os.environ, replace_keys=keys.replace
        )
        front = Front(
            supervisor=supervisor,
            ring=ring,
            totals=totals,
            metrics=metrics,
            publish=log.publish,
            reload_config=reconfigure,
            keys=keys,
            live=lambda: True,
            config_path=str(loaded.path),
            version="1.2.3",
        )
        async with trio.open_nursery() as nursery:
            await nursery.start(serve, front, listeners)
            await nursery.start(supervisor.run)
            socket = Path(listeners[0].address.removeprefix("unix:"))
            async with Client(socket) as client:
                made = House(supervisor, ring, events, socket, client)
                if ready:
                    await made.wait_serving(workers)
                try:
                    yield made
                finally:
                    hurry = trio.Event()
                    hurry.set()
                    # Also when the test failed: its workers are reaped before the next one.
                    with trio.CancelScope(shield=True), trio.fail_after(SECONDS):
                        assert await supervisor.stop(hurry)
            nursery.cancel_scope.cancel()


def ask(prompt: str) -> GenerateRequest:
    """A generation of the pool ``sim``."""
    return GenerateRequest(pool="sim", prompt=prompt, max_new_tokens=100_000)


async def read(stream: GenerateStream) -> tuple[str, Finished]:
    """Read a stream to its end: the text, and the one finished line."""
    texts, ends = [], []
    with trio.fail_after(SECONDS):
        async for line in stream:
            if isinstance(line, Token):
                texts.append(line.text)
            elif isinstance(line, Finished):
                ends.append(line)
    [finished] = ends
    return "".join(texts), finished


async def next_of(stream: GenerateStream, kind: type[T]) -> T:
    """Read on to the next line of a kind."""
    with trio.fail_after(SECONDS):
        async for line in stream:
            if isinstance(line, kind):
                return line
    pytest.fail(f"the stream ended without {kind.__name__}")
