"""``llmctl reload``, ``quarantine`` and ``resume``: what an operator does to one slot."""

from __future__ import annotations

import click
import trio
from rich.text import Text

from supervisord_llm.cli.completion import complete_slot
from supervisord_llm.cli.session import ExitCode, Session, command, examples
from supervisord_llm.cli.workers import note, parking, say_last_lines
from supervisord_llm.client import Client
from supervisord_llm.core.words import SlotState
from supervisord_llm.schema import SlotReply, WorkerInfo

POLL_SECONDS = 0.2
"""How often ``reload --wait`` looks: a person cannot tell it from at once."""

_SERVING = {SlotState.READY, SlotState.BUSY, SlotState.CANCELLING}
_DOWN = {SlotState.PARKED, SlotState.STOPPED}


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
            await _tell(session, reply, f"generation {reply.generation} is replaced")
            return ExitCode.DONE
        worker = await _replaced(client, session, reply)
    if session.as_json:
        await session.print_json(worker)
    elif worker.state in _SERVING:
        await session.print(Text(f"{worker.slot} {worker.state}: generation {worker.generation}"))
    if worker.state in _SERVING:
        return ExitCode.DONE
    if worker.state is SlotState.PARKED:
        session.complain(parking(worker))
        say_last_lines(session, worker)
    else:
        session.complain(
            f"{worker.slot} is {worker.state} ({note(worker) or 'no reason given'}); see "
            f'"llmctl logs {worker.slot}"'
        )
    return ExitCode.FAILED


@click.command(
    short_help="Tear down the worker in a slot now.",
    epilog=examples("llmctl quarantine smollm.0"),
)
@click.argument("slot", shell_complete=complete_slot)
@command
async def quarantine(session: Session, slot: str) -> ExitCode:
    """Tear down the worker in SLOT now, and start its next generation.

    For a worker that you do not trust: what it works on is cancelled, not waited for. To let it
    finish, use reload.
    """
    async with session.client() as client:
        reply = await client.quarantine(slot)
    await _tell(session, reply, f"generation {reply.generation} is torn down")
    return ExitCode.DONE


@click.command(
    short_help="Bring a parked slot back.",
    epilog=examples("llmctl resume smollm.0"),
)
@click.argument("slot", shell_complete=complete_slot)
@command
async def resume(session: Session, slot: str) -> ExitCode:
    """Bring SLOT back that is parked, stopped, draining, or waits for its next start.

    One that serves stays as it is.
    """
    async with session.client() as client:
        reply = await client.resume(slot)
    await _tell(session, reply, "resumed")
    return ExitCode.DONE


async def _tell(session: Session, reply: SlotReply, what: str) -> None:
    if session.as_json:
        await session.print_json(reply)
    else:
        await session.print(Text(f"{reply.slot} {reply.state}: {what}"))


async def _replaced(client: Client, session: Session, reply: SlotReply) -> WorkerInfo:
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
