from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisord_llm.config.diff import LIVE, ROLLS, Difference, PoolChange, compare, in_force
from supervisord_llm.config.schema import Config, PoolConfig
from tests.config.files import POOL, load_text


def difference(folder: Path, old: str, new: str) -> Difference:
    """What changes from one file's text to another's."""
    return compare(load_text(folder, old).config, load_text(folder, new).config)


def test_the_same_configuration_has_no_difference(tmp_path: Path) -> None:
    """Neither comments nor the order of pools nor a default that is written out are changes."""
    old = f'{POOL}[pool.q]\ncommand = ["w"]\n'
    new = f'[pool.q]\ncommand = ["w"]\nworkers = 1\n# a word\n{POOL}'
    assert (
        Difference(added=(), removed=(), changed={}, sentences=[], needs_restart=[])
    ) == difference(tmp_path, old, new)


def test_every_key_of_a_pool_is_live_or_rolls() -> None:
    """A key that is new in the schema must be in one of the two lists."""
    assert not LIVE & ROLLS
    assert set(PoolConfig.__struct_fields__) == LIVE | ROLLS


@pytest.mark.parametrize(
    ("text", "sentence", "rolls"),
    [
        ("queue.max_queued = 512", "queue.max_queued 256 -> 512", False),
        ('queue.deadline = "1h"', 'queue.deadline "10m" -> "1h"', False),
        ("sampling.temperature = 1", "sampling.temperature 0.0 -> 1.0", False),
        ("restart.max_restarts = 1", "restart.max_restarts 5 -> 1", False),
        ("workers = 2", "workers 1 -> 2", False),
        ("standby = 1", "standby 0 -> 1", False),
        ('models = ["gpt"]', 'models [] -> ["gpt"]', False),
        ("required = false", "required true -> false", False),
        ('load = "on_demand"', 'load "eager" -> "on_demand"', False),
        ('session_ttl = "1m"', 'session_ttl "30m" -> "1m"', False),
        ('heartbeat = "1s"', 'heartbeat "500ms" -> "1s"', True),
        ('max_line = "2MiB"', 'max_line "1MiB" -> "2MiB"', True),
        ("cancel.self_test = true", "cancel.self_test false -> true", True),
        ('health.token_stall = "1m"', 'health.token_stall "30s" -> "1m"', True),
        ('load_limits.stall = "2m"', 'load_limits.stall "1m" -> "2m"', True),
        ('limits.memory_hard = "8GiB"', 'limits.memory_hard "" -> "8GiB"', True),
        ('limits.cpus = ["0-1"]', 'limits.cpus "auto" -> ["0-1"]', True),
        ('pass_env = ["A"]', 'pass_env [] -> ["A"]', True),
        (f'pass_env = ["{60 * "A"}"]', "pass_env changed", True),
        ('env = { B = "s3cret", A = "s3cret" }', "env changed (A, B)", True),
        ('per_slot_env = [{ A = "s3cret" }]', 'per_slot_env [] -> [{ A = "…" }]', True),
    ],
)
def test_a_changed_key_is_told_with_its_values(
    tmp_path: Path, text: str, sentence: str, rolls: bool
) -> None:
    """The pool, the key, and both values as the file has them, unless they are long or secret."""
    for old, new in ((POOL, POOL + text), (POOL + text, POOL)):
        found = difference(tmp_path, old, new)
        key = sentence.split(maxsplit=1)[0]
        assert {"p": PoolChange((key,), rolls)} == found.changed
        assert ((), (), []) == (found.added, found.removed, found.needs_restart)
        assert "s3cret" not in repr(found)
    assert [f"pool p: {sentence}"] == difference(tmp_path, POOL, POOL + text).sentences


def test_another_command_replaces_the_workers(tmp_path: Path) -> None:
    """The one key without a default is compared like the others."""
    found = difference(tmp_path, POOL, POOL.replace("worker", "w"))
    assert {"p": PoolChange(("command",), rolls=True)} == found.changed
    assert ['pool p: command ["worker"] -> ["w"]'] == found.sentences


def test_another_value_of_a_variable_is_told_by_its_name(tmp_path: Path) -> None:
    """Old and new value are secrets, also where there is a list of tables."""
    old = f'{POOL}env = {{ A = "s3cret", B = "same" }}\nper_slot_env = [{{ C = "s3cret" }}]'
    found = difference(tmp_path, old, old.replace("s3cret", "0ther"))
    assert ["pool p: env changed (A)", "pool p: per_slot_env changed"] == found.sentences


def test_pools_come_and_go(tmp_path: Path) -> None:
    """A pool under another name is another pool; the one that stays is not touched."""
    rest = '[pool.stays]\ncommand = ["w"]\n'
    found = difference(tmp_path, POOL + rest, rest + POOL.replace("pool.p", "pool.n"))
    assert (("n",), ("p",), {}) == (found.added, found.removed, found.changed)
    assert ["pool p: removed", "pool n: added"] == found.sentences


def test_several_keys_of_a_pool_are_one_change(tmp_path: Path) -> None:
    """One that rolls is enough to replace the workers; each key has its own sentence."""
    found = difference(tmp_path, POOL, f'{POOL}workers = 2\ncancel.kill_grace = "1s"')
    assert {"p": PoolChange(("workers", "cancel.kill_grace"), rolls=True)} == found.changed
    assert ["pool p: workers 1 -> 2", 'pool p: cancel.kill_grace "2s" -> "1s"'] == found.sentences


def test_what_is_not_a_pools_needs_a_restart(tmp_path: Path) -> None:
    """It is named key by key, is no difference, and stays named until the daemon restarts."""
    old = load_text(tmp_path, f'{POOL}[[listen]]\n[[listen]]\naddress = "unix:/b"').config
    new = load_text(
        tmp_path,
        f'{POOL}workers = 2\n[daemon]\nshutdown_drain = "1s"\n[log]\nlevel = "debug"\n'
        '[[listen]]\nmode = "0660"\n',
    ).config
    keys = ["daemon.shutdown_drain", "log.level", "listen[0].mode", "listen[1]"]
    found = compare(old, new)
    assert (keys, ["pool p: workers 1 -> 2"]) == (found.needs_restart, found.sentences)
    now = in_force(old, new)
    assert (new.pool, old.daemon, old.listen) == (now.pool, now.daemon, now.listen)
    again = compare(now, new)
    assert (keys, []) == (again.needs_restart, again.sentences)
    assert "listen[1]" in compare(new, old).needs_restart


_pools = st.builds(
    PoolConfig,
    command=st.just(("w",)),
    workers=st.integers(1, 3),
    max_line=st.sampled_from([1024, 2048]),
    env=st.dictionaries(st.sampled_from("AB"), st.text(max_size=3), max_size=2),
)
_configs = st.builds(Config, pool=st.dictionaries(st.sampled_from("pqr"), _pools, max_size=3))


@given(_configs, _configs)
def test_a_difference_leads_from_the_old_to_the_new(old: Config, new: Config) -> None:
    """Taking the named pools and keys from the new configuration makes the old one the new one."""
    found = compare(old, new)
    pools: dict[str, Any] = {
        name: pool for name, pool in old.pool.items() if name not in found.removed
    }
    pools |= {name: new.pool[name] for name in found.added}
    for name, change in found.changed.items():
        taken = {key: getattr(new.pool[name], key) for key in change.keys}
        pools[name] = msgspec.structs.replace(pools[name], **taken)
    assert new.pool == pools
    assert bool(found.sentences) is (old.pool != new.pool)
