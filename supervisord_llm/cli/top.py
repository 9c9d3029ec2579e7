"""``llmctl top``: the daemon as it is now, again and again."""

from __future__ import annotations

import sys
from datetime import datetime
from typing import NoReturn

import click
import msgspec
import trio
from rich.table import Table
from rich.text import Text

from supervisord_llm.cli.output import printable, since, size, span
from supervisord_llm.cli.reasons import note
from supervisord_llm.cli.screen import Screen, second_screen
from supervisord_llm.cli.session import ExitCode, Session, command, examples
from supervisord_llm.cli.tables import Cell, Column, states, yes_no
from supervisord_llm.cli.workers import held, state
from supervisord_llm.client import Client, DaemonUnreachable
from supervisord_llm.schema import Status, WorkerInfo

PATIENCE = 5.0
"""Seconds without an answer after which the daemon counts as unreachable."""

_POOLS = (
    Column("POOL"),
    Column("READY"),
    Column("QUEUED", numeric=True),
    Column("IN-FLIGHT", numeric=True),
    Column("TOKENS/S", numeric=True),
    Column("WORKERS"),
)
_SLOTS = (
    Column("SLOT"),
    Column("STATE"),
    Column("FOR", numeric=True),
    Column("IN-FLIGHT"),
    Column("TOKENS/S", numeric=True),
    Column("SERVED", numeric=True),
    Column("RESTARTS", numeric=True),
    Column("MEMORY", numeric=True),
    Column("NOTE"),
)


class Look(msgspec.Struct, frozen=True):
    """What the daemon said at one moment."""

    at: float
    """On the monotonic clock, in seconds."""
    status: Status
    workers: list[WorkerInfo]


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What ``--json`` prints."""

    status: Status
    workers: list[WorkerInfo]
    tokens_per_second: dict[str, float]
    """By slot; one whose worker is new is left out."""


@click.command(
    short_help="Watch the slots, the queue and the tokens per second.",
    epilog=examples(
        "llmctl top",
        "llmctl top --interval 5",
        "llmctl top --once",
    ),
)
@click.option("--once", is_flag=True, help="Print one picture and end.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1, max=3600),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="From one look to the next; rates are over this time.",
)
@command
async def top(session: Session, *, once: bool, interval: float) -> ExitCode:
    """Watch the slots, the queue and the tokens per second, until Ctrl-C.

    TOKENS/S is what a slot's worker has written since the last look, MEMORY what would be free
    without it. Cancellations are counted since the daemon started, by what became of the worker.

    If the daemon goes away while you watch, it is looked for until it is back. Where standard
    output is not a terminal, as with --once and --json, one picture is printed, after two looks.
    """
    async with session.client() as client:
        first = await _look(client)
        if sys.stdout.isatty() and not once and not session.as_json:
            async with second_screen(session.out) as screen:
                await _watch(session, client, screen, first, interval)
        await trio.sleep(interval)
        return await _print(session, await _look(client), first)


async def _watch(
    session: Session, client: Client, screen: Screen, now: Look, interval: float
) -> NoReturn:
    await screen.draw(session.rendered(*_picture(session, now, now)))
    while True:
        await trio.sleep(interval)
        try:
            now, before = await _look(client), now
        except DaemonUnreachable as error:
            gone = span(trio.current_time() - now.at)
            lines = f"{error}\nIt last answered {gone} ago, and is looked for until it is back."
            await screen.draw(session.rendered(Text(printable(lines), style="bold red")))
        else:
            await screen.draw(session.rendered(*_picture(session, now, before)))


async def _look(client: Client) -> Look:
    """Ask; both questions only read what the daemon knows, and no worker hears of them."""
    with trio.move_on_after(PATIENCE):
        status = await client.status()
        workers = await client.workers()
        return Look(trio.current_time(), status, workers.workers)
    raise DaemonUnreachable(client.socket, "no answer in time, is it stopped or stuck")


async def _print(session: Session, now: Look, before: Look) -> ExitCode:
    if session.as_json:
        rates = _rates(now, before)
        await session.print_json(
            Snapshot(status=now.status, workers=now.workers, tokens_per_second=rates)
        )
    else:
        await session.print(*_picture(session, now, before))
    return ExitCode.DONE


def _rates(now: Look, before: Look) -> dict[str, float]:
    """Tokens per second by slot, where the same worker was there at both looks."""
    seconds = now.at - before.at
    if seconds <= 0 or now.status.boot != before.status.boot:
        return {}
    earlier = {(each.slot, each.generation): each.tokens for each in before.workers}
    return {
        each.slot: round((each.tokens - earlier[each.slot, each.generation]) / seconds, 1)
        for each in now.workers
        if each.pid is not None and (each.slot, each.generation) in earlier
    }


def _picture(session: Session, now: Look, before: Look) -> list[Table | Text]:
    rates = _rates(now, before)
    return [
        _head(now, rates),
        session.table(_POOLS, _pools(now, rates)),
        Text(),
        session.table(_SLOTS, [_slot(worker, rates) for worker in now.workers]),
    ]


def _head(now: Look, rates: dict[str, float]) -> Text:
    status = now.status
    running = sum(pool.in_flight for pool in status.pools)
    memory = sum(held(worker) or 0 for worker in now.workers)
    settled = ", ".join(f"{count} {name}" for name, count in status.cancellations.items())
    return Text.assemble(
        (f"supervisord-llm {printable(status.version)} ", "bold"),
        f"{status.state} for {span(status.uptime_seconds)}, pid {status.pid}, at ",
        f"{datetime.now().astimezone():%H:%M:%S}\n",
        (f"{sum(rates.values()):.1f} tokens/s", "bold"),
        f", {running} running, {status.queued} waiting, {size(memory)} of memory\n",
        f"cancellations: {settled or 'none'}\n",
    )


def _pools(now: Look, rates: dict[str, float]) -> list[list[Cell]]:
    slots: dict[str, list[float]] = {}
    for worker in now.workers:
        if worker.slot in rates:
            slots.setdefault(worker.pool, []).append(rates[worker.slot])
    return [
        [
            pool.name,
            yes_no(value=pool.ready),
            pool.queued,
            pool.in_flight,
            _rate(sum(slots[pool.name])) if pool.name in slots else None,
            states(pool.states),
        ]
        for pool in now.status.pools
    ]


def _slot(worker: WorkerInfo, rates: dict[str, float]) -> list[Cell]:
    rate = rates.get(worker.slot)
    return [
        worker.slot,
        state(worker),
        since(worker.since),
        f"{len(worker.requests)}/{worker.capacity}",
        None if rate is None else _rate(rate),
        worker.served,
        worker.restarts,
        size(held(worker)),
        note(worker),
    ]


def _rate(tokens_per_second: float) -> str:
    return f"{tokens_per_second:.1f}"
