"""A day of chaos: warm up, look, make trouble, calm down, look again, stop, and judge."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from random import Random

import msgspec
import trio

from supervisord_llm.api.routes import ROUTES
from tests.chaos import checks, figures, settings
from tests.chaos.clients import Client, Witness
from tests.chaos.figures import Figures, in_words
from tests.chaos.http import BrokenReply, ask
from tests.chaos.log import Violation, read
from tests.chaos.operators import Operator
from tests.chaos.request_rules import Bounds
from tests.chaos.subject import Footprint, Subject, daemon, survivors
from tests.conftest import TEST_VARIABLE

CLIENTS = 16
CALM_SECONDS = 60.0
"""For every pool to serve again once nobody does harm any more."""

_SLACK = 5.0
"""Seconds: two stops of the daemon, and a machine with other things to do."""
BOUNDS = Bounds(
    answer=settings.COOPERATIVE + _SLACK,
    settlement=max(settings.PREFILL, settings.DETACH)
    + settings.TERMINATE
    + settings.KILL
    + settings.REAP
    + _SLACK,
    attempts=settings.ATTEMPTS,
    groups=settings.GROUPS,
)
GROWTH_BYTES = 24 * 2**20
"""What the daemon may hold more at the end: memory that its allocator keeps."""


class Result(msgspec.Struct):
    """How it went."""

    violations: list[Violation]
    figures: Figures
    lines: list[str]
    """What else is worth telling."""


def run(seed: int, seconds: float, folder: Path, log: Path) -> Result:
    """Run a daemon in ``folder`` and make trouble for ``seconds``; what is by chance is by seed.

    The daemon, and everything that it starts, has the id of `TEST_VARIABLE` in its environment.
    """
    witness = Witness()
    told: list[str] = []
    with daemon(folder, log) as subject:
        trio.run(_day, seed, seconds, subject, witness, told)
        _stop(subject, witness, told)
    for facts in survivors(os.environ[TEST_VARIABLE]):
        witness.object("survivors", "a process outlived the daemon", facts)
    with log.open("rb") as lines:
        entries, violations = read(lines)
    violations += checks.check(entries, BOUNDS)
    violations += checks.agree(entries, witness.outcomes)
    return Result([*witness.violations, *violations], figures.count(entries), told)


async def _day(
    seed: int, seconds: float, subject: Subject, witness: Witness, told: list[str]
) -> None:
    if not await _serves(subject, witness):
        return
    operator = Operator(subject, Random(f"{seed}:operator"), witness)
    warm = max(2.0, seconds / 10)
    await _trouble(f"{seed}:warm", warm, subject, witness, operator)
    if not await _calm(subject, witness):
        return
    before = await _rest(subject, None)
    await _trouble(f"{seed}", seconds, subject, witness, operator)
    if not await _calm(subject, witness):
        return
    after = await _rest(subject, before)
    for name, limit in _limits(before).items():
        was, now = getattr(before, name), getattr(after, name)
        told.append(f"{name} {was:,} before, {now:,} after")
        if now > limit:
            kinds = {"before": before.kinds, "after": after.kinds}
            witness.object("growth", f"{name} grew from {was:,} to {now:,}", kinds)
    told.append(f"done to it: {in_words(operator.done)}")


async def _trouble(
    seed: str, seconds: float, subject: Subject, witness: Witness, operator: Operator
) -> None:
    """Load and harm together."""
    with trio.move_on_after(seconds):
        async with trio.open_nursery() as nursery:
            for number in range(CLIENTS):
                name = f"client {number}"
                client = Client(subject.socket, Random(f"{seed}:{name}"), witness, name)
                nursery.start_soon(client.run)
            nursery.start_soon(operator.command)
            nursery.start_soon(operator.harm)
            nursery.start_soon(operator.suspend)


async def _calm(subject: Subject, witness: Witness) -> bool:
    """Put everything back as it was, and wait until all of it serves; whether it does."""
    subject.config.write_text(settings.text(subject.folder))
    known = {route.path for route in ROUTES}
    if "/api/v1/config/reload" in known:
        await ask(subject.socket, "POST", "/api/v1/config/reload")
    for name, pool in settings.POOLS.items():
        for verb, body in (("scale", {"workers": pool["workers"]}), ("resume", None)):
            if f"/api/v1/pools/{{pool}}/{verb}" in known:
                await ask(subject.socket, "POST", f"/api/v1/pools/{name}/{verb}", body)
    if not await _serves(subject, witness):
        return False
    # Workers that carry something of the day with them, such as children, go: rest is like rest.
    _, reply = await ask(subject.socket, "GET", "/api/v1/workers")
    for worker in reply["workers"]:
        if worker["state"] == "ready":
            await ask(subject.socket, "POST", f"/api/v1/workers/{worker['slot']}/reload")
    return await _serves(subject, witness)


async def _serves(subject: Subject, witness: Witness) -> bool:
    """Wait until every slot is idle and an ordinary request to each pool succeeds."""
    with trio.move_on_after(CALM_SECONDS):
        while True:
            if await _all_idle(subject):
                break
            await trio.sleep(0.1)
        for name in settings.POOLS:
            body = {"pool": name, "prompt": "x sim.tokens=1"}
            status, _ = await ask(subject.socket, "POST", "/api/v1/generate", body)
            if status != 200:
                witness.object("service", f"pool {name} answers with {status} after the calm")
        return True
    if subject.process.poll() is not None:
        witness.object("service", f"the daemon ended with exit code {subject.process.returncode}")
        return False
    _, workers = await ask(subject.socket, "GET", "/api/v1/workers")
    states = [
        f"{each['slot']} {each['state']} {each['stage']} {each['reason']} {each['requests']}"
        for each in workers["workers"]
        if each["state"] not in {"ready", "stopped"} or each["requests"]
    ]
    _, status = await ask(subject.socket, "GET", "/api/v1/status")
    witness.object("service", "not everything serves again in time", *states, status)
    return False


async def _all_idle(subject: Subject) -> bool:
    """Whether nothing waits and every slot that should serve is idle; resumes those that do not."""
    try:
        _, status = await ask(subject.socket, "GET", "/api/v1/status")
        _, reply = await ask(subject.socket, "GET", "/api/v1/workers")
    except (OSError, BrokenReply):
        return False  # it does not serve yet
    workers = reply["workers"]
    for worker in workers:
        down = {"parked", "stopped"} if _is_eager(worker["pool"]) else {"parked"}
        if worker["state"] in down:
            await ask(subject.socket, "POST", f"/api/v1/workers/{worker['slot']}/resume")
    idle = all(
        each["state"] == "ready" or (each["state"] == "stopped" and not _is_eager(each["pool"]))
        for each in workers
    )
    busy = any(pool["queued"] or pool["in_flight"] for pool in status["pools"])
    return idle and not busy


def _is_eager(pool: str) -> bool:
    return bool(settings.POOLS[pool].get("load", "eager") == "eager")


async def _rest(subject: Subject, like: Footprint | None) -> Footprint:
    """Look at the daemon at rest: for a while, or until it holds no more than it did."""
    smallest: Footprint | None = None
    begin = time.monotonic()
    while time.monotonic() - begin < 10:
        await trio.sleep(0.5)
        now = subject.footprint()
        if smallest is None or _weight(now) < _weight(smallest):
            smallest = now
        if like is None and time.monotonic() - begin > 2:
            break
        if like is not None and _fits(now, like):
            return now
    assert smallest is not None
    return smallest


def _weight(held: Footprint) -> tuple[int, int, int]:
    return held.children, held.descriptors, held.threads


def _limits(before: Footprint) -> dict[str, int]:
    """How much may be held at most, given what was held before."""
    return {
        "descriptors": before.descriptors,
        "threads": before.threads + 1,
        "children": before.children,
        "resident": before.resident + GROWTH_BYTES,
    }


def _fits(now: Footprint, before: Footprint) -> bool:
    return all(getattr(now, name) <= limit for name, limit in _limits(before).items())


def _stop(subject: Subject, witness: Witness, told: list[str]) -> None:
    """Stop it in order, and see that it did."""
    if subject.process.poll() is not None:
        witness.object("stop", f"the daemon had ended with {subject.process.returncode}")
        return
    try:
        code, took = subject.stop()
    except subprocess.TimeoutExpired:
        witness.object("stop", "the daemon does not stop")
        return
    told.append(f"stopped in {took:.2f} s")
    if code != 0:
        witness.object("stop", f"the daemon stopped with exit code {code}")
    if subject.socket.exists():
        witness.object("stop", "its socket is still there")
