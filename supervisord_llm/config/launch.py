"""What a configuration comes to for each slot: command line, environment, cores, priorities."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from supervisord_llm.config.cores import core_warnings, share_cores
from supervisord_llm.config.placeholders import Known, bin_dir, fill, folders
from supervisord_llm.config.problems import ConfigWarning
from supervisord_llm.config.schema import Config, PoolConfig
from supervisord_llm.core.words import PoolName, SlotName

INHERITED = ("PATH", "HOME", "LANG", "TZ", "TMPDIR", "LD_LIBRARY_PATH")
"""The daemon's variables that every worker gets, besides those whose names begin with ``LC_``."""


class SlotLaunch(msgspec.Struct, frozen=True, kw_only=True):
    """How a slot's workers are started, but for what differs from generation to generation."""

    slot: SlotName
    pool: PoolName
    index: int
    argv: tuple[str, ...]
    env: dict[str, str]
    """The whole environment, the variables of a generation excepted."""
    cpus: tuple[int, ...]
    """The cores that the worker may run on."""
    threads: int
    """How many threads it should compute with: one per core."""
    nice: int
    oom_score_adj: int


class LaunchPlan(msgspec.Struct, frozen=True):
    """Every slot's launch, in the order of the file, and what an operator should know."""

    launches: dict[SlotName, SlotLaunch]
    warnings: list[ConfigWarning]


def slot_launches(
    config: Config, *, cores: Sequence[int], environ: Mapping[str, str]
) -> LaunchPlan:
    """Work out every slot's launch.

    A program that cannot be executed is a warning: its slots park and say so, other pools serve.

    Args:
        config: a valid configuration.
        cores: the numbers of the cores that the daemon may use, ascending, at least one.
        environ: the daemon's environment.

    Raises:
        ValueError: if a placeholder has lost its value since the configuration was checked.
        OperatorError: if a folder cannot be used any more.
    """
    shares = share_cores(config, cores)
    launches = {}
    warnings: dict[ConfigWarning, None] = {}
    for name, pool in config.pool.items():
        for index in range(pool.workers):
            launch = _launch(name, pool, index, shares[f"{name}.{index}"], environ)
            launches[launch.slot] = launch
            if warning := _command_warning(launch):
                warnings[warning] = None  # once for all slots with the same command
    return LaunchPlan(launches, [*warnings, *core_warnings(shares, cores)])


def _launch(
    name: PoolName,
    pool: PoolConfig,
    index: int,
    cpus: tuple[int, ...],
    environ: Mapping[str, str],
) -> SlotLaunch:
    slot = f"{name}.{index}"
    known: Known = {
        **folders(environ),
        "slot": lambda: slot,
        "index": lambda: str(index),
        "threads": lambda: str(len(cpus)),
    }
    own = pool.env | (pool.per_slot_env[index] if pool.per_slot_env else {})
    env = {
        key: value
        for key, value in environ.items()
        if key in INHERITED or key.startswith("LC_") or key in pool.pass_env
    }
    env |= {key: fill(text, known, secret=True) for key, text in own.items()}
    program, *arguments = (fill(text, known) for text in pool.command)
    return SlotLaunch(
        slot=slot,
        pool=name,
        index=index,
        argv=(_find(program, env), *arguments),
        env=env,
        cpus=cpus,
        threads=len(cpus),
        nice=pool.limits.nice,
        oom_score_adj=pool.limits.oom_score_adj,
    )


def _find(program: str, env: Mapping[str, str]) -> str:
    """The path of a bare name: ours first, then the worker's PATH; else the name as it is."""
    if os.sep in program:
        return program
    places = os.pathsep.join([bin_dir(), env.get("PATH", os.defpath)])
    return shutil.which(program, path=places) or program


def _command_warning(launch: SlotLaunch) -> ConfigWarning | None:
    program = launch.argv[0]
    if os.sep not in program:
        fault = f"it is neither in {bin_dir()} nor in the worker's PATH"
    elif not Path(program).exists():
        fault = "there is no such file"
    elif not Path(program).is_file() or not os.access(program, os.X_OK):
        fault = "it is not an executable file"
    else:
        return None
    return ConfigWarning(
        "command",
        f"cannot run {program} for pool {launch.pool}: {fault}",
        "install the worker (ours: `make build`), or correct the pool's command",
    )
