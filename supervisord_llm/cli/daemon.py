"""``supervisord-llm``: runs the daemon, checks a configuration, or makes an API key."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from enum import IntEnum
from functools import partial
from pathlib import Path

import click

from supervisord_llm import __version__
from supervisord_llm.config.arguments import hide_arguments
from supervisord_llm.config.dump import effective
from supervisord_llm.config.keys import append_line, key_line, new_key
from supervisord_llm.config.launch import LaunchPlan, SlotLaunch, slot_launches
from supervisord_llm.config.load import LoadedConfig, load
from supervisord_llm.config.placeholders import bin_dir
from supervisord_llm.config.schema import Config
from supervisord_llm.config.toml import render
from supervisord_llm.config.units import format_cpus, format_duration, format_size
from supervisord_llm.errors import ConfigError, OperatorError

PROGRAM = "supervisord-llm"
CONFIG_VARIABLE = "SUPERVISORD_LLM_CONFIG"


class ExitCode(IntEnum):
    """What the exit status says."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    CONFIG = 78
    """EX_CONFIG of sysexits.h: the configuration is invalid."""
    INTERRUPTED = 130


_EPILOG = """\b
Examples:
  supervisord-llm --config quickstart.toml
  supervisord-llm check --config mine.toml
  supervisord-llm new-key alice --file api-keys

\b
Exit status: 0 stopped in order, or valid; 1 the machine did not allow it; 2 wrong usage;
78 invalid configuration.
"""

_config = click.option(
    "--config",
    "path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help=f"The configuration, a TOML file; by default ${CONFIG_VARIABLE}.",
)


@click.group(
    invoke_without_command=True,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@_config
@click.version_option(__version__, prog_name=PROGRAM)
@click.pass_context
def cli(context: click.Context, path: Path | None) -> int:
    """Keep local LLM workers running, with cancellations that are bounded in time.

    Without a command, runs the daemon.
    """
    context.obj = path
    return ExitCode.DONE if context.invoked_subcommand else _run(_choose(context, path))


@cli.command()
@_config
@click.option("--hints", is_flag=True, help="Once it serves, print what to try next.")
@click.pass_context
def run(context: click.Context, path: Path | None, *, hints: bool) -> int:
    """Run the daemon in the foreground.

    The first SIGTERM or Ctrl-C lets running requests end for the configured time, the second
    cancels them.
    """
    return _run(_choose(context, path), hints=hints)


@cli.command()
@_config
@click.pass_context
def check(context: click.Context, path: Path | None) -> int:
    """Check a configuration and print what would run.

    Prints, as TOML, every key with the value in force, and the command line of each slot. Values of
    environment variables are not shown, nor arguments that look like secrets.
    """
    loaded = load(_choose(context, path), os.environ)
    plan = slot_launches(loaded.config, cores=sorted(os.sched_getaffinity(0)), environ=os.environ)
    for line in _report(loaded, plan):
        # Paths may hold bytes that are no text.
        click.echo(line.encode(errors="surrogateescape"))
    for warning in [*loaded.warnings, *plan.warnings]:
        click.echo(f"warning: {warning.message}; {warning.remedy}", err=True)
    return ExitCode.DONE


@cli.command("new-key")
@click.argument("name")
@click.option(
    "--file",
    "path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Append the key's line to this file of listen.api_keys; it is made if it is missing.",
)
def make_key(name: str, path: Path | None) -> int:
    """Make an API key for NAME and print it, this once: only its hash is kept.

    With a key of theirs, the requests of NAME take turns with those of others. A name may have
    several keys, for as long as one replaces another. To withdraw a key, remove its line.
    """
    key = new_key()
    line = key_line(name, key)
    if path is None:
        told = f"the line for the file of listen.api_keys:\n{line}"
    else:
        append_line(path, line)
        told = f"added to {path}; `llmctl config reload` puts it into force"
    click.echo(key)
    click.echo(told, err=True)
    return ExitCode.DONE


def _choose(context: click.Context, path: Path | None) -> Path:
    given = path or context.find_root().obj
    if given:
        return Path(given)
    if named := os.environ.get(CONFIG_VARIABLE):
        return Path(named)
    raise click.UsageError(
        f"cannot do anything without a configuration; give --config FILE, or set {CONFIG_VARIABLE}"
    )


def _run(path: Path, *, hints: bool = False) -> int:
    loaded = load(path, os.environ)
    # Imported late: checking a configuration needs none of what serving it does.
    from supervisord_llm.daemon import main as run_daemon  # noqa: PLC0415

    return run_daemon(loaded, partial(_print_hints, loaded) if hints else None)


def _print_hints(loaded: LoadedConfig) -> None:
    """What a new user may want to type next, with the program that belongs to this daemon."""
    llmctl, daemon = _shown("llmctl"), _shown(PROGRAM)
    sockets = [listen.address.removeprefix("unix:") for listen in loaded.config.listen]
    click.echo(
        f"""
It serves, on {sockets[0]}. In another terminal, in this folder, try:

  {llmctl} generate "Why is the sky blue?"      (Ctrl-C cancels, and says how fast)
  {llmctl} workers                              (then kill -9 one of the PIDs)
  {llmctl} events -f                            (and watch what happens)

Your own model: copy {loaded.path}, put the path of your GGUF behind --model, and run
  {daemon} run --config YOUR-COPY

Ctrl-C stops the daemon.
""",
        err=True,
    )


def _shown(program: str) -> str:
    """How to type one of our programs from here."""
    absolute = f"{bin_dir()}/{program}"
    relative = os.path.relpath(absolute)
    return shlex.quote(absolute if relative.startswith(os.pardir) else relative)


def _report(loaded: LoadedConfig, plan: LaunchPlan) -> Iterator[str]:
    """The configuration as TOML, and as comments in it what it comes to."""
    yield f"# {loaded.path} is valid. In force:"
    yield ""
    yield render(effective(loaded.config))
    yield "# What would run:"
    for name, pool in loaded.config.pool.items():
        if told := list(_residence(name, loaded.config)):
            yield f"# {name} is {'; '.join(told)}"
        for launch in plan.launches.values():
            if launch.pool == name:
                yield from _slot(launch, standby=launch.index >= pool.workers)


def _residence(name: str, config: Config) -> Iterator[str]:
    """When a pool's model is loaded, where that is not always."""
    pool = config.pool[name]
    if pool.load == "on_demand":
        idle = format_duration(pool.idle_ttl)
        yield f"loaded when a request needs it and unloaded after {idle} without one"
    group = [each for each, other in config.pool.items() if other.exclusive == pool.exclusive]
    if pool.exclusive and len(group) > 1:
        yield f'in the group "{pool.exclusive}": only one of {", ".join(group)} is loaded at a time'


def _slot(launch: SlotLaunch, *, standby: bool) -> Iterator[str]:
    """How a slot's workers would be started."""
    cores = "core" if len(launch.cpus) == 1 else "cores"
    yield (
        f"# {launch.slot}{' stands by' if standby else ''} on {cores} {format_cpus(launch.cpus)}, "
        f"nice {launch.nice}, oom_score_adj {launch.oom_score_adj}"
    )
    # A newline in an argument must not end the comment.
    words = [word if word.isprintable() else repr(word) for word in hide_arguments(launch.argv)]
    yield f"#   {shlex.join(words)}"
    yield f"#   environment: {' '.join(sorted(launch.env))}"
    if launch.rlimits:
        limits = ", ".join(f"{kind} {format_size(size)}" for kind, size in launch.rlimits)
        yield f"#   limit of each process, where no control group holds the worker: {limits}"


def main() -> int:
    """Run one command and return the exit status."""
    try:
        return int(cli.main(prog_name=PROGRAM, standalone_mode=False) or ExitCode.DONE)
    except ConfigError as error:
        count = len(error.problems)
        click.echo(f"{error.path}: {count} problem{'s' if count > 1 else ''}", err=True)
        for problem in error.problems:
            click.echo(f"  {problem}", err=True)
        return ExitCode.CONFIG
    except OperatorError as error:
        click.echo(f"{PROGRAM}: {error}", err=True)
        return ExitCode.FAILED
    except click.ClickException as error:
        error.show(file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:  # whoever read has seen enough; nothing is left to flush at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.FAILED
    except (click.Abort, KeyboardInterrupt):
        return ExitCode.INTERRUPTED
