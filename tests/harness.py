"""A supervisor with real sim workers inside the test, and its events to wait for."""

from __future__ import annotations

import os
import sysconfig
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import trio

from supervisord_llm.config.load import load
from supervisord_llm.core.record import Record
from supervisord_llm.events import Event, RequestAccepted, RequestFinished
from supervisord_llm.host import prctl
from supervisord_llm.host.leftovers import WorkerRecords
from supervisord_llm.host.parking import ParkingRecords
from supervisord_llm.runtime.channel import Write
from supervisord_llm.runtime.gpu import GpuMemory
from supervisord_llm.runtime.machine import Machine
from supervisord_llm.runtime.pool import Pool
from supervisord_llm.runtime.records import RecordKeeper
from supervisord_llm.runtime.request import RequestSpec, RequestStream
from supervisord_llm.runtime.slot import Slot
from supervisord_llm.runtime.supervisor import Supervisor
from tests.conftest import TEST_VARIABLE, open_descriptors

E = TypeVar("E", bound=Event)

SECONDS = 20.0
"""The bound on every wait of a test: far beyond what it takes, so that only a hang reaches it."""

SCRIPTS = Path(sysconfig.get_path("scripts"))

QUICK = """
load_limits = { timeout = "10s", stall = "5s" }
cancel = { cooperative_grace = "500ms", prefill_grace = "2s", terminate_grace = "500ms" }
restart = { backoff_initial = "50ms", backoff_max = "200ms" }
queue.max_attempts = 1
"""
"""Graces that make a ladder short; a test names its own where they matter to it.

A request has one attempt, so that its fate is that of the worker that the test looks at; tests of
the second attempt say so.
"""


class Recorder:
    """Takes events like the log does, and lets a test wait for one."""

    def __init__(self) -> None:
        """Nothing has happened yet."""
        self.events: list[Event] = []
        self._more = trio.lowlevel.ParkingLot()

    def __call__(self, event: Event) -> int:
        """Record an event."""
        self.events.append(event)
        self._more.unpark_all()
        return len(self.events)

    def all(self, kind: type[E], **fields: object) -> list[E]:
        """The events of a kind whose fields are these, so far."""
        return [
            event
            for event in self.events
            if isinstance(event, kind)
            and all(getattr(event, name) == value for name, value in fields.items())
        ]

    async def wait(self, kind: type[E], *, count: int = 1, **fields: object) -> E:
        """Wait until ``count`` such events have happened; the last of them."""
        with trio.fail_after(SECONDS):
            while len(found := self.all(kind, **fields)) < count:
                await self._more.park()
        return found[count - 1]


@dataclass
class Bench:
    """What a test works with: one pool named ``sim``."""

    supervisor: Supervisor
    events: Recorder

    @property
    def pool(self) -> Pool:
        """The pool."""
        return self.supervisor.pools["sim"]

    def slot(self, index: int = 0) -> Slot:
        """One of its slots."""
        return self.pool.slots[index]

    async def wait_ready(self) -> None:
        """Wait until every slot is ready."""
        with trio.fail_after(SECONDS):
            while not all(slot.state == "ready" for slot in self.pool.slots):
                await self.supervisor.wait_move()

    async def generate(self, prompt: str, **spec: object) -> tuple[str, Record]:
        """Send a prompt and read to the end: the text and the record."""
        async with self.pool.request(RequestSpec(prompt=prompt, **spec)) as stream:  # type: ignore[arg-type]
            return await read_all(stream)


async def read_all(stream: RequestStream) -> tuple[str, Record]:
    """Read a stream to its end: the text and the record."""
    texts: list[str] = []
    record: Record | None = None
    with trio.fail_after(SECONDS):
        while (batch := await stream.next_batch()) is not None:
            texts += batch.tokens
            record = batch.record
    assert record is not None
    return "".join(texts), record


async def read_tokens(stream: RequestStream, count: int) -> list[str]:
    """Read until at least ``count`` tokens have come."""
    texts: list[str] = []
    with trio.fail_after(SECONDS):
        while len(texts) < count:
            batch = await stream.next_batch()
            assert batch is not None, "the stream ended"
            texts += batch.tokens
            assert batch.record is None or len(texts) >= count, batch.record
    return texts


def write_config(
    folder: Path, options: str = "", *, workers: int = 1, settings: str = QUICK
) -> Path:
    """A configuration with one pool ``sim`` of sim workers, started with ``options``."""
    return write_command(folder, ["sllm-sim-worker", *options.split()], workers, settings)


def write_command(folder: Path, command: Sequence[str], workers: int, settings: str) -> Path:
    """A configuration with one pool ``sim`` of workers of any kind."""
    path = folder / "daemon.toml"
    path.write_text(
        f'[daemon]\nstate_dir = "{folder}/state"\nshutdown_drain = "5s"\n'
        f'[[listen]]\naddress = "unix:{folder}/control.sock"\n'
        f"[pool.sim]\ncommand = {list(command)}\nworkers = {workers}\n"
        f'pass_env = ["{TEST_VARIABLE}"]\nsampling = {{ max_new_tokens = 100000 }}\n{settings}'
    )
    return path


@asynccontextmanager
async def bench(
    folder: Path,
    options: str = "",
    *,
    workers: int = 1,
    settings: str = QUICK,
    ready: bool = True,
    write: Write = os.write,
    command: Sequence[str] = (),
    machine: Callable[[Recorder], Machine] | None = None,
) -> AsyncIterator[Bench]:
    """Run a supervisor; stop it in order at the end and see that nothing is left.

    Its workers are the sim worker with ``options``, or any other ``command``; ``machine`` makes
    what the machine offers for their memory, which is nothing otherwise. Whatever a test does,
    three things hold afterwards: every accepted request had exactly one terminal record, no pool
    has one left, and there are no more tasks and descriptors than before. That no process is left
    holds for every test.
    """
    before = trio.lowlevel.current_statistics().tasks_living, open_descriptors()
    argv = command or ["sllm-sim-worker", *options.split()]
    config = load(write_command(folder, argv, workers, settings), os.environ)
    events = Recorder()
    prctl.set_child_subreaper()  # as the daemon does: it adopts what workers leave behind
    with WorkerRecords(folder / "state") as records:
        supervisor = Supervisor(
            config.config,
            boot="test",
            publish=events,
            records=RecordKeeper(records, ParkingRecords(folder / "state"), events),
            machine=(machine or _bare)(events),
            environ=os.environ,
            launcher=SCRIPTS / "sllm-launch",
            sweep=False,
            write=write,
        )
        async with trio.open_nursery() as nursery:
            await nursery.start(supervisor.run)
            made = Bench(supervisor, events)
            if ready:
                await made.wait_ready()
            try:
                yield made
            finally:
                hurry = trio.Event()
                hurry.set()
                with trio.CancelScope(shield=True), trio.fail_after(SECONDS):
                    assert await supervisor.stop(hurry)
                nursery.cancel_scope.cancel()
    check_requests(made)
    assert before == (trio.lowlevel.current_statistics().tasks_living, open_descriptors())


def _bare(events: Recorder) -> Machine:
    return Machine(None, None, GpuMemory(None), events)


def check_requests(made: Bench) -> None:
    """Every accepted request has one terminal record, and none is held any more."""
    accepted = [event.request for event in made.events.all(RequestAccepted)]
    finished = [event.request for event in made.events.all(RequestFinished)]
    assert sorted(accepted) == sorted(finished)
    assert (made.pool.queued, made.pool.in_flight) == (0, 0)
