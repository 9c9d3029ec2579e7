"""What no key can get wrong alone: names, lengths, contradictions, and text with a meaning."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping

from supervisord_llm.config.arguments import hide_arguments
from supervisord_llm.config.checks_listen import listen_findings
from supervisord_llm.config.checks_log import log_findings
from supervisord_llm.config.checks_models import model_findings
from supervisord_llm.config.placeholders import SLOT_FACTS, fill, folders
from supervisord_llm.config.problems import Finding, Problems, join
from supervisord_llm.config.schema import Config, PoolConfig
from supervisord_llm.config.units import format_duration, format_size, show
from supervisord_llm.errors import OperatorError

_POOL_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_RESERVED = frozenset({
    "EXECUTORCH_LLM_WORKER_CONTROL_FD",
    "SUPERVISORD_LLM_HEARTBEAT_MS",
    "SUPERVISORD_LLM_PROTOCOL",
    "SUPERVISORD_LLM_SLOT",
    # What the service manager tells the daemon is not for workers: they could speak in its name.
    "LISTEN_FDNAMES",
    "LISTEN_FDS",
    "LISTEN_PID",
    "NOTIFY_SOCKET",
    "WATCHDOG_PID",
    "WATCHDOG_USEC",
})  # fmt: skip
"""Variables of a worker that are the daemon's to set or to withhold."""


def check(config: Config, environ: Mapping[str, str], problems: Problems) -> None:
    """Record what is wrong between keys, unless one of these keys is unusable by itself.

    Args:
        config: with addresses and ``state_dir`` filled in, those of other text not.
        environ: for the folders among the placeholders.
        problems: takes what is wrong, and knows what was.
    """
    for name in config.pool:
        if not _POOL_NAME.fullmatch(name):
            text = "write 1 to 63 of a-z, 0-9, - and _, beginning with a letter or a digit"
            problems.add(join("pool", name), f"cannot be a pool's name; {text}")
    for path, others, text in _findings(config, environ):
        if not problems.touch((path, *others)):
            problems.add(path, text)


def _findings(config: Config, environ: Mapping[str, str]) -> Iterator[Finding]:
    if not os.path.isabs(config.daemon.state_dir):  # noqa: PTH117 - "" is no path
        shown = show(config.daemon.state_dir)
        yield "daemon.state_dir", (), f"cannot use {shown}: relative; write an absolute path"
    yield from log_findings(config.log)
    yield from listen_findings(config.listen)
    if not config.pool:
        yield "pool", (), "cannot start without a pool; write a table [pool.NAME] with a command"
    for name, pool in config.pool.items():
        path = join("pool", name)
        yield from _pool_findings(path, pool)
        yield from _text_findings(path, pool, environ)
    yield from _group_findings(config)
    yield from model_findings(config.pool)


def _pool_findings(path: str, pool: PoolConfig) -> Iterator[Finding]:
    workers, slots = (f"{path}.workers",), (f"{path}.workers", f"{path}.standby")
    if pool.min_ready > pool.workers:
        text = f"cannot be reached: {pool.min_ready} of {pool.workers} workers; write at most that"
        yield f"{path}.min_ready", workers, text
    if pool.per_slot_env and len(pool.per_slot_env) != pool.slots:
        yield f"{path}.per_slot_env", slots, _wrong_length(len(pool.per_slot_env), pool, "table")
    cpus = pool.limits.cpus
    if cpus != "auto" and len(cpus) != pool.slots:
        yield f"{path}.limits.cpus", slots, _wrong_length(len(cpus), pool, "list of cores")
    soft, hard = pool.limits.memory_soft, pool.limits.memory_hard
    if soft is not None and hard is not None and soft >= hard:
        text = (
            f'cannot be "{format_size(soft)}", not less than memory_hard; '
            f'write less than "{format_size(hard)}"'
        )
        yield f"{path}.limits.memory_soft", (f"{path}.limits.memory_hard",), text
    if pool.cancel.self_test and pool.cancel.cancellation == "off":
        text = (
            'cannot be true with cancellation = "off", which asks no worker; write false, or '
            'cancellation = "auto"'
        )
        yield f"{path}.cancel.self_test", (f"{path}.cancel.cancellation",), text
    restart = pool.restart
    if restart.backoff_max < restart.backoff_initial:
        text = (
            f'cannot be "{format_duration(restart.backoff_max)}", less than backoff_initial; '
            f'write at least "{format_duration(restart.backoff_initial)}"'
        )
        yield f"{path}.restart.backoff_max", (f"{path}.restart.backoff_initial",), text


def _wrong_length(length: int, pool: PoolConfig, what: str) -> str:
    entries = "1 entry" if length == 1 else f"{length} entries"
    standby = f" and standby = {pool.standby}" if pool.standby else ""
    return (
        f"cannot use {entries} for workers = {pool.workers}{standby}; "
        f"write one {what} per slot, or none"
    )


def _group_findings(config: Config) -> Iterator[Finding]:
    eager: dict[str, str] = {}
    for name, pool in config.pool.items():
        if not pool.exclusive or pool.load != "eager":
            continue
        path = join("pool", name)
        first = eager.setdefault(pool.exclusive, path)
        if first != path:
            text = (
                f'cannot be "eager": of the group {show(pool.exclusive)} only one pool is loaded '
                f'at a time, and {first} is eager; write "on_demand"'
            )
            others = (f"{path}.exclusive", f"{first}.exclusive", f"{first}.load")
            yield f"{path}.load", others, text


def _text_findings(path: str, pool: PoolConfig, environ: Mapping[str, str]) -> Iterator[Finding]:
    if pool.command and not pool.command[0]:
        yield f"{path}.command[0]", (), "cannot be empty; write the program to run"
    shown = hide_arguments(pool.command)
    texts = [
        (f"{path}.command[{i}]", text, text != shown[i]) for i, text in enumerate(pool.command)
    ]
    tables = [(f"{path}.env", pool.env)]
    tables += [(f"{path}.per_slot_env[{i}]", table) for i, table in enumerate(pool.per_slot_env)]
    for where, table in tables:
        for name, text in table.items():
            texts.append((join(where, name), text, True))
            yield from _variable_findings(join(where, name), name)
    for index, name in enumerate(pool.pass_env):
        yield from _variable_findings(f"{path}.pass_env[{index}]", name)
    known = {**folders(environ), **dict.fromkeys(SLOT_FACTS, lambda: "0")}
    for where, text, secret in texts:
        try:
            fill(text, known, secret=secret)
        except (ValueError, OperatorError) as error:
            yield where, (), str(error)


def _variable_findings(where: str, name: str) -> Iterator[Finding]:
    if not name or "=" in name or "\0" in name:
        yield where, (), "cannot be a variable's name; write one that is not empty and has no ="
    elif name in _RESERVED:
        yield where, (), f"cannot be given to workers: {name} is the daemon's own; remove it"
