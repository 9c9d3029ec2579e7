from __future__ import annotations

import pytest

from supervisord_llm.cli.reasons import EXITS, FAULTS, GONE, LEAVING, note
from supervisord_llm.core.words import (
    Dialect,
    ExitCause,
    ExitKind,
    PlannedReason,
    QuarantineReason,
    SlotState,
)
from supervisord_llm.schema import LastExit
from tests.client import replies


@pytest.mark.parametrize("reason", list(QuarantineReason))
def test_every_fault_is_explained(reason: QuarantineReason) -> None:
    """The word comes first, to be looked up, then what it means."""
    told = note(replies.worker(state=SlotState.QUARANTINED, reason=reason.value))

    assert told == f"{reason}: {FAULTS[reason]}"


@pytest.mark.parametrize("reason", list(PlannedReason))
def test_every_planned_end_is_explained(reason: PlannedReason) -> None:
    """While it goes on, and, for a slot that stays without a worker, afterwards."""
    draining = note(replies.worker(state=SlotState.DRAINING, reason=reason.value))
    stopped = note(replies.worker(state=SlotState.STOPPED, reason=reason.value))

    assert draining == f"{reason}: {LEAVING[reason]}"
    if reason is PlannedReason.DRAIN:
        assert '"llmctl resume smollm.0" brings it back, or "llmctl resume smollm" if' in stopped
    else:
        assert stopped == f"{reason}: {GONE[reason]}"


@pytest.mark.parametrize(
    ("dialect", "told"),
    [
        (Dialect.SERIAL, "it cannot be asked to stop, and finishes a cancelled request unheard"),
        (Dialect.SERIAL_CANCEL, "it was told to end a cancelled request"),
    ],
)
def test_a_cancellation_is_explained(dialect: Dialect, told: str) -> None:
    """One that no worker is asked for may take long, and nobody waits for it."""
    assert told == note(replies.worker(state=SlotState.CANCELLING, dialect=dialect))


def test_a_kill_for_memory_is_explained() -> None:
    """The daemon's own word for it is the one that is explained."""
    cause = ExitCause(kind=ExitKind.OOM_KILLED, code=9)
    last = LastExit(
        exit=str(cause),
        reason="unexpected_exit",
        at="2026-05-04T03:02:01.000000Z",
        generation=2,
        last_lines=[],
    )

    assert note(replies.worker(last_exit=last)) == (
        f"generation 2 ended with oom_killed: {EXITS['oom_killed']} (unexpected_exit)"
    )


@pytest.mark.parametrize(
    ("state", "reason", "told"),
    [
        (SlotState.STARTING, None, "its model is being loaded"),
        (SlotState.STARTING, "unexpected_exit", "its model is being loaded"),
        (SlotState.READY, None, ""),
        (
            SlotState.STOPPED,
            None,
            "nobody has asked for its model yet; the first request loads it",
        ),
        (SlotState.DRAINING, None, ""),
        (SlotState.BACKOFF, "what a newer daemon says", "what a newer daemon says"),
    ],
)
def test_a_note_says_no_more_than_there_is(state: SlotState, reason: str | None, told: str) -> None:
    """A word of a newer daemon is shown as it is."""
    assert told == note(replies.worker(state=state, reason=reason))
