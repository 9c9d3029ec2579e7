"""What a configuration that was read again changes, for the runtime and for people.

Only pools change while the daemon serves. What a worker is started with, or was judged by from its
start, takes effect with its next process, so the pool's workers are replaced; the rest is live.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

import msgspec
from msgspec import inspect

from supervisord_llm.config.dump import plain
from supervisord_llm.config.problems import join
from supervisord_llm.config.schema import Config, PoolConfig
from supervisord_llm.config.toml import render_value
from supervisord_llm.config.wording import unwrap
from supervisord_llm.core.words import PoolName

LIVE = frozenset({
    "chat_template",
    "exclusive",
    "idle_ttl",
    "load",
    "min_ready",
    "models",
    "queue",
    "reload",
    "required",
    "restart",
    "sampling",
    "session_ttl",
    "standby",
    "workers",
})  # fmt: skip
"""Keys and tables of a pool that take effect without a new worker."""

ROLLS = frozenset({
    "cancel",
    "command",
    "dialect",
    "env",
    "health",
    "heartbeat",
    "limits",
    "load_limits",
    "max_line",
    "pass_env",
    "per_slot_env",
    "stdin_timeout",
})  # fmt: skip
"""Those that take effect with a worker's next process."""

_SHOWN_MAX = 60
"""Characters; of a longer value a sentence says only that it changed."""


class PoolChange(msgspec.Struct, frozen=True):
    """A pool that is in both configurations and not the same."""

    keys: tuple[str, ...]
    """What differs, below the pool: ``queue.max_queued``; in the order of the schema."""
    rolls: bool
    """Whether the pool's workers must be replaced for it."""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """From one configuration to another."""

    added: tuple[PoolName, ...]
    removed: tuple[PoolName, ...]
    changed: Mapping[PoolName, PoolChange]
    sentences: list[str]
    """What takes effect, for people; without any value of an environment variable."""
    needs_restart: list[str]
    """Keys outside the pools: they take effect when the daemon is started again."""


class _Leaf(msgspec.Struct, frozen=True):
    """A key with a different value."""

    path: str
    kind: inspect.Type
    old: Any
    new: Any


def compare(old: Config, new: Config) -> Difference:
    """Find what differs between the configuration in force and a valid new one."""
    added = tuple(name for name in new.pool if name not in old.pool)
    removed = tuple(name for name in old.pool if name not in new.pool)
    sentences = [f"pool {name}: removed" for name in removed]
    sentences += [f"pool {name}: added" for name in added]
    changed: dict[PoolName, PoolChange] = {}
    for name, pool in new.pool.items():
        if name in added or pool == old.pool[name]:
            continue
        leaves = list(_leaves(_fields(PoolConfig), old.pool[name], pool, ""))
        keys = tuple(leaf.path for leaf in leaves)
        changed[name] = PoolChange(keys, any(key.partition(".")[0] in ROLLS for key in keys))
        sentences += [f"pool {name}: {_sentence(leaf)}" for leaf in leaves]
    return Difference(
        added=added,
        removed=removed,
        changed=changed,
        sentences=sentences,
        needs_restart=list(_outside_pools(old, new)),
    )


def in_force(old: Config, new: Config) -> Config:
    """The configuration once the difference took effect: the new pools, the rest as it was.

    The next comparison with it goes on naming what needs a restart.
    """
    return msgspec.structs.replace(old, pool=new.pool)


def _fields(kind: type[msgspec.Struct]) -> inspect.StructType:
    return cast("inspect.StructType", inspect.type_info(kind))


def _outside_pools(old: Config, new: Config) -> Iterator[str]:
    for field in _fields(Config).fields:
        before, after = getattr(old, field.name), getattr(new, field.name)
        kind = unwrap(field.type)[0]
        match kind:
            case inspect.StructType():
                leaves = _leaves(kind, before, after, field.encode_name)
                yield from (leaf.path for leaf in leaves)
            case inspect.VarTupleType(item_type=inspect.StructType() as item):
                for index in range(max(len(before), len(after))):
                    path = f"{field.encode_name}[{index}]"
                    if index < min(len(before), len(after)):
                        leaves = _leaves(item, before[index], after[index], path)
                        yield from (leaf.path for leaf in leaves)
                    else:
                        yield path
            case _:
                pass  # the pools


def _leaves(
    kind: inspect.StructType, old: msgspec.Struct, new: msgspec.Struct, path: str
) -> Iterator[_Leaf]:
    """Every key below ``path`` with another value; tables are gone into, lists are not."""
    for field in kind.fields:
        before, after = getattr(old, field.name), getattr(new, field.name)
        where = join(path, field.encode_name)
        below = unwrap(field.type)[0]
        if isinstance(below, inspect.StructType):
            yield from _leaves(below, before, after, where)
        elif before != after:
            yield _Leaf(where, field.type, before, after)


def _sentence(leaf: _Leaf) -> str:
    if isinstance(leaf.old, dict):
        names = sorted(
            name
            for name in leaf.old.keys() | leaf.new.keys()
            if leaf.old.get(name) != leaf.new.get(name)
        )
        return f"{leaf.path} changed ({', '.join(names)})"
    before, after = (render_value(plain(leaf.kind, value)) for value in (leaf.old, leaf.new))
    # Values that look the same are secrets, which must not be seen, or files with another content.
    if before == after or max(len(before), len(after)) > _SHOWN_MAX:
        return f"{leaf.path} changed"
    return f"{leaf.path} {before} -> {after}"
