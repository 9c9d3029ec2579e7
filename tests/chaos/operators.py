"""Operators, and accidents: commands at random moments, and signals to whatever is the daemon's.

The daemon's clock cannot be set by a user without privileges, and ``CLOCK_MONOTONIC`` by nobody; a
daemon that is stopped for a while stands for it, as for a machine that was suspended: when it goes
on, every timer is late.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from random import Random

import trio

from supervisord_llm.api.routes import ROUTES
from supervisord_llm.host import tree
from tests.chaos import settings
from tests.chaos.clients import Witness
from tests.chaos.http import BrokenReply, ask
from tests.chaos.subject import Subject

_PATHS = frozenset(route.path for route in ROUTES)
_STOP_MAX_SECONDS = 2.0
_SIGNALS = (
    *(signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP, signal.SIGSTOP, signal.SIGCONT),
    *(signal.SIGTERM, signal.SIGSEGV),
)
FILES: tuple[settings.Changes, ...] = (
    None,
    {"alpha": {"workers": 2, "min_ready": 1}},
    {"alpha": {"workers": 4}},
    {"alpha": {"command": ["sllm-sim-worker", "--sessions=2", "--load_ms=300"]}},
    {"alpha": {"command": ["sllm-sim-worker", "--exit=3", "--during=load"]}},
    {"alpha": {"queue": {"max_queued": 8}, "cancel": {"cooperative_grace": "200ms"}}},
    {"beta": {"env": {"CHANGED": "1"}}},
    {"beta": {"standby": 0, "workers": 1, "min_ready": 1}},
    {"gamma": {"idle_ttl": "500ms"}},
    {"gamma": {}},
    {"delta": {}},
    {"delta": {"workers": 1}, "epsilon": {"workers": 2, "standby": 1}},
    {"epsilon": {"env": {"CHANGED": "1"}}, "alpha": {"reload": "restart"}},
)
"""What the file may say: as at first, other sizes, other workers, failing ones, a pool less."""


class Operator:
    """Whoever has the control socket, and the right to send signals."""

    def __init__(self, subject: Subject, random: Random, witness: Witness) -> None:
        """Act on ``subject``; whatever is by chance comes from ``random``."""
        self._subject = subject
        self._random = random
        self._witness = witness
        self.done: Counter[str] = Counter()
        """How often each thing was done."""

    async def command(self) -> None:
        """Give one command after the other, until cancelled."""
        actions: dict[Callable[[], Awaitable[None]], int] = {
            self._slot: 12,
            self._pool: 6,
            self._config: 4,
            self._hang_up: 1,
        }
        await self._repeat(actions, per_second=4)

    async def harm(self) -> None:
        """Send one signal after the other, until cancelled."""
        actions: dict[Callable[[], Awaitable[None]], int] = {
            self._signal_worker: 5,
            self._signal_descendant: 3,
            self._signal_between: 2,
        }
        await self._repeat(actions, per_second=2)

    async def suspend(self) -> None:
        """Stop the whole daemon for a while, again and again, until cancelled."""
        await self._repeat({self._stop_daemon: 1}, per_second=0.2)

    async def _repeat(
        self, actions: Mapping[Callable[[], Awaitable[None]], int], *, per_second: float
    ) -> None:
        kinds, weights = list(actions), list(actions.values())
        while True:
            await trio.sleep(self._random.expovariate(per_second))
            [act] = self._random.choices(kinds, weights)
            await act()

    # Commands -----------------------------------------------------------------

    async def _slot(self) -> None:
        verb = self._random.choice(("reload", "quarantine", "resume", "resume", "drain"))
        pool = self._random.choice(("alpha", "alpha", *settings.POOLS))
        slot = f"{pool}.{self._random.randint(0, 3)}"
        await self._post("/api/v1/workers/{slot}", verb, slot)
        if verb == "drain":
            await trio.sleep(self._random.random())
            await self._post("/api/v1/workers/{slot}", "resume", slot)

    async def _pool(self) -> None:
        verb = self._random.choice(("reload", "drain", "resume", "scale"))
        pool = self._random.choice(list(settings.POOLS))
        body = {"workers": self._random.randint(1, 4)} if verb == "scale" else None
        # Whoever waits for the end of it may leave before, which changes nothing.
        with trio.move_on_after(self._random.random()):
            query = self._random.choice(("", "", "?wait=true"))
            await self._post("/api/v1/pools/{pool}", verb, pool, body, query)
        if verb == "drain":
            await trio.sleep(self._random.random())
            await self._post("/api/v1/pools/{pool}", "resume", pool)

    async def _config(self) -> None:
        self._write_file()
        await self._post("/api/v1/config", "reload", "")

    async def _hang_up(self) -> None:
        for _ in range(self._random.randint(1, 4)):
            self._write_file()
            self._subject.process.send_signal(signal.SIGHUP)
            self.done["SIGHUP to the daemon"] += 1
            await trio.sleep(self._random.random() / 10)

    def _write_file(self) -> None:
        text = settings.text(self._subject.folder, self._random.choice(FILES))
        if self._random.random() < 0.2:
            text = self._random.choice((text[: len(text) // 2], text + "nonsense = [", ""))
        self._subject.config.write_text(text)

    async def _post(
        self, path: str, verb: str, target: str, body: object = None, query: str = ""
    ) -> None:
        """Give a command, where this version of the daemon knows it; any refusal is an answer."""
        if f"{path}/{verb}" not in _PATHS:
            return
        place = path.replace("{slot}", target).replace("{pool}", target)
        try:
            status, reply = await ask(self._subject.socket, "POST", f"{place}/{verb}{query}", body)
        except (BrokenReply, OSError) as error:
            self._witness.object("operator", f"{verb} {target}: {error}")
            return
        self.done[f"{verb} {'slot' if 'slot' in path else path.split('/')[3]}"] += 1
        if status >= 500 and status != 503:
            self._witness.object("operator", f"{verb} {target} was answered with {status}", reply)

    # Signals ------------------------------------------------------------------

    async def _signal_worker(self) -> None:
        self._signal("a worker", self._subject.workers())
        await trio.lowlevel.checkpoint()

    async def _signal_descendant(self) -> None:
        workers = self._subject.workers()
        found = [facts for each in workers for facts in self._subject.below(each.pid)]
        self._signal("a descendant", found)
        await trio.lowlevel.checkpoint()

    async def _signal_between(self) -> None:
        """Signal what stands between the daemon and a worker."""
        processes = tree.scan()
        parents = {facts.ppid for facts in self._subject.workers()} - {self._subject.process.pid}
        self._signal("a guardian", [processes[pid] for pid in sorted(parents) if pid in processes])
        await trio.lowlevel.checkpoint()

    def _signal(self, what: str, among: list[tree.ProcessFacts]) -> None:
        if among:
            facts, number = self._random.choice(among), self._random.choice(_SIGNALS)
            tree.send_signal(facts.pid, facts.start_time, number)
            self.done[f"{number.name} to {what}"] += 1

    async def _stop_daemon(self) -> None:
        pid = self._subject.process.pid
        os.kill(pid, signal.SIGSTOP)
        try:
            await trio.sleep(self._random.uniform(0.05, _STOP_MAX_SECONDS))
        finally:
            os.kill(pid, signal.SIGCONT)
        self.done["SIGSTOP to the daemon"] += 1
