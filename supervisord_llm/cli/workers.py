"""``llmctl workers``: the slots and the processes in them, and why a slot is down."""

from __future__ import annotations

import click
from rich.text import Text

from supervisord_llm.cli.output import duration, printable, since, size
from supervisord_llm.cli.session import ExitCode, Session, command, examples
from supervisord_llm.cli.tables import STATE_STYLES, Cell, Column
from supervisord_llm.core.words import SlotState
from supervisord_llm.schema import WorkerInfo

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
    last worker ended. For a parked slot the last words of its worker follow on standard error.
    """
    async with session.client() as client:
        answer = await client.workers()
    if session.as_json:
        await session.print_json(answer)
    else:
        await session.print_table(_COLUMNS, [_row(worker) for worker in answer.workers])
        for worker in answer.workers:
            if worker.state is SlotState.PARKED:
                session.say(f"\n{parking(worker)}", "yellow")
                say_last_lines(session, worker)
    return ExitCode.DONE


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
        note(worker),
    ]


def parking(worker: WorkerInfo) -> str:
    """Why a slot is parked and what brings it back."""
    return (
        f"{worker.slot} is parked ({note(worker) or 'no reason given'}); mend the cause, then "
        f'run "llmctl resume {worker.slot}"'
    )


def say_last_lines(session: Session, worker: WorkerInfo) -> None:
    """Tell what the last worker of a slot wrote at its end."""
    for line in worker.last_exit.last_lines if worker.last_exit else []:
        session.say(f"    | {line}", "dim")


def note(worker: WorkerInfo) -> str:
    """Why a slot is in its state, when it starts, and how its last worker ended, in one line."""
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
