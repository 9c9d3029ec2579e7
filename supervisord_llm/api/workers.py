"""``/api/v1/workers``: the slots, the workers in them, and the commands for one slot."""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request
from starlette.types import ASGIApp

from supervisord_llm.api.bodies import read_query
from supervisord_llm.api.commands import command
from supervisord_llm.api.front import Front
from supervisord_llm.api.inbox import read_no_body
from supervisord_llm.api.replies import json_reply
from supervisord_llm.core.words import RejectReason
from supervisord_llm.errors import NotFound, Refused
from supervisord_llm.runtime import slot_facts
from supervisord_llm.runtime.clock import Clock
from supervisord_llm.runtime.slot import Slot
from supervisord_llm.runtime.supervisor import Supervisor
from supervisord_llm.schema import LastExit, Memory, SlotReply, WorkerInfo, Workers


async def index(front: Front, request: Request) -> ASGIApp:
    """Answer with every slot, in the supervisor's order."""
    read_query(request)
    supervisor = front.supervisor
    return json_reply(
        Workers(workers=[_info(supervisor, slot) for slot in supervisor.slots.values()])
    )


async def show(front: Front, request: Request) -> ASGIApp:
    """Answer with one slot."""
    read_query(request)
    return json_reply(_info(front.supervisor, find_slot(front, request)))


async def reload(front: Front, request: Request) -> ASGIApp:
    """Replace a slot's worker: it drains, is stopped, and the next generation starts (202)."""
    return await _command(front, request, "reload", lambda slot: slot.reload())


async def drain(front: Front, request: Request) -> ASGIApp:
    """Take a slot out of service: its worker finishes what it has, then it is stopped (202)."""
    return await _command(front, request, "drain", lambda slot: slot.drain())


async def quarantine(front: Front, request: Request) -> ASGIApp:
    """Tear a slot's worker down now; what it works on is cancelled (202)."""
    return await _command(front, request, "quarantine", lambda slot: slot.quarantine())


async def resume(front: Front, request: Request) -> ASGIApp:
    """Bring a parked, stopped or draining slot back; one in service stays as it is (202)."""

    def carry_out(slot: Slot) -> None:
        pool = front.supervisor.pools.get(slot.pool)
        if pool is not None and pool.drained:
            raise Refused(
                RejectReason.POOL_UNAVAILABLE,
                f"cannot resume {slot.name}: its whole pool is drained; "
                f"`llmctl resume {slot.pool}` brings it back",
            )
        slot.resume()

    return await _command(front, request, "resume", carry_out)


async def _command(
    front: Front, request: Request, verb: str, carry_out: Callable[[Slot], None]
) -> ASGIApp:
    with command(front, request, verb, request.path_params["slot"]) as asked:
        read_query(request)
        await read_no_body(request)
        slot = find_slot(front, request)
        generation = slot.generation
        carry_out(slot)
        asked.result = "accepted"
    return json_reply(
        SlotReply(slot=slot.name, state=slot.state, generation=generation), status=202
    )


def find_slot(front: Front, request: Request) -> Slot:
    """Return the slot that the path names. Raises ``NotFound`` with the names that there are."""
    name = request.path_params["slot"]
    slot = front.supervisor.slots.get(name)
    if slot is None:
        known = ", ".join(front.supervisor.slots)
        raise NotFound(f"cannot find slot {name!r}; there are: {known}", param="slot")
    return slot


def _info(supervisor: Supervisor, slot: Slot) -> WorkerInfo:
    clock = supervisor.clock
    usage, due = slot.usage, slot.next_start_at
    return WorkerInfo(
        slot=slot.name,
        pool=slot.pool,
        state=slot.state,
        active=slot.active,
        revision=slot.revision,
        stage=slot.stage,
        since=clock.rfc3339(slot.since),
        reason=slot.reason,
        pid=slot.pid,
        generation=slot.generation,
        dialect=slot.dialect,
        extensions=list(slot.extensions),
        capacity=slot.capacity,
        requests=list(slot.requests),
        served=slot.served,
        tokens=slot.tokens,
        restarts=slot.restarts,
        next_start_in_ms=None if due is None else round(max(0.0, due - clock.now()) * 1000, 3),
        last_exit=None if slot.last_exit is None else _last_exit(clock, slot.last_exit),
        memory=None
        if usage is None
        else Memory(
            rss=usage.rss,
            pss=usage.pss,
            anonymous=usage.anonymous,
            swap=usage.swap,
            gpu=usage.gpu,
            held=usage.held,
            processes=usage.processes,
        ),
        cpu_seconds=None if usage is None else usage.cpu_seconds,
    )


def _last_exit(clock: Clock, last: slot_facts.LastExit) -> LastExit:
    return LastExit(
        exit=last.exit,
        reason=last.reason,
        at=clock.rfc3339(last.at),
        generation=last.generation,
        last_lines=list(last.last_lines),
    )
