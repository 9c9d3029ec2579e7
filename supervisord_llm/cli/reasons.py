"""The words of slots' states and exits, explained to whoever has never read the code.

Each explanation follows the word itself, by which the documentation and the event log are searched.
"""

from __future__ import annotations

from collections.abc import Mapping

from supervisord_llm.cli.output import duration, printable
from supervisord_llm.core.words import Dialect, PlannedReason, QuarantineReason, SlotState
from supervisord_llm.schema import WorkerInfo

FAULTS: Mapping[str, str] = {
    QuarantineReason.CANCEL_GRACE_MISSED: "it did not stop a cancelled request in time",
    QuarantineReason.UNCANCELLABLE: "a request had to end, and it cannot be asked to stop one",
    QuarantineReason.CONTROL_PIPE_BROKEN: "its pipe for cancellations broke",
    QuarantineReason.STDIN_BLOCKED: "it did not take its input in time",
    QuarantineReason.SELF_TEST_FAILED: "it did not stop when asked to, in the test after its load",
    QuarantineReason.LOAD_TIMEOUT: "it was not ready in time",
    QuarantineReason.LOAD_STALLED: "it made no more progress with loading its model",
    QuarantineReason.FIRST_TOKEN_STALL: "it made no more progress with a prompt",
    QuarantineReason.TOKEN_STALL: "it fell silent in the middle of an answer",
    QuarantineReason.HEALTH_PROBE_FAILED: "it did not answer when asked for a sign of life",
    QuarantineReason.PROTOCOL_ERROR: "it wrote what makes no sense",
    QuarantineReason.MEMORY_LIMIT: "it held more memory than limits.memory_hard",
    QuarantineReason.UNEXPECTED_EXIT: "it ended though nobody had asked it to",
    QuarantineReason.OPERATOR: "an operator had it torn down",
    "spawn_failed": "it could not be started",
}
"""What a worker did, by the reason of its quarantine."""

LEAVING: Mapping[str, str] = {
    PlannedReason.RELOAD: "it finishes its work, then a fresh worker takes its place",
    PlannedReason.RECYCLE: "it has reached a limit of its age, its requests or its memory; it "
    "finishes its work, then a fresh worker takes its place",
    PlannedReason.SCALE_DOWN: "the pool is to have fewer workers; it finishes its work and goes",
    PlannedReason.DRAIN: "an operator takes it out of service; it finishes its work and stops",
    PlannedReason.IDLE: "nobody has asked for its model for a while; it is unloaded",
    PlannedReason.EXCLUSIVE: "another pool needs the device; it finishes its work and is unloaded",
    PlannedReason.SHUTDOWN: "the daemon stops; it finishes its work",
}
"""What a draining worker does, by the reason of its end."""

GONE: Mapping[str, str] = {
    PlannedReason.RELOAD: "it was stopped while it was to be replaced",
    PlannedReason.RECYCLE: "it was stopped while it was to be replaced",
    PlannedReason.SCALE_DOWN: "the pool is to have fewer workers",
    PlannedReason.IDLE: "nobody has asked for its model for a while; the next request loads it",
    PlannedReason.EXCLUSIVE: "another pool has the device; a request for this one waits its turn",
    PlannedReason.SHUTDOWN: "the daemon stops",
}
"""Why a stopped slot has no worker."""

EXITS: Mapping[str, str] = {
    "oom_killed": "the kernel killed it because memory ran out",
    "exit:126": "its command cannot be executed",
    "exit:127": "its command was not found",
}
"""Exits that do not speak for themselves."""


def note(worker: WorkerInfo) -> str:
    """Why a slot is in its state, when it starts, and how its last worker ended, in one line."""
    notes = [why] if (why := _why(worker)) else []
    if worker.next_start_in_ms is not None:
        notes.append(f"next start in {duration(worker.next_start_in_ms)}")
    if last := worker.last_exit:
        ended = f"generation {last.generation} ended with {explained(last.exit, EXITS)}"
        told = last.reason is None or last.reason == worker.reason
        notes.append(ended if told else f"{ended} ({last.reason})")
    return ", ".join(notes)


def parking(worker: WorkerInfo) -> str:
    """Why a slot is parked and what brings it back."""
    why = note(worker) or "no reason given"
    return (
        f"{worker.slot} is parked because its workers failed too often ({why}); mend the cause, "
        f'then run "llmctl resume {worker.slot}"'
    )


def standing(worker: WorkerInfo) -> str:
    """Its name and state as the beginning of a sentence."""
    within = "in " if worker.state is SlotState.BACKOFF else ""
    return f"{worker.slot} is {within}{worker.state}"


def explained(word: str, meanings: Mapping[str, str]) -> str:
    """A word with its meaning, if it has one."""
    meaning = meanings.get(word)
    return printable(word) if meaning is None else f"{printable(word)}: {meaning}"


def _why(worker: WorkerInfo) -> str | None:
    reason = worker.reason
    match worker.state:
        case SlotState.STARTING:
            return "its model is being loaded"
        case SlotState.READY | SlotState.BUSY | SlotState.CANCELLING if not worker.active:
            return "standby: it takes over when another worker does not serve"
        case SlotState.STOPPED if reason == PlannedReason.DRAIN:
            return (
                f'{reason}: an operator took it out of service; "llmctl resume {worker.slot}" '
                f'brings it back, or "llmctl resume {worker.pool}" if the whole pool was drained'
            )
        case SlotState.CANCELLING if worker.dialect is Dialect.SERIAL:
            return "it cannot be asked to stop, and finishes a cancelled request unheard"
        case SlotState.CANCELLING:
            return "it was told to end a cancelled request"
        case SlotState.STOPPED if reason is None:
            return "nobody has asked for its model yet; the first request loads it"
        case SlotState.DRAINING if reason:
            return explained(reason, LEAVING)
        case SlotState.STOPPED if reason:
            return explained(reason, GONE)
        case _:
            return None if reason is None else explained(reason, FAULTS)
