from __future__ import annotations

import hashlib
import sys
import sysconfig
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

from supervisord_llm.config.placeholders import fill
from supervisord_llm.config.problems import ConfigWarning
from supervisord_llm.config.schema import CancelConfig, Config, LogConfig, PoolConfig
from tests.config.files import POOL, load_text, problems


def test_what_is_not_said_has_its_default(tmp_path: Path) -> None:
    """A pool's command is enough; the rest is as in the schema, with its folders filled in."""
    loaded = load_text(tmp_path, POOL)
    assert PoolConfig(command=("worker",)) == loaded.config.pool["p"]
    assert LogConfig() == loaded.config.log
    assert f"{tmp_path}/home/.local/state/supervisord-llm" == loaded.config.daemon.state_dir
    addresses = [listen.address for listen in loaded.config.listen]
    assert [f"unix:{tmp_path}/run/supervisord-llm/control.sock"] == addresses
    assert [] == loaded.warnings


def test_quantities_are_plain_seconds_and_bytes(tmp_path: Path) -> None:
    """What comes out can be encoded in events and replies, which subclasses of numbers cannot."""
    loaded = load_text(
        tmp_path,
        f'{POOL}max_line = "64KiB"\ncancel = {{ cooperative_grace = "250ms" }}\n'
        'restart.jitter = 1\nlimits.cpus = ["0-2"]',
    )
    pool = loaded.config.pool["p"]
    assert CancelConfig(cooperative_grace=0.25) == pool.cancel
    assert (int, 65536) == (type(pool.max_line), pool.max_line)
    assert (float, 1.0) == (type(pool.restart.jitter), pool.restart.jitter)
    assert ((0, 1, 2),) == pool.limits.cpus
    assert b'"cooperative_grace":0.25' in msgspec.json.encode(loaded.config)


def test_a_limit_that_is_left_empty_is_none(tmp_path: Path) -> None:
    """An empty text is no limit, and any other a quantity."""
    limits = (
        load_text(
            tmp_path,
            f'{POOL}limits = {{ memory_soft = "", memory_hard = "2MiB", max_age = "36h" }}',
        )
        .config.pool["p"]
        .limits
    )
    assert (None, 2 * 2**20, 129600.0) == (limits.memory_soft, limits.memory_hard, limits.max_age)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            'idle_ttl = "5m"',
            ConfigWarning(
                "load",
                'idle_ttl of pool p has no effect: with load = "eager" it stays loaded',
                'write load = "on_demand", or remove idle_ttl',
            ),
        ),
        (
            'exclusive = "gpu0"',
            ConfigWarning(
                "exclusive",
                'pool p is alone in the exclusive group "gpu0"',
                "give the pools that share its device the same name, or remove exclusive",
            ),
        ),
        (
            'cancel = { cancellation = "required", on_uncancellable = "auto" }',
            ConfigWarning(
                "cancel",
                'on_uncancellable of pool p has no effect: with cancellation = "required" workers '
                "that cannot be asked are refused",
                'write cancellation = "auto", or remove on_uncancellable',
            ),
        ),
    ],
)
def test_a_key_that_has_no_effect_is_warned_of(
    tmp_path: Path, text: str, expected: ConfigWarning
) -> None:
    """It stops nobody, but the operator hears that it is in vain."""
    assert [expected] == load_text(tmp_path, POOL + text).warnings


def test_pools_that_take_turns_on_a_device_are_as_meant(tmp_path: Path) -> None:
    """One is loaded with the daemon, the others on demand, each with a patience of its own."""
    loaded = load_text(
        tmp_path,
        f'{POOL}exclusive = "gpu0"\n'
        '[pool.q]\ncommand = ["w"]\nexclusive = "gpu0"\nload = "on_demand"\nidle_ttl = "1m"\n'
        '[pool.r]\ncommand = ["w"]\nexclusive = "gpu0"\nload = "on_demand"\n',
    )
    assert [] == loaded.warnings


def test_the_digest_is_that_of_the_file(tmp_path: Path) -> None:
    """The digest tells one version of a file from another."""
    assert hashlib.sha256(POOL.encode()).hexdigest() == load_text(tmp_path, POOL).digest


@pytest.mark.parametrize("prefix", ["", "unix:"])
def test_the_environment_moves_the_first_control_listener(tmp_path: Path, prefix: str) -> None:
    """Only the address of the first listener that serves control is replaced, braces and all."""
    loaded = load_text(
        tmp_path,
        f'{POOL}[[listen]]\naddress = "unix:/a"\nserve = ["probe"]\n'
        '[[listen]]\naddress = "unix:/b"\n[[listen]]\naddress = "unix:/c"\n',
        SUPERVISORD_LLM_SOCKET=f"{prefix}/x{{y}}/s",
    )
    addresses = [listen.address for listen in loaded.config.listen]
    assert ["unix:/a", "unix:/x{y}/s", "unix:/c"] == addresses


def test_a_wrong_address_from_the_environment_is_a_problem(tmp_path: Path) -> None:
    """What replaces the address must be one."""
    found = problems(tmp_path, POOL, SUPERVISORD_LLM_SOCKET="s.sock")
    assert [
        (
            'listen[0].address: cannot listen on "unix:s.sock"; '
            'write "unix:" and the absolute path of a socket'
        )
    ] == found


def test_a_daemon_without_a_control_listener_is_warned_of(tmp_path: Path) -> None:
    """It is allowed, but llmctl cannot reach it."""
    loaded = load_text(
        tmp_path,
        f'{POOL}[[listen]]\nserve = ["probe"]\naddress = "unix:/a"',
        SUPERVISORD_LLM_SOCKET="/b",
    )
    assert "unix:/a" == loaded.config.listen[0].address
    assert [
        ConfigWarning(
            "listen",
            "no listener serves control, so llmctl cannot reach this daemon",
            'add "control" to a listener\'s serve',
        )
    ] == loaded.warnings


def test_folders_are_filled_in_where_a_place_is_named(tmp_path: Path) -> None:
    """The folders of systemd go before those of the user."""
    loaded = load_text(
        tmp_path,
        f'{POOL}[daemon]\nstate_dir = "{{data_dir}}/{{{{s}}}}"\n'
        '[log]\nfile = "{data_dir}/e.log"\n'
        '[[listen]]\naddress = "unix:{runtime_dir}/s"',
        RUNTIME_DIRECTORY="/run/d",
        STATE_DIRECTORY="/var/lib/d",
    )
    assert "/var/lib/d/{s}" == loaded.config.daemon.state_dir
    assert "/var/lib/d/e.log" == loaded.config.log.file
    assert "unix:/run/d/s" == loaded.config.listen[0].address


def test_loading_creates_nothing(tmp_path: Path) -> None:
    """A check of a configuration leaves no trace."""
    load_text(tmp_path, POOL)
    assert [tmp_path / "c.toml"] == list(tmp_path.iterdir())


def test_a_package_and_our_scripts_have_their_folders() -> None:
    """{package:NAME} is the folder that the package is imported from, {bin_dir} that of scripts."""
    package = str(Path(msgspec.__file__).parent)
    assert f"{package}/x" == fill("{package:msgspec}/x", {})
    scripts = sysconfig.get_path("scripts")
    assert f"-{scripts}-" == fill("-{bin_dir}-", {"bin_dir": lambda: scripts})


@pytest.mark.parametrize("name", ["", "no_such", "json.decoder", "../x", "sys"])
def test_what_is_no_package_is_refused_without_importing_it(name: str) -> None:
    """A module without a folder, a dotted name, a path and nothing at all are no packages."""
    with pytest.raises(ValueError, match="no such package can be imported"):
        fill(f"{{package:{name}}}", {})


def test_a_module_without_a_spec_is_no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python cannot say where such a module is, and that is told like any other absence."""
    bare = ModuleType("specless")
    bare.__spec__ = None
    monkeypatch.setitem(sys.modules, "specless", bare)
    with pytest.raises(ValueError, match="no such package can be imported"):
        fill("{package:specless}", {})


def test_every_number_of_the_schema_has_both_bounds() -> None:
    """The decoder relies on it to refuse nan and infinity."""
    unbounded: list[str] = []

    def look(kind: msgspec.inspect.Type, path: str) -> None:
        match kind:
            case msgspec.inspect.Metadata():
                look(kind.type, path)
            case msgspec.inspect.StructType():
                for field in kind.fields:
                    look(field.type, f"{path}.{field.name}")
            case msgspec.inspect.DictType():
                look(kind.value_type, path)
            case msgspec.inspect.VarTupleType():
                look(kind.item_type, path)
            case msgspec.inspect.UnionType():
                for each in kind.types:
                    look(each, path)
            case msgspec.inspect.IntType() | msgspec.inspect.FloatType():
                if kind.ge is None or kind.le is None:
                    unbounded.append(path)
            case _:
                seen.append(path)

    seen: list[str] = []
    look(msgspec.inspect.type_info(Config), "")
    assert [] == unbounded
    assert ".pool.command" in seen
