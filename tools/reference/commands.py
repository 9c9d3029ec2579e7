"""The commands of both programs, and what their exit statuses mean."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import IntEnum

import click

from supervisord_llm.cli import ctl, daemon, session
from tools.reference import docstrings, markdown


def commands() -> str:
    """The section on the command line."""
    return markdown.section(
        2,
        "Commands",
        *_program(daemon.PROGRAM, daemon.cli, daemon.ExitCode),
        *_program(ctl.PROGRAM, ctl.cli, session.ExitCode),
    )


def _program(name: str, group: click.Group, exits: type[IntEnum]) -> Iterator[str]:
    # With the settings of its own use: click keeps the help option that a command first made.
    context = click.Context(group, info_name=name, **group.context_settings)
    exit_table = markdown.table(("exit status", "meaning"), exit_statuses(group, exits))
    yield markdown.section(
        3, f"`{name}`", markdown.prose(group.help), _options(group, context), exit_table
    )
    for verb, command in group.commands.items():
        inner = click.Context(command, info_name=verb, parent=context)
        usage = " ".join([name, verb, *command.collect_usage_pieces(inner)])
        yield markdown.section(
            4, f"`{name} {verb}`", f"`{usage}`", _help(command), _options(command, inner)
        )


def _help(command: click.Command) -> str:
    return markdown.prose(command.help)


def _options(command: click.Command, context: click.Context) -> str:
    rows = [(f"`{option}`", meaning) for option, meaning in options(command, context)]
    return markdown.table(("option", "meaning"), rows) if rows else ""


def options(command: click.Command, context: click.Context) -> list[tuple[str, str]]:
    """The options of a command as its help writes them, and their meanings."""
    return [
        (record[0], " ".join(record[1].split()))
        for parameter in command.params
        if isinstance(parameter, click.Option) and (record := parameter.get_help_record(context))
    ]


def exit_statuses(group: click.Group, exits: type[IntEnum]) -> list[tuple[str, str]]:
    """What a program may exit with, and the meaning: its help's words, else the code's."""
    said = _exit_meanings(group.epilog or "")
    documented = docstrings.members_of(exits)
    return [
        (str(code.value), said.get(code.value) or markdown.line(documented.get(code.name))
         or code.name.lower().replace("_", " "))
        for code in exits
    ]  # fmt: skip


def _exit_meanings(epilog: str) -> dict[int, str]:
    """What a program's own help says of its exit statuses."""
    _, _, told = " ".join(epilog.split()).partition("Exit status: ")
    meanings = re.split(r"[,;] (?=\d+ )", told.partition(".")[0])
    return {int(code): text for code, _, text in (each.partition(" ") for each in meanings)}
