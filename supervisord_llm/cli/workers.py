"""``llmctl workers`` and ``llmctl reload``: the slots and the processes in them."""

from __future__ import annotations

import click
import trio
from rich.text import Text

from supervisord_llm.cli.completion import complete_slot
from supervisord_llm.cli.output import duration, printable, since, size
from supervisord_llm.cli.session import ExitCode, Session, command, examples
from supervisord_llm.cli.tables import STATE_STYLES, Cell, Column
from supervisord_llm.client import Client
from supervisord_llm.core.words import SlotState
from supervisord_llm.schema import ReloadReply, WorkerInfo

_COLUMNS = (
    Column("SLOT"),
    Column("STATE"),
    Column("FOR", numeric=True),
    Column("PID", numeric=True),
    Column("GEN", numeric=True),
    Column("IN-FLIGHT"),
    Column("SERVED", numeric=True),
    Column("RESTARTS", numeric=True),
    Column("MEMORY", numeric=True),
    Column("NOTE"),
)

POLL_SECONDS = 0.2
"""How often ``reload --wait`` looks: a person cannot tell it from at once."""

_SERVING = {SlotState.READY, SlotState.BUSY, SlotState.CANCELLING}
_DOWN = {SlotState.PARKED, SlotState.STOPPED}


@click.command(
    short_help="List the slots and the workers in them.",
    epilog=examples(
        "llmctl workers",
        "llmctl workers --json | jq '.workers[] | {slot, state, pid}'",
    ),
)
@command
async def workers(session: Session) -> ExitCode:
    """List the slots and the workers in them.

    GEN is the worker's generation, IN-FLIGHT its requests of its capacity. MEMORY is its fair share
    of what it maps (PSS), or its resident size. NOTE says why a slot is in its state, or how its
    last worker ended.
    """
    async with session.client() as client:
        answer = await client.workers()
    if session.as_json:
        await session.print_json(answer)
    else:
        await session.print_table(_COLUMNS, [_row(worker) for worker in answer.workers])
    return ExitCode.DONE


@click.command(
    short_help="Replace the worker in a slot.",
    epilog=examples(
        "llmctl reload smollm.0",
        "llmctl reload smollm.0 --wait",
    ),
)
@click.argument("slot", shell_complete=complete_slot)
@click.option("--wait", is_flag=True, help="Return when the next worker is ready.")
@command
async def reload(session: Session, slot: str, *, wait: bool) -> ExitCode:
    """Replace the worker in SLOT: it finishes what it has, stops, and the next generation starts.

    With --wait the command ends when the new worker is ready, or fails when its slot is parked.
    """
    async with session.client() as client:
        reply = await client.reload(slot)
        if not wait:
            if session.as_json:
                await session.print_json(reply)
            else:
                await session.print(
                    Text(f"{reply.slot} {reply.state}: generation {reply.generation} is replaced")
                )
            return ExitCode.DONE
        worker = await _replaced(client, session, reply)
    if session.as_json:
        await session.print_json(worker)
    elif worker.state in _SERVING:
        await session.print(Text(f"{worker.slot} {worker.state}: generation {worker.generation}"))
    if worker.state in _SERVING:
        return ExitCode.DONE
    session.complain(
        f"{worker.slot} is {worker.state} ({_note(worker) or 'no reason given'}); "
        'see "llmctl events" for its last lines'
    )
    return ExitCode.FAILED


async def _replaced(client: Client, session: Session, reply: ReloadReply) -> WorkerInfo:
    """Wait for the next generation's verdict, telling each state that is passed on the way.

    There is no bound of our own: the pool's graces, load limits and restart policy bound each step.
    """
    told: SlotState | None = None
    while True:
        worker = await client.worker(reply.slot)
        if worker.state in _DOWN:
            return worker
        if worker.state in _SERVING and worker.generation > reply.generation:
            return worker
        if worker.state is not told and not session.as_json:
            session.say(f"{worker.slot} {worker.state}", "dim")
            told = worker.state
        await trio.sleep(POLL_SECONDS)


def _row(worker: WorkerInfo) -> list[Cell]:
    state = f"{worker.state}:{worker.stage}" if worker.stage else str(worker.state)
    memory = worker.memory
    return [
        worker.slot,
        Text(state, style=STATE_STYLES[worker.state]),
        since(worker.since),
        worker.pid,
        worker.generation,
        f"{len(worker.requests)}/{worker.capacity}",
        worker.served,
        worker.restarts,
        size(memory.rss if memory.pss is None else memory.pss) if memory else None,
        _note(worker),
    ]


def _note(worker: WorkerInfo) -> str:
    notes = []
    if worker.reason:
        notes.append(printable(worker.reason))
    if worker.next_start_in_ms is not None:
        notes.append(f"next start in {duration(worker.next_start_in_ms)}")
    if worker.last_exit:
        ended = f"generation {worker.last_exit.generation} ended with {worker.last_exit.exit}"
        because = worker.last_exit.reason
        told = because is None or because == worker.reason
        notes.append(ended if told else f"{ended} ({because})")
    return ", ".join(notes)
