"""``llmctl``: what an operator types. It knows the control API and nothing of what is behind it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from supervisord_llm import __version__
from supervisord_llm.cli.chat import chat
from supervisord_llm.cli.config import config
from supervisord_llm.cli.events import events
from supervisord_llm.cli.generate import generate
from supervisord_llm.cli.logs import logs
from supervisord_llm.cli.operations import drain, reload, resume, scale
from supervisord_llm.cli.pools import pools
from supervisord_llm.cli.requests import cancel, requests
from supervisord_llm.cli.session import ExitCode
from supervisord_llm.cli.slots import quarantine
from supervisord_llm.cli.status import status
from supervisord_llm.cli.top import top
from supervisord_llm.cli.workers import workers

PROGRAM = "llmctl"


_EPILOG = """\b
Examples:
  llmctl status
  llmctl generate "Why is the sky blue?"
  llmctl events -f

\b
Exit status: 0 done, 1 failed or refused, 2 wrong usage, 3 the daemon cannot be
reached, 4 not permitted, 130 interrupted.

\b
Shell completion: eval "$(_LLMCTL_COMPLETE=bash_source llmctl)"; likewise with
zsh_source and fish_source.
"""


@click.group(
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--socket",
    type=click.Path(path_type=Path),
    help="The control socket's path; by default $SUPERVISORD_LLM_SOCKET, else control.sock in "
    "$XDG_RUNTIME_DIR/supervisord-llm.",
)
@click.version_option(__version__, prog_name=PROGRAM)
@click.pass_context
def cli(context: click.Context, socket: Path | None) -> None:
    """Talk to supervisord-llm over its control socket."""
    context.obj = socket


for _command in (
    status,
    top,
    pools,
    workers,
    requests,
    generate,
    chat,
    cancel,
    reload,
    drain,
    resume,
    quarantine,
    scale,
    config,
    logs,
    events,
):
    cli.add_command(_command)


def main() -> int:
    """Run one command and return its exit status."""
    _fill_standard_streams()
    try:
        # The commands return their exit codes, so click must not exit on its own.
        return int(cli.main(prog_name=PROGRAM, standalone_mode=False) or ExitCode.DONE)
    except click.ClickException as error:
        error.show(file=sys.stderr)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return ExitCode.INTERRUPTED


def _fill_standard_streams() -> None:
    """Open what the shell has closed (``>&-``), before a socket takes the number of our output."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115 - for good
