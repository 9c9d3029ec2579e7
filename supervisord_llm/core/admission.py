"""Who may queue: whether a new request is taken at all.

Who of those that wait is served next, and where, is decided in `supervisord_llm.core.queueing`.
"""

from __future__ import annotations

from supervisord_llm.core.words import RejectReason


def refusal(
    queued: int, max_queued: int, *, can_serve: bool, stopping: bool
) -> RejectReason | None:
    """Why a new request may not join the queue, or ``None`` if it may.

    A request that a free slot will take at once needs no place in the queue, but is counted in it
    for that moment; ``max_queued`` of 0 is therefore not a bound that admits anything.

    Args:
        queued: how many wait.
        max_queued: how many may.
        can_serve: whether some slot will take work without an operator's help.
        stopping: whether the daemon shuts down.
    """
    if stopping:
        return RejectReason.SHUTTING_DOWN
    if not can_serve:
        return RejectReason.POOL_UNAVAILABLE
    if queued >= max_queued:
        return RejectReason.QUEUE_FULL
    return None
