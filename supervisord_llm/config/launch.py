"""What a configuration comes to for each slot: command line, environment, cores, priorities."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from pathlib import Path

import msgspec

from supervisord_llm.config.cores import core_warnings, share_cores
from supervisord_llm.config.placeholders import Known, bin_dir, fill, folders
from supervisord_llm.config.problems import ConfigWarning
from supervisord_llm.config.schema import Config, LimitsConfig, PoolConfig
from supervisord_llm.core.words import PoolName, SlotName

INHERITED = ("PATH", "HOME", "LANG", "TZ", "TMPDIR", "LD_LIBRARY_PATH")
"""The daemon's variables that every worker gets, besides those whose names begin with ``LC_``."""


DATA_SLACK_MIN = 64 * 2**20
"""Bytes by which the limit of a worker's own writable memory exceeds ``memory_hard`` at least."""


class SlotLaunch(msgspec.Struct, frozen=True, kw_only=True):
    """How a slot's workers are started, but for what differs from generation to generation."""

    slot: SlotName
    pool: PoolName
    index: int
    place: int
    """Whose cores and ``per_slot_env`` it has: a number from 0 in the file's order, which is the
    slot's own index until it is replaced by a slot with another."""
    argv: tuple[str, ...]
    env: dict[str, str]
    """The whole environment, the variables of a generation excepted."""
    cpus: tuple[int, ...]
    """The cores that the worker may run on."""
    threads: int
    """How many threads it should compute with: one per core."""
    nice: int
    oom_score_adj: int
    rlimits: tuple[tuple[str, int], ...]
    """Resource limits of the process, soft and hard alike, by the kernel's name in lower case."""

    @property
    def digest(self) -> str:
        """Tells whether two launches start the same process the same way, but for its slot's name.

        A SHA-256, so that what is kept of it says nothing of the environment's values.
        """
        parts = (
            self.argv,
            sorted(self.env.items()),
            (self.cpus, self.threads, self.nice, self.oom_score_adj, self.rlimits),
        )
        # Text from outside may hold bytes that are none; JSON's escapes have a form for them.
        return hashlib.sha256(json.dumps(parts).encode("ascii")).hexdigest()


class LaunchPlan(msgspec.Struct, frozen=True):
    """Every slot's launch, in the order of the file, and what an operator should know."""

    launches: dict[SlotName, SlotLaunch]
    warnings: list[ConfigWarning]


def slot_launches(
    config: Config, *, cores: Sequence[int], environ: Mapping[str, str]
) -> LaunchPlan:
    """Work out the launch of every slot that the file asks for, those on standby included.

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
        for index in range(pool.slots):
            launch = _launch(name, pool, index, index, shares[f"{name}.{index}"], environ)
            launches[launch.slot] = launch
            if warning := _command_warning(launch):
                warnings[warning] = None  # once for all slots with the same command
    return LaunchPlan(launches, [*warnings, *core_warnings(config, shares, cores)])


def extra_launch(
    config: Config,
    pool: PoolName,
    index: int,
    place: int,
    *,
    cores: Sequence[int],
    environ: Mapping[str, str],
) -> SlotLaunch:
    """Work out the launch of a slot that the file does not name: for a reload, or for scaling up.

    Running workers keep their cores, so beyond the file's places ``limits.cpus = "auto"`` gives the
    cores of the pool's places in turn.

    Args:
        config: a valid configuration.
        pool: the name of one of its pools.
        index: the new slot's number; its name and ``{slot}`` and ``{index}`` come from it.
        place: whose cores and ``per_slot_env`` it takes; see `choose_place`.
        cores: the numbers of the cores that the daemon may use, ascending, at least one.
        environ: the daemon's environment.

    Raises:
        ValueError: if a list with an entry per slot has none for this place, or a placeholder has
            lost its value since the configuration was checked; it names the key and the remedy.
        OperatorError: if a folder cannot be used any more.
    """
    settings = config.pool[pool]
    if settings.per_slot_env and place >= len(settings.per_slot_env):
        raise ValueError(_no_entry(pool, "per_slot_env", len(settings.per_slot_env)))
    if settings.limits.cpus != "auto" and place >= len(settings.limits.cpus):
        raise ValueError(_no_entry(pool, "limits.cpus", len(settings.limits.cpus)))
    share = share_cores(config, cores)[f"{pool}.{place % settings.slots}"]
    return _launch(pool, settings, index, place, share, environ)


def choose_place(pool: PoolConfig, taken: Iterable[int], like: int | None = None) -> int:
    """The place for a slot more: that of the slot it replaces, else the lowest that is free.

    Args:
        pool: the pool's settings as they are now.
        taken: the places of all its slots.
        like: the place of the slot that is replaced, if one is. It is not kept where the file has
            come to name fewer places than that.
    """
    if like is not None and like < pool.slots:
        return like
    occupied = set(taken)
    return next(place for place in count() if place not in occupied)


def _no_entry(pool: PoolName, key: str, length: int) -> str:
    entries = "1 slot" if length == 1 else f"{length} slots"
    return (
        f"pool.{pool}.{key}: has entries for {entries} only; add one for each slot more, with "
        "workers or standby to match, and reload the configuration"
    )


def _launch(
    name: PoolName,
    pool: PoolConfig,
    index: int,
    place: int,
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
    own = pool.env | (pool.per_slot_env[place] if pool.per_slot_env else {})
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
        place=place,
        argv=(_find(program, env), *arguments),
        env=env,
        cpus=cpus,
        threads=len(cpus),
        nice=pool.limits.nice,
        oom_score_adj=pool.limits.oom_score_adj,
        rlimits=_rlimits(pool.limits),
    )


def _rlimits(limits: LimitsConfig) -> tuple[tuple[str, int], ...]:
    """The kernel's own refusal of more memory, where no cgroup holds the worker.

    ``data`` is private writable memory: a mapped model file is not in it. It counts what was asked
    for rather than what was touched, hence a quarter more than ``memory_hard``, which is looked
    after by measuring; this one stops what grows faster than it is measured. It is each process's
    own, so descendants are not counted together.
    """
    hard = limits.memory_hard
    return () if hard is None else (("data", hard + max(hard // 4, DATA_SLACK_MIN)),)


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
