"""Rules about workers: work only for the fit, one end each, changes one by one, one a device."""

from __future__ import annotations

from supervisord_llm.core.words import PlannedReason, SlotState
from supervisord_llm.events import (
    ConfigReloaded,
    ControlOperation,
    RequestStarted,
    WorkerDraining,
    WorkerExited,
    WorkerParked,
    WorkerQuarantined,
    WorkerReady,
    WorkerReaped,
    WorkerSpawned,
    WorkerState,
)
from tests.chaos.log import Entry, Found, Log
from tests.chaos.request_rules import Bounds

FIT = frozenset({SlotState.READY, SlotState.BUSY, SlotState.CANCELLING})
DOWN = frozenset({SlotState.STOPPED, SlotState.PARKED})
REPLACED = frozenset({PlannedReason.RELOAD, PlannedReason.RECYCLE})


def to_the_fit(log: Log) -> Found:
    """Work goes only to a worker that said it was ready and was not lost or judged since."""
    fit: dict[str, int] = {}
    state: dict[str, Entry] = {}
    lost: dict[str, Entry] = {}
    for entry in log:
        match entry.event:
            case WorkerReady(worker=worker, generation=generation):
                fit[worker] = generation
            case WorkerQuarantined(worker=worker) | WorkerExited(worker=worker):
                fit.pop(worker, None)
                lost[worker] = entry
            case WorkerState(worker=worker):
                state[worker] = entry
            case RequestStarted(worker=worker, generation=generation, request=request):
                if fit.get(worker) != generation:
                    shown = (*([lost[worker]] if worker in lost else []), entry)
                    yield f"{request} was given to unfit {worker}/{generation}", shown
                elif (told := state.get(worker)) is not None and not _serves(told):
                    yield f"{request} was given to {worker}, which does not serve", (told, entry)
            case _:
                pass


def _serves(entry: Entry) -> bool:
    return isinstance(entry.event, WorkerState) and entry.event.to in FIT


def one_end(log: Log) -> Found:
    """Each worker exits once and is reaped once; a slot never holds two, and numbers go up."""
    living: dict[str, Entry] = {}
    exited: dict[str, Entry] = {}
    last: dict[str, int] = {}
    for entry in log:
        match entry.event:
            case WorkerSpawned(worker=worker, generation=generation):
                if worker in living:
                    yield (
                        f"{worker}/{generation} was started beside another",
                        (
                            living[worker],
                            entry,
                        ),
                    )
                if generation <= last.get(worker, 0) and generation != 1:
                    yield f"{worker}/{generation} follows {worker}/{last[worker]}", (entry,)
                living[worker], last[worker] = entry, generation
                exited.pop(worker, None)
            case WorkerExited(worker=worker, generation=generation):
                if _generation(living.get(worker)) != generation:
                    yield f"{worker}/{generation} exited and was not there", (entry,)
                elif worker in exited:
                    yield f"{worker}/{generation} exited twice", (exited[worker], entry)
                exited[worker] = entry
            case WorkerReaped(worker=worker, generation=generation):
                if _generation(living.pop(worker, None)) != generation:
                    yield f"{worker}/{generation} was reaped and was not there", (entry,)
                elif worker not in exited:
                    yield f"{worker}/{generation} was reaped without an exit", (entry,)
            case _:
                pass
    for worker, entry in living.items():
        yield f"{worker}/{last[worker]} was never reaped", (entry,)


def _generation(entry: Entry | None) -> int | None:
    return entry.event.generation if entry and isinstance(entry.event, WorkerSpawned) else None


def states_join(log: Log) -> Found:
    """A slot moves from the state that it was in, and is down at the end."""
    states: dict[str, Entry] = {}
    for entry in log:
        match entry.event:
            case WorkerState(worker=worker, from_=from_):
                before = states.get(worker)
                was = _to(before)
                if before is not None and from_ is not was:
                    yield f"{worker} moves from {from_}, and was {was}", (before, entry)
                states[worker] = entry
            case _:
                pass
    for worker, entry in states.items():
        if _to(entry) not in DOWN:
            yield f"{worker} is {_to(entry)} at the end", (entry,)


def _to(entry: Entry | None) -> SlotState | None:
    return entry.event.to if entry and isinstance(entry.event, WorkerState) else None


def one_on_a_device(log: Log, bounds: Bounds) -> Found:
    """Of pools that share a device only one has workers at a time."""
    living: dict[str, dict[tuple[str, int], Entry]] = {}
    for entry in log:
        match entry.event:
            case WorkerSpawned(pool=pool, worker=worker, generation=generation):
                for other, workers in living.items():
                    shares = other != pool and bounds.groups.get(other) == bounds.groups.get(pool)
                    if pool in bounds.groups and shares and workers:
                        yield (
                            f"{worker} is started beside pool {other}",
                            (
                                *workers.values(),
                                entry,
                            ),
                        )
                living.setdefault(pool, {})[worker, generation] = entry
            case WorkerReaped(pool=pool, worker=worker, generation=generation):
                living.get(pool, {}).pop((worker, generation), None)
            case _:
                pass


def one_after_the_other(log: Log) -> Found:
    """A pool replaces one serving worker at a time; the next when that one is gone.

    An operator who reloads a certain slot does not wait for others. Nor does a surge wait for a
    worker that began to be restarted in its place before the pool was told to surge: it takes
    nobody away before it has another.
    """
    leaving: dict[str, Entry] = {}
    was: dict[str, SlotState] = {}
    for number, entry in enumerate(log):
        match entry.event:
            case WorkerState(pool=pool, worker=worker, from_=from_, to=to):
                was[worker] = from_
                if to in FIT and pool in leaving and _draining(leaving[pool]) == worker:
                    del leaving[pool]  # an operator has resumed it
            case ConfigReloaded(differences=differences):
                for pool in list(leaving):
                    if any(each.startswith(f"pool {pool}: reload ") for each in differences):
                        del leaving[pool]
            case WorkerDraining(pool=pool, worker=worker, reason=reason) if reason in REPLACED:
                if was.get(worker) not in FIT or _by_hand(log, number, worker):
                    continue
                if pool in leaving:
                    yield f"{worker} is replaced while another one is", (leaving[pool], entry)
                leaving[pool] = entry
            case WorkerReaped(pool=pool, worker=worker) if pool in leaving:
                if _draining(leaving[pool]) == worker:
                    del leaving[pool]
            case _:
                pass


def _by_hand(log: Log, number: int, worker: str) -> bool:
    """Whether the next command that is told, at the end of the same breath, is for this slot."""
    for entry in log[number + 1 :]:
        if isinstance(entry.event, ControlOperation):
            return entry.event.target == worker
    return False


def _draining(entry: Entry) -> str:
    assert isinstance(entry.event, WorkerDraining)
    return entry.event.worker


def parked_is_told(log: Log) -> Found:
    """Whoever is parked is told of at once, with the reason, and nobody else is."""
    parked: dict[str, Entry] = {}
    for entry in log:
        match entry.event:
            case WorkerState(worker=worker, to=SlotState.PARKED):
                parked[worker] = entry
            case WorkerState(worker=worker) if worker in parked:
                yield f"{worker} was parked and nobody was told", (parked.pop(worker), entry)
            case WorkerParked(worker=worker):
                if parked.pop(worker, None) is None:
                    yield f"{worker} is said to be parked and is not", (entry,)
            case _:
                pass
    for worker, entry in parked.items():
        yield f"{worker} was parked and nobody was told", (entry,)
