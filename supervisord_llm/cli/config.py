"""``llmctl config``: the daemon's configuration file."""

from __future__ import annotations

import click
from rich.text import Text

from supervisord_llm.cli.output import printable
from supervisord_llm.cli.session import ExitCode, Session, command, examples
from supervisord_llm.schema import ConfigChange


@click.command(
    short_help="Let the daemon read its configuration again.",
    epilog=examples(
        "llmctl config reload",
        "llmctl config reload --json | jq .differences",
    ),
)
@click.argument("action", type=click.Choice(["reload"]))
@command
async def config(session: Session, action: str) -> ExitCode:  # noqa: ARG001 - there is only one
    """Let the daemon read its configuration file again, as SIGHUP does, and show what changed.

    Only the pools that changed are touched, and no request fails for it. A file that is not valid
    changes nothing, and all of its problems are told. "llmctl reload --wait" waits until the
    workers of a pool have followed.
    """
    async with session.client() as client:
        change = await client.reload_config()
    if session.as_json:
        await session.print_json(change)
        return ExitCode.DONE
    await session.print(Text("\n".join(_lines(change))))
    for warning in change.warnings:
        session.say(f"warning: {warning}", "yellow")
    return ExitCode.DONE


def _lines(change: ConfigChange) -> list[str]:
    lines = [printable(sentence) for sentence in change.differences]
    if not lines and not change.needs_restart:
        return ["nothing has changed"]
    restart = "takes effect only when the daemon is started again"
    return lines + [f"{printable(key)}: {restart}" for key in change.needs_restart]
