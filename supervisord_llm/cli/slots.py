"""What an operator does to one slot: ``quarantine``, and the slots' side of what pools take too."""

from __future__ import annotations

from collections.abc import Callable

import click
import trio
from rich.text import Text

from supervisord_llm.cli.completion import complete_slot
from supervisord_llm.cli.reasons import note, parking, standing
from supervisord_llm.cli.session import ExitCode, Session, command, examples
from supervisord_llm.cli.workers import say_last_lines
from supervisord_llm.client import Client
from supervisord_llm.core.words import SlotState
from supervisord_llm.schema import SlotReply, WorkerInfo

POLL_SECONDS = 0.2
"""How often ``--wait`` looks: a person cannot tell it from at once."""

SERVING = {SlotState.READY, SlotState.BUSY, SlotState.CANCELLING}
_DOWN = {SlotState.PARKED, SlotState.STOPPED}


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


async def reload_slot(session: Session, client: Client, slot: str, *, wait: bool) -> ExitCode:
    """Replace a slot's worker; with ``wait`` until the next one is ready or the slot is down."""
    reply = await client.reload(slot)
    if not wait:
        await _tell(session, reply, f"generation {reply.generation} is replaced")
        return ExitCode.DONE

    def replaced(worker: WorkerInfo) -> bool:
        fresh = worker.generation > reply.generation
        return worker.state in _DOWN or (worker.state in SERVING and fresh)

    worker = await _watch(client, session, slot, replaced)
    if worker.state in SERVING:
        await _show(session, worker, f"generation {worker.generation}")
        return ExitCode.DONE
    return await _fail(session, worker)


async def drain_slot(session: Session, client: Client, slot: str, *, wait: bool) -> ExitCode:
    """Take a slot out of service; with ``wait`` until its worker is gone."""
    reply = await client.drain(slot)
    back = f'"llmctl resume {slot}" brings it back'
    if not wait:
        await _tell(session, reply, f"it finishes what it has and takes nothing new; {back}")
        return ExitCode.DONE
    leaving = {SlotState.DRAINING, SlotState.QUARANTINED}
    worker = await _watch(client, session, slot, lambda worker: worker.state not in leaving)
    if worker.state is SlotState.STOPPED:
        await _show(session, worker, back)
        return ExitCode.DONE
    return await _fail(session, worker)


async def resume_slot(session: Session, client: Client, slot: str) -> ExitCode:
    """Bring a slot back."""
    await _tell(session, await client.resume(slot), "resumed")
    return ExitCode.DONE


async def _tell(session: Session, reply: SlotReply, what: str) -> None:
    if session.as_json:
        await session.print_json(reply)
    else:
        await session.print(Text(f"{reply.slot} {reply.state}: {what}"))


async def _show(session: Session, worker: WorkerInfo, what: str) -> None:
    if session.as_json:
        await session.print_json(worker)
    else:
        await session.print(Text(f"{worker.slot} {worker.state}: {what}"))


async def _fail(session: Session, worker: WorkerInfo) -> ExitCode:
    """Tell of a slot that did not come to where it was sent."""
    if session.as_json:
        await session.print_json(worker)
    if worker.state is SlotState.PARKED:
        session.complain(parking(worker))
        say_last_lines(session, worker)
    else:
        session.complain(
            f"{standing(worker)} ({note(worker) or 'no reason given'}); see "
            f'"llmctl logs {worker.slot}"'
        )
    return ExitCode.FAILED


async def _watch(
    client: Client, session: Session, slot: str, settled: Callable[[WorkerInfo], bool]
) -> WorkerInfo:
    """Wait until a slot has settled, telling each state that is passed on the way.

    There is no bound of our own: the pool's graces, load limits and restart policy bound each step.
    """
    told: SlotState | None = None
    while True:
        worker = await client.worker(slot)
        if settled(worker):
            return worker
        if worker.state is not told and not session.as_json:
            session.say(f"{worker.slot} {worker.state}", "dim")
            told = worker.state
        await trio.sleep(POLL_SECONDS)
