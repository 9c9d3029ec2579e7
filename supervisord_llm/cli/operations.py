"""``llmctl reload``, ``drain``, ``resume`` and ``scale``: what an operator does to pools and slots.

A target with a dot in it is a slot (``smollm.0``): pools have none in their names.
"""

from __future__ import annotations

import click
from rich.text import Text

from supervisord_llm.cli.completion import complete_pool, complete_target
from supervisord_llm.cli.reasons import note, parking, standing
from supervisord_llm.cli.session import ExitCode, Session, command, examples, sole_pool
from supervisord_llm.cli.slots import SERVING, drain_slot, reload_slot, resume_slot
from supervisord_llm.cli.tables import states
from supervisord_llm.cli.workers import say_last_lines
from supervisord_llm.client import Client
from supervisord_llm.core.words import SlotState
from supervisord_llm.schema import WORKERS_MAX, PoolReply, WorkerInfo


@click.command(
    short_help="Replace workers without losing a request.",
    epilog=examples(
        "llmctl reload",
        "llmctl reload smollm --wait",
        "llmctl reload smollm.0",
    ),
)
@click.argument("target", metavar="[POOL|SLOT]", required=False, shell_complete=complete_target)
@click.option("--wait", is_flag=True, help="Return when the fresh workers are ready.")
@command
async def reload(session: Session, target: str | None, *, wait: bool) -> ExitCode:
    """Replace the workers of POOL, or the one in SLOT, by fresh ones; no request fails for it.

    The workers of a pool are replaced one after the other, and as its key "reload" says: each by
    one that is ready before the old one leaves, or in its own place. If a replacement fails, the
    old worker goes on serving. POOL may be left out when there is only one. With --wait the command
    ends when it is done, and fails when a worker could not be replaced.
    """
    async with session.client() as client:
        target = target or await sole_pool(client, "name the one to reload")
        if _is_slot(target):
            return await reload_slot(session, client, target, wait=wait)
        reply = await client.reload_pool(target, wait=wait)
        if wait:
            return await _conclude(session, client, reply)
        await _tell(session, reply, "its workers are replaced, one after the other")
    return ExitCode.DONE


@click.command(
    short_help="Take a pool or a slot out of service.",
    epilog=examples(
        "llmctl drain smollm.0 --wait",
        "llmctl drain smollm",
    ),
)
@click.argument("target", metavar="POOL|SLOT", shell_complete=complete_target)
@click.option("--wait", is_flag=True, help="Return when nothing is left of its work.")
@command
async def drain(session: Session, target: str, *, wait: bool) -> ExitCode:
    """Take POOL or SLOT out of service: it takes nothing new and finishes what it has.

    It stays so until "llmctl resume".
    """
    async with session.client() as client:
        if _is_slot(target):
            return await drain_slot(session, client, target, wait=wait)
        reply = await client.drain_pool(target, wait=wait)
        now = "it has finished" if wait else "it finishes what it has"
        back = f'"llmctl resume {reply.pool}" brings it back'
        await _tell(session, reply, f"{now} and takes nothing new; {back}")
    return ExitCode.DONE


@click.command(
    short_help="Bring a pool or a slot back.",
    epilog=examples(
        "llmctl resume smollm.0",
        "llmctl resume smollm",
    ),
)
@click.argument("target", metavar="POOL|SLOT", shell_complete=complete_target)
@command
async def resume(session: Session, target: str) -> ExitCode:
    """Bring SLOT back that is parked, stopped, draining, or waits for its next start.

    With POOL, the pool takes requests again, and all of its slots are brought back. What serves
    stays as it is.
    """
    async with session.client() as client:
        if _is_slot(target):
            return await resume_slot(session, client, target)
        reply = await client.resume_pool(target)
        await _tell(session, reply, "resumed")
    return ExitCode.DONE


@click.command(
    short_help="Change how many workers a pool has.",
    epilog=examples("llmctl scale smollm 4 --wait"),
)
@click.argument("pool", shell_complete=complete_pool)
@click.argument("workers", type=click.IntRange(1, WORKERS_MAX))
@click.option("--wait", is_flag=True, help="Return when there are so many.")
@command
async def scale(session: Session, pool: str, workers: int, *, wait: bool) -> ExitCode:
    """Give POOL so many WORKERS, besides those on standby.

    Workers that are too many finish what they have first. It holds until the pool's number of
    workers is changed in the configuration, or the daemon ends. To have none, use drain.
    """
    async with session.client() as client:
        reply = await client.scale(pool, workers, wait=wait)
        if wait:
            return await _conclude(session, client, reply)
        await _tell(session, reply, f"it is to have {reply.target} workers")
    return ExitCode.DONE


def _is_slot(target: str) -> bool:
    return "." in target


async def _tell(session: Session, reply: PoolReply, what: str) -> None:
    if session.as_json:
        await session.print_json(reply)
    else:
        await session.print(Text.assemble(f"{reply.pool}: {what} (", states(reply.states), ")"))


async def _conclude(session: Session, client: Client, reply: PoolReply) -> ExitCode:
    """Tell what became of a change that was waited for; a worker that did not follow fails it."""
    found = (await client.workers()).workers
    behind = [each for each in found if each.pool == reply.pool and _is_behind(each, reply)]
    await _tell(session, reply, "not all is done" if behind else "done")
    for worker in behind:
        if worker.state is SlotState.PARKED:
            session.complain(parking(worker))
            say_last_lines(session, worker)
        elif worker.state in SERVING:
            session.complain(
                f"{worker.slot} goes on with its old worker: the one that was to replace it "
                'failed; see "llmctl events", mend the cause, and reload again'
            )
        else:
            session.complain(
                f"{standing(worker)} ({note(worker) or 'no reason given'}); see "
                f'"llmctl logs {worker.slot}"'
            )
    return ExitCode.FAILED if behind else ExitCode.DONE


def _is_behind(worker: WorkerInfo, reply: PoolReply) -> bool:
    """Whether a slot failed to follow; one that is stopped on purpose has nothing to follow."""
    if worker.state in {SlotState.PARKED, SlotState.BACKOFF, SlotState.QUARANTINED}:
        return True
    return worker.state in SERVING and worker.revision < reply.revision
