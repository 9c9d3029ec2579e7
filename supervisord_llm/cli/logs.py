"""``llmctl logs``: what a slot's workers wrote to stderr, across their generations."""

from __future__ import annotations

import click
from rich.text import Text

from supervisord_llm.cli.completion import complete_slot
from supervisord_llm.cli.output import clock, printable
from supervisord_llm.cli.reasons import parking
from supervisord_llm.cli.session import ExitCode, Session, command, examples
from supervisord_llm.client import LogStream
from supervisord_llm.core.words import SlotState
from supervisord_llm.schema import LogLine, StreamGap


@click.command(
    short_help="Show what a slot's workers wrote to stderr.",
    epilog=examples(
        "llmctl logs smollm.0",
        "llmctl logs smollm.0 -f -n 0",
        "llmctl logs smollm.0 --json | jq -r .text",
    ),
)
@click.argument("slot", shell_complete=complete_slot)
@click.option("-f", "--follow", is_flag=True, help="Go on with what is written next.")
@click.option(
    "-n",
    "--lines",
    type=click.IntRange(min=0, max=1_000_000),
    help="How many of the last lines; by default 100, as far as the daemon keeps them.",
)
@command
async def logs(session: Session, slot: str, *, follow: bool, lines: int | None) -> ExitCode:
    """Show what the workers in SLOT wrote to stderr, the last lines of earlier ones included.

    Each line has the time and the worker's generation before it. If the slot is parked, why is told
    on standard error.
    """
    async with session.client() as client:
        worker = await client.worker(slot)
        if worker.state is SlotState.PARKED:
            session.say(parking(worker), "yellow")
        async with client.logs(slot, follow=follow, lines=lines) as stream:
            await _show(session, slot, stream)
    if follow:
        session.complain("the daemon ended the stream, it is stopping")
        return ExitCode.UNREACHABLE
    return ExitCode.DONE


async def _show(session: Session, slot: str, stream: LogStream) -> None:
    async for line in stream:
        if session.as_json:
            await session.out.write_json(stream.raw)
        else:
            await session.print(_render(slot, line))


def _render(slot: str, line: LogLine | StreamGap) -> Text:
    if isinstance(line, StreamGap):
        count = line.last - line.first + 1
        return Text(f"({count} lines are gone: {line.first} to {line.last})", style="yellow")
    return Text.assemble(
        (clock(line.at), "dim"),
        " ",
        (f"{slot}/{line.generation}", "cyan"),
        " ",
        printable(line.text),
    )
