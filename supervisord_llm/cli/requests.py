"""``llmctl requests`` and ``cancel``, and the words for how a request and its worker ended."""

from __future__ import annotations

import click
from rich.text import Text

from supervisord_llm.cli.completion import complete_request
from supervisord_llm.cli.output import duration, printable, since
from supervisord_llm.cli.session import ExitCode, Session, command, examples
from supervisord_llm.cli.tables import Cell, Column
from supervisord_llm.core.words import CancelledBy, FailureReason, Outcome, RequestState, Resolution
from supervisord_llm.schema import CancelRecord, Failure, RequestInfo

_COLUMNS = (
    Column("REQUEST"),
    Column("POOL"),
    Column("STATE"),
    Column("AGO", numeric=True),
    Column("CLIENT"),
    Column("PRIO", numeric=True),
    Column("TRY", numeric=True),
    Column("WORKER"),
    Column("TOKENS", numeric=True),
    Column("TOOK", numeric=True),
    Column("NOTE"),
)

_STATE_STYLES = {
    RequestState.QUEUED: "blue",
    RequestState.DISPATCHED: "cyan",
    RequestState.STREAMING: "cyan",
    RequestState.CANCELLING: "yellow",
    RequestState.STOPPING: "cyan",
    RequestState.HELD: "red",
}
_OUTCOME_STYLES = {Outcome.COMPLETED: "green", Outcome.CANCELLED: "yellow", Outcome.FAILED: "red"}


@click.command(
    short_help="List the requests.",
    epilog=examples(
        "llmctl requests | tail",
        "llmctl requests --json | jq '.requests[] | select(.state == \"queued\")'",
    ),
)
@command
async def requests(session: Session) -> ExitCode:
    """List the requests: those that are over as far as the daemon remembers, then those under way.

    STATE is the outcome once there is one. AGO is the time since a request was accepted, TOOK how
    long it took, or has taken by now. CLIENT is who sent it: the clients of a pool take turns. PRIO
    is its priority, TRY counts the workers that have had it. NOTE says where it waits, or how and
    why it ended.
    """
    async with session.client() as client:
        answer = await client.requests()
    if session.as_json:
        await session.print_json(answer)
    else:
        await session.print_table(_COLUMNS, [_row(info) for info in answer.requests])
    return ExitCode.DONE


def _row(info: RequestInfo) -> list[Cell]:
    over = info.state is RequestState.FINISHED and info.outcome is not None
    style = _OUTCOME_STYLES[info.outcome] if info.outcome else _STATE_STYLES.get(info.state, "")
    return [
        info.id,
        info.pool,
        Text(str(info.outcome if over else info.state), style=style),
        since(info.accepted_at),
        "".join(info.client.split()),
        info.priority,
        info.attempt or None,
        info.worker,
        info.tokens,
        duration(info.timings.total_ms).replace(" ", ""),
        _note(info),
    ]


def _note(info: RequestInfo) -> str | None:
    if info.position is not None:
        again = f", its worker failed on attempt {info.attempt}" if info.attempt else ""
        return f"number {info.position} in the queue{again}"
    if info.error is not None:
        suspect = " (suspect)" if info.error.suspect else ""
        return f"{info.error.code}: {info.error.message}{suspect}"
    if info.outcome is None:
        return None
    if info.outcome is Outcome.COMPLETED and info.resolution is None:
        return None if info.finish_reason is None else str(info.finish_reason)
    return ending(info.outcome, info.cancel, info.cancelled_by) + aftermath(info)


@click.command(
    short_help="Cancel a request.",
    epilog=examples(
        "llmctl cancel req_01JA2B3C4D5E6F7G8H9JKMNPQR",
        "llmctl cancel req_01JA2B3C4D5E6F7G8H9JKMNPQR --wait",
    ),
)
@click.argument("id", shell_complete=complete_request)
@click.option("--wait", is_flag=True, help="Return when it is known what became of its worker.")
@command
async def cancel(session: Session, id: str, *, wait: bool) -> ExitCode:  # noqa: A002 - its name in the help
    """Cancel the request ID, wherever it is: in the queue, loading its prompt, or generating.

    Cancelling a request that has finished changes nothing and shows its outcome.
    """
    async with session.client() as client:
        info = await client.cancel(id)
        if wait and not _finished_by_itself(info):
            await client.cancel(id, wait=True)
            info = await client.settled(id)
    if session.as_json:
        await session.print_json(info)
    else:
        await session.print(Text(f"{printable(info.id)} {_standing(info)}"))
    return ExitCode.DONE


def _finished_by_itself(info: RequestInfo) -> bool:
    """Whether the cancellation came too late: no worker will be asked, nothing will be resolved."""
    ended = info.state is RequestState.FINISHED and info.outcome is not Outcome.CANCELLED
    return ended and info.resolution is None


def _standing(info: RequestInfo) -> str:
    if info.outcome is None:
        return str(info.state)
    if _finished_by_itself(info):
        return f"had finished before: {info.outcome}"
    if info.outcome is Outcome.FAILED and info.error:
        return f"failed: {printable(info.error.message)}"
    return f"{ending(info.outcome, info.cancel)}{aftermath(info)}"


def ending(outcome: Outcome, record: CancelRecord | None, by: CancelledBy | None = None) -> str:
    """How a request ended that was asked to; ``by`` is named where it was somebody else."""
    match outcome:
        case Outcome.CANCELLED if record:
            whose = "" if by is None else f" by {by}"
            elapsed = duration(record.elapsed_ms)
            return f"cancelled{whose} after {elapsed} (answered by {record.answered_by})"
        case Outcome.COMPLETED:
            return "completed all the same"
        case _:
            return str(outcome)


def aftermath(info: RequestInfo) -> str:
    """What became of the worker, to follow `ending`; empty where there is nothing to add."""
    after = "" if info.settled_ms is None else f" after {duration(info.settled_ms)}"
    match info.resolution:
        case Resolution.COOPERATIVE:
            return f"; worker settled cooperatively{after}"
        case Resolution.TERMINATED:
            return f"; worker had to be terminated, gone{after}"
        case Resolution.KILLED:
            return f"; worker had to be killed, gone{after}"
        case Resolution.DETACHED:
            return f"; worker cannot be cancelled, and has ended it by itself{after}"
        case Resolution.UNREAPABLE:
            return f'; worker was killed but does not go away{after}; see "llmctl workers"'
        case Resolution.QUEUED:
            return "; no worker had it yet"
        case Resolution.RACED:
            return ""
        case None:
            return '; what becomes of its worker is not known yet, see "llmctl workers"'


_REMEDIES = {
    FailureReason.WORKER_EXITED: 'see "llmctl workers" for how it ended',
    FailureReason.WORKER_QUARANTINED: 'see "llmctl events" for the reason',
    FailureReason.PROTOCOL_ERROR: 'the worker is at fault, see "llmctl events"',
    FailureReason.ENGINE_ERROR: "change the request as the message says",
    FailureReason.INVALID_REQUEST: "change the request as the message says",
    FailureReason.CONTEXT_LENGTH_EXCEEDED: "shorten the prompt",
    FailureReason.STALLED: 'see "llmctl events"; if the model is only slow, raise '
    "health.first_token_stall and health.token_stall of its pool",
    FailureReason.SLOW_CONSUMER: "read the stream faster, or raise queue.mailbox_tokens",
    FailureReason.QUEUE_TIMEOUT: "try again later, add workers, or raise queue.queue_timeout",
    FailureReason.POOL_UNAVAILABLE: 'see "llmctl workers" for the reason',
}

_SUSPECT = 'do not send it again as it is; "llmctl events" has how the workers ended that had it'


def failure(error: Failure | None) -> str:
    """Why a request failed and what to do about it."""
    if error is None:
        return "failed: the daemon gave no reason"
    if error.suspect:
        return f"failed ({error.code}): {error.message}; {_SUSPECT}"
    again = "the same request may be sent again; " if error.retryable else ""
    return f"failed ({error.code}): {error.message}; {again}{_REMEDIES[error.code]}"
