"""What every llmctl command shares: its socket, its output, its exit code.

A command is an async function that gets a `Session` and returns an exit code. Everything it may
raise on purpose ends here, in one place, as one line on standard error.
"""

from __future__ import annotations

import functools
import io
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Concatenate, ParamSpec

import click
import msgspec
import trio
from rich.console import Console
from rich.table import Table
from rich.text import Text

from supervisord_llm import paths
from supervisord_llm.cli import output
from supervisord_llm.cli.tables import Cell, Column, render
from supervisord_llm.client import ApiError, Client, DaemonUnreachable, NotPermitted
from supervisord_llm.errors import OperatorError, SupervisordError

P = ParamSpec("P")


class ExitCode(IntEnum):
    """What llmctl's exit status means."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    NOT_PERMITTED = 4
    INTERRUPTED = 130


class Session:
    """One run of one command: where the daemon is and how to print."""

    def __init__(self, socket: Path | None, *, as_json: bool) -> None:
        self._socket = socket
        self.as_json = as_json
        self.out = output.Output()
        # Rich renders into memory only: by itself it would end the process where a reader has gone
        # and block where one has paused.
        self._console = Console(
            file=io.StringIO(),
            force_terminal=True if sys.stdout.isatty() else None,
            markup=False,
            highlight=False,
            emoji=False,
        )
        self._errors = Console(stderr=True, markup=False, highlight=False, emoji=False)

    def client(self) -> Client:
        """A client for the daemon's socket; `OperatorError` where its place is not safe."""
        return Client(self._socket or paths.control_socket(os.environ))

    async def print(self, *parts: Table | Text) -> None:
        """Print to standard output: coloured and wrapped at a terminal, else plain and whole."""
        await self.out.write(self.rendered(*parts))

    def rendered(self, *parts: Table | Text) -> str:
        """What `print` would print."""
        with self._console.capture() as rendered:
            for part in parts:
                self._console.print(part, soft_wrap=not self.fitted, crop=False)
        return rendered.get()

    def table(self, columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> Table | Text:
        """A table as standard output can show it."""
        return render(columns, rows, width=self._console.width if self.fitted else None)

    async def print_table(self, columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> None:
        """Print a table to standard output."""
        await self.print(self.table(columns, rows))

    async def print_json(self, value: object) -> None:
        """Print a Struct as JSON: laid out for a reader at a terminal, else on one line."""
        encoded = msgspec.json.encode(value)
        if self.fitted:
            encoded = msgspec.json.format(encoded, indent=2)
        await self.out.write_json(encoded)

    @property
    def fitted(self) -> bool:
        """Whether standard output is a terminal, with colours and a width."""
        return self._console.is_terminal

    def say(self, text: str, style: str = "") -> None:
        """Tell the person at the terminal something that is not the command's output."""
        self._errors.print(Text(output.printable(text), style=style), soft_wrap=True)

    def complain(self, text: str) -> None:
        """Tell what went wrong."""
        message = Text.assemble(("llmctl: ", "bold red"), output.printable(text))
        self._errors.print(message, soft_wrap=True)


Command = Callable[Concatenate[Session, P], Awaitable[ExitCode]]


def command(function: Command[P]) -> Callable[..., ExitCode]:
    """Make a click callback of an async command, with the options that all of them have."""

    @click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
    @click.option("--socket", type=click.Path(path_type=Path), help="The control socket's path.")
    @click.pass_context
    @functools.wraps(function)
    def callback(context: click.Context, /, *args: P.args, **kwargs: P.kwargs) -> ExitCode:
        given = kwargs.pop("socket") or context.obj
        socket = given if isinstance(given, Path) else None
        session = Session(socket, as_json=bool(kwargs.pop("as_json")))
        return _run(session, functools.partial(function, session, *args, **kwargs))

    return callback


def examples(*lines: str) -> str:
    """A help text's last part, which click leaves unwrapped."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


async def sole_pool(client: Client, remedy: str) -> str:
    """The pool that is meant when none is named; a usage error with ``remedy`` if none is."""
    names = [pool.name for pool in (await client.status()).pools]
    if len(names) == 1:
        return names[0]
    raise click.UsageError(f"There are several pools, {remedy}: {', '.join(names)}.")


def _run(session: Session, function: Callable[[], Awaitable[ExitCode]]) -> ExitCode:
    try:
        return trio.run(_call, function)
    except BaseException as error:
        sole = sole_error(error)
        if isinstance(sole, KeyboardInterrupt):
            return ExitCode.INTERRUPTED
        if isinstance(sole, BrokenPipeError):
            return _without_reader()
        if isinstance(sole, SupervisordError):
            return complain_of(session, sole)
        if sole is error:
            raise
        raise sole from error


async def _call(function: Callable[[], Awaitable[ExitCode]]) -> ExitCode:
    return await function()


def sole_error(error: BaseException) -> BaseException:
    """The one error in nested groups, which is how a nursery reports a failure in it."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _without_reader() -> ExitCode:
    """Whoever read our output has enough of it, as in ``llmctl events | head``: that is no failure.

    The interpreter would fail again when it flushes at exit, so it gets something to flush into.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return ExitCode.DONE


def complain_of(session: Session, error: SupervisordError) -> ExitCode:
    """Tell of an error and what to do about it, in one line; the exit code that it stands for."""
    match error:
        case DaemonUnreachable():
            session.complain(
                f'{error}; start it with "make run" or "supervisord-llm run --config FILE", '
                "or give --socket"
            )
            return ExitCode.UNREACHABLE
        case NotPermitted():
            session.complain(
                f'{error}; join the group that owns it ("ls -l" shows which), or give --socket'
            )
            return ExitCode.NOT_PERMITTED
        case OperatorError():
            session.complain(str(error))
            return ExitCode.UNREACHABLE
        case ApiError(retry_after=float(seconds)):
            session.complain(f"{error} (try again in {output.duration(seconds * 1000)})")
            return ExitCode.FAILED
        case _:
            session.complain(str(error))
            return ExitCode.FAILED
