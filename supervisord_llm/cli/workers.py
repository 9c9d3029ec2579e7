"""``llmctl workers``: the slots and the processes in them, and why a slot is down."""

from __future__ import annotations

import click
from rich.text import Text

from supervisord_llm.cli.output import since, size
from supervisord_llm.cli.reasons import note, parking
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

    GEN is the worker's generation, IN-FLIGHT its requests of its capacity. MEMORY is what would be
    free without it: its share of memory and swap, with that of its descendants. NOTE says why a
    slot is in its state, or how its last worker ended. A worker that is "ready:standby" takes over
    when another one does not serve. For a parked slot the last words of its worker follow on
    standard error.
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
    return [
        worker.slot,
        state(worker),
        since(worker.since),
        worker.pid,
        worker.generation,
        f"{len(worker.requests)}/{worker.capacity}",
        worker.served,
        worker.restarts,
        size(held(worker)),
        note(worker),
    ]


def state(worker: WorkerInfo) -> Text:
    """What a slot does, in one word: ``ready``, ``ready:standby``, ``quarantined:killing``."""
    detail = worker.stage or (None if worker.active else "standby")
    word = f"{worker.state}:{detail}" if detail else str(worker.state)
    return Text(word, style=STATE_STYLES[worker.state])


def held(worker: WorkerInfo) -> int | None:
    """The best that is known of what would be free without a worker; ``None`` without a worker."""
    memory = worker.memory
    if memory is None:
        return None
    known = (memory.held, memory.pss, memory.rss)
    return next(count for count in known if count is not None)


def say_last_lines(session: Session, worker: WorkerInfo) -> None:
    """Tell what the last worker of a slot wrote at its end."""
    for line in worker.last_exit.last_lines if worker.last_exit else []:
        session.say(f"    | {line}", "dim")
