from __future__ import annotations

from pathlib import Path

import pytest

from supervisord_llm.config.schema import PoolConfig
from tests.config.files import POOL, problems

POOL_KEYS = ", ".join(PoolConfig.__struct_fields__)
PLACEHOLDERS = (
    "{runtime_dir}, {data_dir}, {bin_dir}, {slot}, {index}, {threads}, {package:NAME}, and "
    '"{{" for a brace'
)
EMPTY_NAME = 'pool.p.env."": cannot be a variable\'s name; write one that is not empty and has no ='
CORES = '"auto" or a list, each cores, such as "0-3" or [0, 1, 2, 3]'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # Keys.
        ("worker = 2", 'pool.p.worker: unknown key; did you mean "workers"?'),
        (
            'cooperative_grace = "2s"',
            "pool.p.cooperative_grace: unknown here; move it to [pool.p.cancel]",
        ),
        (
            "cancel.zebra = 1",
            (
                "pool.p.cancel.zebra: unknown key; remove it (there are: cancellation, "
                "cooperative_grace, prefill_grace, terminate_grace, kill_grace, reap_grace, "
                "on_uncancellable, detach_timeout, self_test)"
            ),
        ),
        # Keys of what does not exist yet are unknown like any other.
        ("user = 0", f"pool.p.user: unknown key; remove it (there are: {POOL_KEYS})"),
        # Types and ranges.
        (
            'workers = "two"',
            'pool.p.workers: cannot use "two"; write a whole number from 1 to 1024',
        ),
        ("workers = true", "pool.p.workers: cannot use true; write a whole number from 1 to 1024"),
        ("workers = 1.0", "pool.p.workers: cannot use 1.0; write a whole number from 1 to 1024"),
        ("workers = 0", "pool.p.workers: cannot use 0; write a whole number from 1 to 1024"),
        (
            f"workers = 1{400 * '0'}",
            "pool.p.workers: cannot use so large a number; write a whole number from 1 to 1024",
        ),
        ('required = "yes"', 'pool.p.required: cannot use "yes"; write true or false'),
        (
            "required = 1979-05-27",
            "pool.p.required: cannot use a date or time; write true or false",
        ),
        (
            "restart.jitter = 1.5",
            "pool.p.restart.jitter: cannot use 1.5; write a number from 0 to 1",
        ),
        (
            "restart.jitter = nan",
            "pool.p.restart.jitter: cannot use nan; write a number from 0 to 1",
        ),
        (
            "sampling.temperature = inf",
            "pool.p.sampling.temperature: cannot use inf; write a number from 0 to 100",
        ),
        (
            "limits.nice = 99",
            "pool.p.limits.nice: cannot use 99; write a whole number from -20 to 19",
        ),
        (
            'dialect = "seriel"',
            (
                'pool.p.dialect: cannot use "seriel"; write one of "auto", "serial" '
                '(did you mean "serial"?)'
            ),
        ),
        ('cancel = "off"', 'pool.p.cancel: cannot use "off"; write a table, [pool.p.cancel]'),
        ("pass_env = [1]", "pool.p.pass_env[0]: cannot use 1; write text in quotes"),
        ('pass_env = "A"', 'pool.p.pass_env: cannot use "A"; write a list, each text in quotes'),
        ('env = "A"', 'pool.p.env: cannot use "A"; write a table, such as { NAME = "value" }'),
        # Durations and sizes.
        (
            'cancel.cooperative_grace = "2 secs"',
            'pool.p.cancel.cooperative_grace: cannot read "2 secs" as a duration; write "2s"',
        ),
        (
            "cancel.kill_grace = 2",
            (
                'pool.p.cancel.kill_grace: cannot use 2; write a duration from "0s" to "365d", '
                'such as "2s"'
            ),
        ),
        (
            'health.token_stall = "0s"',
            (
                'pool.p.health.token_stall: cannot use "0s"; write a duration from "1ms" to '
                '"365d", such as "2s"'
            ),
        ),
        (
            'max_line = "10B"',
            'pool.p.max_line: cannot use "10B"; write a size from "1KiB" to "1GiB", such as "1MiB"',
        ),
        # Between keys.
        (
            "min_ready = 2",
            "pool.p.min_ready: cannot be reached: 2 of 1 workers; write at most that",
        ),
        (
            "workers = 2\nper_slot_env = [{}]",
            (
                "pool.p.per_slot_env: cannot use 1 entry for workers = 2; "
                "write one table per slot, or none"
            ),
        ),
        (
            "workers = 2\nstandby = 1\nper_slot_env = [{}, {}]",
            (
                "pool.p.per_slot_env: cannot use 2 entries for workers = 2 and standby = 1; "
                "write one table per slot, or none"
            ),
        ),
        (
            'limits.cpus = ["0", [1]]',
            (
                "pool.p.limits.cpus: cannot use 2 entries for workers = 1; "
                "write one list of cores per slot, or none"
            ),
        ),
        (
            'restart = { backoff_initial = "5s", backoff_max = "1s" }',
            (
                'pool.p.restart.backoff_max: cannot be "1s", less than backoff_initial; '
                'write at least "5s"'
            ),
        ),
        (
            'limits = { memory_soft = "2GiB", memory_hard = "2048MiB" }',
            (
                'pool.p.limits.memory_soft: cannot be "2GiB", not less than memory_hard; '
                'write less than "2GiB"'
            ),
        ),
        (
            'cancel = { self_test = true, cancellation = "off" }',
            (
                'pool.p.cancel.self_test: cannot be true with cancellation = "off", which asks no '
                'worker; write false, or cancellation = "auto"'
            ),
        ),
        (
            'models = ["ok", "a b"]',
            (
                "pool.p.models[1]: cannot be a model's name; write 1 to 255 printable characters "
                "without a space"
            ),
        ),
        ('models = ["p"]', 'pool.p.models[0]: cannot use "p": it is its own; remove it'),
        (
            'models = ["q"]\n[pool.q]\ncommand = ["w"]',
            'pool.p.models[0]: cannot use "q": it is that of pool.q; remove it',
        ),
        (
            'models = ["m"]\n[pool.q]\ncommand = ["w"]\nmodels = ["n", "m"]',
            (
                'pool.q.models[1]: cannot use "m" twice: pool.p.models[0] is the same; '
                "keep one of them"
            ),
        ),
        (
            'exclusive = "gpu0"\n[pool.q]\ncommand = ["w"]\nexclusive = "gpu0"',
            (
                'pool.q.load: cannot be "eager": of the group "gpu0" only one pool is loaded at a '
                'time, and pool.p is eager; write "on_demand"'
            ),
        ),
        (
            'exclusive = "GPU 0"',
            (
                'pool.p.exclusive: cannot use "GPU 0"; write 1 to 63 of a-z, 0-9, - and _, such as '
                '"gpu0", or "" for none'
            ),
        ),
        # What may be left empty.
        (
            'limits.memory_hard = "8 gb"',
            'pool.p.limits.memory_hard: cannot read "8 gb" as a size; write "8GiB"',
        ),
        (
            'limits.memory_hard = "1KiB"',
            (
                'pool.p.limits.memory_hard: cannot use "1KiB"; write a size from "1MiB" to '
                '"1024TiB", such as "1MiB", or "" for none'
            ),
        ),
        (
            "limits.max_age = 0",
            (
                'pool.p.limits.max_age: cannot use 0; write a duration from "1s" to "365d", such '
                'as "2s", or "" for none'
            ),
        ),
        # Cores.
        ('limits.cpus = "atuo"', f'pool.p.limits.cpus: cannot use "atuo"; write {CORES}'),
        (
            'limits.cpus = ["3-1"]',
            (
                'pool.p.limits.cpus[0]: cannot read "3-1" as a list of cores; '
                'write numbers and ranges, such as "0-3,8"'
            ),
        ),
        (
            "limits.cpus = [[-1]]",
            "pool.p.limits.cpus[0][0]: cannot use -1; write a whole number from 0 to 8191",
        ),
        (
            "limits.cpus = [[]]",
            'pool.p.limits.cpus[0]: cannot be empty; write cores, such as "0-3" or [0, 1, 2, 3]',
        ),
        # Placeholders and variables.
        (
            'env = { A = "{thread}" }',
            'pool.p.env.A: cannot fill in "{thread}": unknown; did you mean "{threads}"?',
        ),
        (
            'env = { A = "s3cret{" }',
            'pool.p.env.A: cannot fill in the placeholders: a lone "{"; write "{{" for it',
        ),
        (
            'env = { A = "{s3cret}" }',
            f"pool.p.env.A: cannot fill in a placeholder: unknown; there are {PLACEHOLDERS}",
        ),
        ("env = { A = 5 }", "pool.p.env.A: cannot use a number; write text in quotes"),
        ("env = { A = true }", "pool.p.env.A: cannot use true or false; write text in quotes"),
        (
            'env = { A = "s3cret\\u0000" }',
            "pool.p.env.A: cannot use this text; write text in quotes, without a zero byte",
        ),
        (
            "per_slot_env = 1",
            (
                "pool.p.per_slot_env: cannot use 1; "
                'write a list, each a table, such as { NAME = "value" }'
            ),
        ),
        ('env = { "" = "x" }', EMPTY_NAME),
        (
            'env = { NOTIFY_SOCKET = "x" }',
            (
                "pool.p.env.NOTIFY_SOCKET: cannot be given to workers: NOTIFY_SOCKET is the "
                "daemon's own; remove it"
            ),
        ),
        (
            'pass_env = ["A=B"]',
            (
                "pool.p.pass_env[0]: cannot be a variable's name; "
                "write one that is not empty and has no ="
            ),
        ),
        (
            'per_slot_env = [{ A = "{port}" }]',
            (
                "pool.p.per_slot_env[0].A: cannot fill in a placeholder: unknown; there are "
                f"{PLACEHOLDERS}"
            ),
        ),
    ],
)
def test_a_fault_of_a_pool_is_told_with_its_key_and_remedy(
    tmp_path: Path, text: str, expected: str
) -> None:
    """One faulty key gives one sentence, which begins with the key's path."""
    assert [expected] == problems(tmp_path, POOL + text)
