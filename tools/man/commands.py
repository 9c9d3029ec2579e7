"""supervisord-llm(8) and llmctl(1), from the commands themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import IntEnum

import click

from supervisord_llm import paths
from supervisord_llm.cli import ctl, daemon, session
from tools.man import roff
from tools.reference import markdown
from tools.reference.commands import exit_statuses, options

_SIGNALS = (
    ("SIGTERM, SIGINT", "Stop in order; running requests may end for `daemon.shutdown_drain`."),
    ("a second one", "Cancel them."),
    ("SIGHUP", "Read the configuration again, as `llmctl config reload` does."),
)
_VARIABLES = {
    daemon.CONFIG_VARIABLE: "The configuration, where `--config` does not name it.",
    paths.SOCKET_VARIABLE: "The control socket, for the daemon and for `llmctl`.",
}
_FILES = (
    ("/etc/supervisord-llm/supervisord-llm.toml", "The service's configuration."),
    (paths.SYSTEM_SOCKET, "Its control socket, for members of the group `llm-admin`."),
    ("/run/supervisord-llm/inference.sock", "Its socket for clients, for members of `llm`."),
    ("/var/lib/supervisord-llm", "Its state."),
)
_SERVICE = """\
As a service of systemd it reports when it is ready: once its sockets serve and every required pool
has loaded, or has given up. A pool that gave up leaves the service active; `systemctl status` says
so, and /readyz answers 503. `systemctl reload` fails if the file is not valid, and then changes
nothing.
"""


def supervisord_llm() -> str:
    """The daemon's page."""
    return "".join(
        (
            roff.header(daemon.PROGRAM, 8),
            *_program(daemon.PROGRAM, daemon.cli),
            roff.section("As a service", roff.paragraph(_SERVICE)),
            roff.section("Signals", roff.tagged(_SIGNALS)),
            _exits(daemon.cli, daemon.ExitCode),
            roff.section("Environment", roff.tagged(_VARIABLES.items())),
            roff.section("Files", roff.tagged(_FILES)),
            _see_also("llmctl(1)", "supervisord-llm.toml(5)", "systemd.service(5)"),
        )
    )


def llmctl() -> str:
    """The operator's page."""
    variable = paths.SOCKET_VARIABLE
    return "".join(
        (
            roff.header(ctl.PROGRAM, 1),
            *_program(ctl.PROGRAM, ctl.cli),
            _exits(ctl.cli, session.ExitCode),
            roff.section("Environment", roff.tagged([(variable, _VARIABLES[variable])])),
            _see_also("supervisord-llm(8)", "supervisord-llm.toml(5)"),
        )
    )


def _program(name: str, group: click.Group) -> Iterator[str]:
    context = click.Context(group, info_name=name, **group.context_settings)
    about = markdown.prose(group.help)
    summary = about.partition("\n")[0].rstrip(".")
    yield roff.section(
        "Name", f"{roff.escape(name)} \\- {roff.text(summary[0].lower() + summary[1:])}\n"
    )
    usage = " ".join([name, *group.collect_usage_pieces(context)])
    yield roff.section("Synopsis", roff.paragraph(f"`{usage}`"))
    yield roff.section("Description", roff.paragraph(about), roff.tagged(options(group, context)))
    commands = [_command(name, verb, each, context) for verb, each in group.commands.items()]
    yield roff.section("Commands", *commands)
    if examples := _examples(group.epilog):
        yield roff.section("Examples", roff.lines(examples))


def _command(program: str, verb: str, command: click.Command, parent: click.Context) -> str:
    context = click.Context(command, info_name=verb, parent=parent)
    usage = " ".join([program, verb, *command.collect_usage_pieces(context)])
    examples = _examples(command.epilog)
    return roff.subsection(
        usage,
        roff.paragraph(markdown.prose(command.help)),
        roff.tagged(options(command, context)),
        roff.lines(examples) if examples else "",
    )


def _examples(epilog: str | None) -> list[str]:
    """The lines below ``Examples:``, up to the end of that paragraph."""
    found = re.search(r"Examples:\n((?:[ ]+\S.*\n?)+)", epilog or "")
    return [line.strip() for line in found[1].splitlines()] if found else []


def _exits(group: click.Group, exits: type[IntEnum]) -> str:
    return roff.section("Exit status", roff.tagged(exit_statuses(group, exits)))


def _see_also(*others: str) -> str:
    return roff.section("See also", roff.paragraph(", ".join(others)))
