"""Knowing slow from stuck: when was the last sign of life, and how long may the next one take.

A pure judgement over a few times. What counts as a sign depends on the phase and is the caller's to
report: while loading, a heartbeat, a line on stderr, CPU time or I/O; in prefill, heartbeats with
new beats, or CPU time and I/O where the worker does not beat; in decode, tokens and beats. There is
no total limit on a generation: a slow worker that shows progress is never touched.
"""

from __future__ import annotations

import msgspec

from supervisord_llm.core.words import Phase, QuarantineReason


class Budgets(msgspec.Struct, frozen=True):
    """How long a worker may go without a sign of life, per phase, in seconds."""

    load_timeout: float
    """For the whole load, signs or not."""
    load_stall: float
    first_token_stall: float
    token_stall: float


class Watch(msgspec.Struct):
    """What is known of a worker that has something to do.

    Not frozen: the sign is noted for each read of output, and that is the hot path.
    """

    phase: Phase
    since: float
    """When the phase began."""
    sign_at: float
    """The last sign of life."""


class Verdict(msgspec.Struct, frozen=True):
    """Either the worker is stuck for ``reason``, or it need not be looked at before ``look_at``."""

    reason: QuarantineReason | None
    look_at: float


def judge(watch: Watch, budgets: Budgets, now: float) -> Verdict:
    """Whether a worker is stuck at ``now``, and when to look again if it is not."""
    if watch.phase is Phase.LOAD:
        timeout_at = watch.since + budgets.load_timeout
        stall_at = watch.sign_at + budgets.load_stall
        if now >= timeout_at:
            return Verdict(QuarantineReason.LOAD_TIMEOUT, now)
        if now >= stall_at:
            return Verdict(QuarantineReason.LOAD_STALLED, now)
        return Verdict(None, min(timeout_at, stall_at))
    if watch.phase is Phase.PREFILL:
        stall_at = watch.sign_at + budgets.first_token_stall
        reason = QuarantineReason.FIRST_TOKEN_STALL
    else:
        stall_at = watch.sign_at + budgets.token_stall
        reason = QuarantineReason.TOKEN_STALL
    return Verdict(reason, now) if now >= stall_at else Verdict(None, stall_at)
