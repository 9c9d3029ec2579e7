from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisord_llm.config.decode import decode
from supervisord_llm.config.load import load
from supervisord_llm.config.problems import Problems
from supervisord_llm.config.schema import Config
from supervisord_llm.errors import ConfigError
from tests.config.files import POOL, environ, problems

LONG = "/" + 107 * "x"
COMMAND = 'a list, such as ["sllm-llama-worker", "--model", "FILE"]'
GROUPS = 'one of "control", "inference", "probe"'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "pool: cannot start without a pool; write a table [pool.NAME] with a command"),
        ("pool = 1", "pool: cannot use 1; write a table, [pool.NAME]"),
        ("[pool]\np = 1", "pool.p: cannot use 1; write a table, [pool.p]"),
        ("[pool.p]", f"pool.p.command: cannot be left out; write {COMMAND}"),
        ("[pool.p]\ncommand = []", f"pool.p.command: cannot be empty; write {COMMAND}"),
        ('[pool.p]\ncommand = "w"', f'pool.p.command: cannot use "w"; write {COMMAND}'),
        (
            '[pool.p]\ncommand = [""]',
            "pool.p.command[0]: cannot be empty; write the program to run",
        ),
        (
            '[pool.p]\ncommand = ["w\\u0000"]',
            'pool.p.command[0]: cannot use "w\\u0000"; write text in quotes, without a zero byte',
        ),
        (
            '[pool.p]\ncommand = ["w", "{package:no_such}"]',
            (
                'pool.p.command[1]: cannot fill in "{package:no_such}": no such package can be '
                "imported; install it where supervisord-llm is, under the name that `import` "
                "takes, or write the path"
            ),
        ),
        (
            '[pool.p]\ncommand = ["w", "}"]',
            'pool.p.command[1]: cannot fill in "}": a lone "}"; write "}}" for it',
        ),
        (
            '[pool."A b"]\ncommand = ["w"]',
            (
                'pool."A b": cannot be a pool\'s name; write 1 to 63 of a-z, 0-9, - and _, '
                "beginning with a letter or a digit"
            ),
        ),
        (
            f'[pool.{64 * "p"}]\ncommand = ["w"]',
            (
                f"pool.{64 * 'p'}: cannot be a pool's name; write 1 to 63 of a-z, 0-9, - and _, "
                "beginning with a letter or a digit"
            ),
        ),
        (
            f'{POOL}[[listen]]\naddress = "udp:127.0.0.1:80"',
            (
                'listen[0].address: cannot listen on "udp:127.0.0.1:80"; write "unix:" and the '
                'absolute path of a socket, or "tcp:", an IP address or localhost, and a port, '
                'such as "tcp:127.0.0.1:8000" or "tcp:[::1]:8000"'
            ),
        ),
        (
            f'{POOL}[[listen]]\naddress = "unix:c.sock"',
            (
                'listen[0].address: cannot listen on "unix:c.sock"; '
                'write "unix:" and the absolute path of a socket'
            ),
        ),
        (
            f'{POOL}[[listen]]\naddress = "unix:{LONG}"',
            (
                f'listen[0].address: cannot listen on "unix:{LONG[:54]}…": the path has 108 bytes, '
                "and a Unix socket's may have 107; choose a shorter one"
            ),
        ),
        (
            f'{POOL}[[listen]]\naddress = "unix:/a//s"\n[[listen]]\naddress = "unix:/a/s"',
            'listen[1].address: cannot listen on "unix:/a/s": listen[0] does; give each its own',
        ),
        (
            f'{POOL}[[listen]]\naddress = "unix:/{{slot}}"',
            (
                'listen[0].address: cannot fill in "{slot}": it differs from slot to slot; use it '
                "in command, env or per_slot_env of a pool"
            ),
        ),
        (
            f'{POOL}[[listen]]\nserve = ["metrics"]',
            f'listen[0].serve[0]: cannot use "metrics"; write {GROUPS}',
        ),
        (
            f"{POOL}[[listen]]\nserve = []",
            f"listen[0].serve: cannot be empty; write a list, each {GROUPS}",
        ),
        (
            f'{POOL}[[listen]]\nserve = ["probe", "control", "probe"]',
            "listen[0].serve: cannot serve a group twice; name each once",
        ),
        (
            f'{POOL}[[listen]]\nmode = "0888"',
            'listen[0].mode: cannot use "0888"; write permissions in octal digits, such as "0660"',
        ),
        (f"{POOL}[listen]", "listen: cannot use a table; write tables, each under [[listen]]"),
        (
            f'{POOL}[daemon]\nstate_dir = "state"',
            'daemon.state_dir: cannot use "state": relative; write an absolute path',
        ),
        (
            f'{POOL}[daemon]\nstate_dir = "{{data_dri}}"',
            'daemon.state_dir: cannot fill in "{data_dri}": unknown; did you mean "{data_dir}"?',
        ),
        (
            f'{POOL}[log]\nformat = "syslog"',
            'log.format: cannot use "syslog"; write one of "auto", "console", "journald", "json"',
        ),
        (
            f'{POOL}[log]\nfile = "events.log"',
            'log.file: cannot use "events.log": relative; write an absolute path',
        ),
        (
            f'{POOL}[log]\nfile = "/var/log/e"\nformat = "console"',
            'log.format: cannot be "console" with log.file, which is JSON; write "auto"',
        ),
        (
            f"{POOL}[log]\nrotate_keep = 0",
            "log.rotate_keep: cannot use 0; write a whole number from 1 to 1000",
        ),
        (
            "[pool.p\n",
            (
                "cannot read it as TOML: Expected ']' at the end of a table declaration "
                "(at line 1, column 8); mend it there"
            ),
        ),
        (
            f"x = {2000 * '['}",
            "cannot read it as TOML: nested too deeply; write at most a few levels",
        ),
    ],
)
def test_a_fault_of_the_file_is_told_with_its_key_and_remedy(
    tmp_path: Path, text: str, expected: str
) -> None:
    """One fault gives one sentence."""
    assert [expected] == problems(tmp_path, text)


def test_every_problem_is_told_at_once(tmp_path: Path) -> None:
    """Faulty keys hide neither each other nor the contradictions between the other keys."""
    found = problems(
        tmp_path,
        '[daemon]\nmax_loop_lag = 1\n[[listen]]\naddress = "unix:x"\n[pool.a]\ncomand = ["w"]\n'
        'workers = "x"\nmin_ready = 7\n[pool.b]\ncommand = ["{nope}"]\nmin_ready = 2\n',
    )
    paths = [problem.split(":")[0] for problem in found]
    assert [
        "daemon.max_loop_lag",
        "pool.a.comand",
        "pool.a.command",
        "pool.a.workers",
        "listen[0].address",
        "pool.b.min_ready",
        "pool.b.command[0]",
    ] == paths


def test_a_contradiction_with_an_unusable_key_is_not_made_up(tmp_path: Path) -> None:
    """Nothing is said about a key on the ground of another's default."""
    found = problems(tmp_path, f'{POOL}workers = "3"\nmin_ready = 3\nper_slot_env = [{{}}, {{}}]\n')
    assert ['pool.p.workers: cannot use "3"; write a whole number from 1 to 1024'] == found


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    """A file that is not there is a problem of its path."""
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "no.toml", environ(tmp_path))
    assert (
        f"{tmp_path}/no.toml: cannot read the file: no such file or directory; check its path and "
        "permissions"
    ) == str(caught.value)


def test_a_file_that_is_not_utf8_is_told_with_the_line(tmp_path: Path) -> None:
    """The line of the first wrong byte is named."""
    path = tmp_path / "c.toml"
    path.write_bytes(b"# one\n# t\xfcwo\n")
    with pytest.raises(ConfigError) as caught:
        load(path, environ(tmp_path))
    assert [
        "cannot read it as text: bad UTF-8 in line 2; save the file as UTF-8"
    ] == caught.value.problems


def test_a_runtime_folder_of_somebody_elses_is_a_problem(tmp_path: Path) -> None:
    """A folder under the temporary directory that others may write to is refused, not used."""
    folder = tmp_path / f"supervisord-llm-{os.getuid()}"
    folder.mkdir()
    folder.chmod(0o777)
    found = problems(tmp_path, POOL, XDG_RUNTIME_DIR="", TMPDIR=f"{tmp_path}")
    assert [
        (
            f"listen[0].address: cannot use {folder} for the control socket: other users may write "
            "to it; remove it, or set XDG_RUNTIME_DIR to a folder of your own"
        )
    ] == found


_keys = st.sampled_from(
    ["pool", "p", "command", "workers", "listen", "address", "env", "cancel", "limits", "cpus", "x"]
)
_toml = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_keys, inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(_keys, _toml, max_size=5))
def test_any_tables_give_a_configuration_or_problems(raw: dict[str, Any]) -> None:
    """Whatever a parser returns, decoding ends, and without problems the values are valid."""
    found = Problems()
    config = decode(Config, raw, found)
    if not found.sentences:
        assert config == msgspec.convert(msgspec.to_builtins(config), Config)
