"""``llmctl status``: the daemon in a dozen lines."""

from __future__ import annotations

import click
import msgspec
from rich.text import Text

from supervisord_llm.cli.output import printable, span
from supervisord_llm.cli.session import ExitCode, Session, command, examples
from supervisord_llm.cli.tables import Column, states, yes_no
from supervisord_llm.schema import Status

_POOLS = (
    Column("POOL"),
    Column("READY"),
    Column("QUEUED", numeric=True),
    Column("IN-FLIGHT", numeric=True),
    Column("WORKERS"),
)


@click.command(
    short_help="Show the daemon, its pools and its totals.",
    epilog=examples(
        "llmctl status",
        "llmctl status --json | jq .pools",
    ),
)
@command
async def status(session: Session) -> ExitCode:
    """Show the daemon, its pools and its totals."""
    async with session.client() as client:
        answer = await client.status()
    if session.as_json:
        await session.print_json(answer)
        return ExitCode.DONE
    await session.print(_daemon(answer))
    await session.print_table(
        _POOLS,
        [
            (pool.name, yes_no(value=pool.ready), pool.queued, pool.in_flight, states(pool.states))
            for pool in answer.pools
        ],
    )
    await session.print(_totals(answer))
    return ExitCode.DONE


def _daemon(answer: Status) -> Text:
    style = {"running": "green", "starting": "blue"}.get(answer.state, "yellow")
    return Text.assemble(
        (f"supervisord-llm {answer.version} ", "bold"),
        (answer.state, style),
        f" for {span(answer.uptime_seconds)}, pid {answer.pid}\n",
        f"configuration {printable(answer.config)}\n",
    )


def _totals(answer: Status) -> Text:
    counts = msgspec.structs.asdict(answer.totals)
    return Text("\n" + ", ".join(f"{count} {name}" for name, count in counts.items()))
