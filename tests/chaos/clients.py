"""Clients with every habit: those that read to the end, and those that leave, dawdle or babble."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import trio

from tests.chaos import faults, settings
from tests.chaos.http import BrokenReply, Exchange, ask, ask_text, connect
from tests.chaos.log import Violation

PATIENCE = 60.0
"""Seconds for a whole answer, far beyond every bound of the daemon's."""

LATE_SECONDS = 6.0
"""How much later than asked for a request may end: the grace, and two stops of the daemon."""

_READS = ("status", "pools", "pools/alpha", "workers", "workers/alpha.0", "requests", "nothing")
_BABBLE = (
    b"\0\1\2 this is not HTTP\r\n\r\n",
    b"GET / HTTP/2.0\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"POST /api/v1/generate HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{",
    b"POST /api/v1/generate HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\n{{{{",
    b"POST /api/v1/generate HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}GET / HTTP/1.1\r\n",
    b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nhost: x\r\n\r\n",
)


class Reply(msgspec.Struct):
    """What one client was told of its request."""

    id: str = ""
    outcome: str = ""
    text: str = ""
    attempts: int = 0
    tokens: int = 0
    total_ms: float = 0.0
    """From its acceptance to its end, as the daemon says."""


class Witness:
    """What all clients saw together, in the order in which they saw it."""

    def __init__(self) -> None:
        """Nobody has asked yet."""
        self.outcomes: dict[str, str] = {}
        """How each request ended, as its client was told; those that were read to the end."""
        self.refused: dict[int, int] = {}
        """How many requests were refused with each status."""
        self.violations: list[Violation] = []

    def object(self, rule: str, message: str, *evidence: object) -> None:
        """Write down what must never happen."""
        self.violations.append(Violation(rule, message, tuple(map(str, evidence))))


class Client:
    """One client, which sends one request after the other, each in its own manner."""

    def __init__(self, socket: Path, random: Random, witness: Witness, name: str) -> None:
        """Talk to the daemon at ``socket``; whatever is by chance comes from ``random``."""
        self._socket = socket
        self._random = random
        self._witness = witness
        self._name = name
        self._last = "req_00000000000000000000000000"

    async def run(self) -> None:
        """Live until cancelled."""
        manners, weights = zip(*self._manners().items(), strict=True)
        while True:
            [manner] = self._random.choices(manners, weights)
            try:
                with trio.fail_after(PATIENCE):
                    await manner()
            # As groups, since some manners do two things at a time.
            except* BrokenReply as errors:
                self._witness.object("client", f"{self._name}: {errors.exceptions}", self._last)
            except* trio.TooSlowError:
                self._witness.object("client", f"{self._name} had no answer", self._last)
            except* OSError as errors:
                self._witness.object("client", f"{self._name} cannot connect: {errors.exceptions}")
            except* trio.BrokenResourceError:
                pass  # what it sent was not read to the end, as the daemon may do with garbage
            await trio.sleep(self._random.expovariate(20))

    def _manners(self) -> Mapping[Callable[[], Awaitable[None]], int]:
        return {
            self._read: 50,
            self._leave: 12,
            self._half_close: 4,
            self._dawdle: 3,
            self._cancel: 14,
            self._cancel_twice: 3,
            self._babble: 2,
            self._look: 10,
            self._end_session: 5,
            self._follow: 2,
        }

    # Manners ------------------------------------------------------------------

    async def _read(self) -> None:
        """Read to the end, whatever comes."""
        await self._generate(endless=0.0, after=None)

    async def _leave(self) -> None:
        """Close the connection at any moment."""
        with trio.move_on_after(self._random.choice((0.0, 0.01, 0.1, 0.5, 1.5))):
            await self._generate(endless=0.3, after=None)

    async def _half_close(self) -> None:
        """Say that nothing more will be sent, which counts as leaving, and read on."""
        try:
            await self._generate(endless=0.3, after=lambda exchange, _id: exchange.half_close())
        except* BrokenReply:
            pass

    async def _dawdle(self) -> None:
        """Leave a fast answer lying, then read it in small pieces, for a while."""
        body = {"pool": "alpha", "prompt": "x sim.tokens=50000"}
        with trio.move_on_after(3):
            async with connect(self._socket) as exchange:
                await exchange.send("POST", "/api/v1/generate", body)
                await trio.sleep(self._random.random())
                # The daemon may rightly lose patience and break the connection.
                with suppress(BrokenReply):
                    await exchange.status()
                    while True:
                        await trio.sleep(0.01)
                        if not await exchange.lines(1000):
                            break

    async def _cancel(self) -> None:
        """Cancel by the id from another connection, and be told of the end on the first one."""
        target = "/api/v1/requests/{}/cancel" + self._random.choice(("", "?wait=true"))

        async def cancel(_exchange: Exchange, id_: str) -> None:
            await trio.sleep(self._random.choice((0.0, 0.0, 0.02, 0.3)))
            await ask(self._socket, "POST", target.format(id_))

        await self._generate(endless=0.5, after=cancel)

    async def _cancel_twice(self) -> None:
        """Cancel what is long over."""
        status, _ = await ask(self._socket, "POST", f"/api/v1/requests/{self._last}/cancel")
        if status not in {200, 202, 404}:
            self._witness.object("client", f"a cancellation was answered with {status}", self._last)

    async def _babble(self) -> None:
        """Send what is no request."""
        async with connect(self._socket) as exchange:
            noise = self._random.randbytes(self._random.randint(1, 2000))
            await exchange.send_bytes(self._random.choice((*_BABBLE, noise)))
            with trio.move_on_after(self._random.random()):
                while await exchange.read_some(1000):
                    pass

    async def _end_session(self) -> None:
        """Reset or close a session, which waits for what it has under way, and perhaps leave."""
        pool = self._random.choice((*settings.POOLS, "nobody"))
        session = f"/v1/sessions/s{self._random.randint(0, 9)}"
        with trio.move_on_after(self._random.choice((0.05, PATIENCE))):
            if self._random.random() < 0.5:
                status, _ = await ask(self._socket, "POST", f"{session}/reset?model={pool}")
            else:
                status, _ = await ask(self._socket, "DELETE", f"{session}?model={pool}")
            if status not in {200, 404}:
                self._witness.object("client", f"the end of a session was answered with {status}")

    async def _look(self) -> None:
        """Read what an operator reads."""
        pages = [f"/api/v1/{page}" for page in (*_READS, f"requests/{self._last}")]
        page = self._random.choice((*pages, "/livez", "/readyz?verbose=true", "/health"))
        status, _ = await ask_text(self._socket, "GET", page)
        if status not in {200, 400, 404, 503}:
            self._witness.object("client", f"{page} was answered with {status}")

    async def _follow(self) -> None:
        """Follow the events, or a worker's log, for a while."""
        page = self._random.choice(("/api/v1/events?follow=true", "/api/v1/workers/beta.0/logs"))
        with trio.move_on_after(self._random.random()):
            async with connect(self._socket) as exchange:
                await exchange.send("GET", page)
                await exchange.status()
                while await exchange.lines(2000):
                    pass

    # One generation -----------------------------------------------------------

    async def _generate(
        self, *, endless: float, after: Callable[[Exchange, str], Awaitable[None]] | None
    ) -> None:
        """Ask, read to the end, and judge what was read; ``after`` is done once it is accepted."""
        prompt = faults.any_(self._random, faulty=0.25, endless=endless)
        body = self._body(prompt)
        async with connect(self._socket) as exchange:
            await exchange.send("POST", "/api/v1/generate", body)
            status = await exchange.status()
            if status != 200:
                self._witness.refused[status] = self._witness.refused.get(status, 0) + 1
                if status not in _refusals(body):
                    self._witness.object("client", f"a request was answered with {status}")
                return
            reply = Reply()
            async with trio.open_nursery() as nursery:
                while lines := await exchange.lines():
                    for line in lines:
                        self._take(reply, line)
                        if line["event"] == "accepted" and after is not None:
                            nursery.start_soon(after, exchange, reply.id)
        self._judge(reply)
        self._judge_time(reply, body)

    def _body(self, prompt: faults.Prompt) -> dict[str, Any]:
        random = self._random
        body: dict[str, Any] = {
            "pool": random.choices([*settings.POOLS, "nobody"], (60, 30, 12, 12, 6, 1))[0],
            "prompt": prompt.text,
        }
        known = body["pool"] in settings.SESSIONS
        chances = {
            "session_id": (0.4 if known else 0.02, f"s{random.randint(0, 9)}"),
            "priority": (0.3, random.randint(-10, 10)),
            "deadline_ms": (0.15, random.randint(1, 3000)),
            "queue_timeout_ms": (0.15, random.randint(1, 3000)),
            "max_new_tokens": (0.1, random.randint(1, 100)),
        }
        for field, (chance, value) in chances.items():
            if random.random() < chance:
                body[field] = value
        return body

    def _judge_time(self, reply: Reply, body: dict[str, Any]) -> None:
        """Whether what the client itself set as a limit was kept."""
        took = reply.total_ms / 1000
        fields = ["deadline_ms"] if reply.attempts else ["deadline_ms", "queue_timeout_ms"]
        limits = [body[field] / 1000 for field in fields if field in body]
        if limits and took > min(limits) + LATE_SECONDS:
            self._witness.object("client", f"it took {took:.1f} s, not {min(limits)}", reply)

    def _take(self, reply: Reply, line: dict[str, Any]) -> None:
        if reply.outcome:
            self._witness.object("client", "a line follows the last one", line, reply)
        match line["event"]:
            case "accepted":
                reply.id = self._last = line["id"]
            case "started":
                reply.attempts += 1
                if line["attempt"] <= reply.attempts - 1 or reply.tokens:
                    self._witness.object("client", "a start out of order", line, reply)
            case "token":
                reply.text += line["text"]
                reply.tokens += 1
            case "finished":
                reply.outcome = line["outcome"]
                reply.total_ms = line["timings"]["total_ms"]
            case other:
                self._witness.object("client", f"an unknown line {other}", line)

    def _judge(self, reply: Reply) -> None:
        if not reply.outcome:
            self._witness.object("client", "a stream ended without its last line", reply)
        elif not faults.answers(reply.text):
            self._witness.object("client", "an answer with pieces twice, or missing", reply)
        self._witness.outcomes[reply.id] = reply.outcome


def _refusals(body: dict[str, Any]) -> set[int]:
    """With what a request may rightly be refused, now that everything happens at once."""
    refusals = {404, 429, 503}
    if "session_id" in body and body["pool"] not in settings.SESSIONS:
        refusals.add(400)
    return refusals
