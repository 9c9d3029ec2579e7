from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisord_llm.config.dump import effective
from supervisord_llm.config.load import load
from supervisord_llm.config.toml import render
from tests.config.files import POOL, environ, load_text


def test_quantities_are_shown_as_they_are_written(tmp_path: Path) -> None:
    """Durations, sizes and cores are text with a unit, and everything is plain JSON."""
    text = (
        f'{POOL}max_line = "64KiB"\ncancel.kill_grace = "1m30s"\n'
        'limits = { cpus = [[3, 1, 2]], memory_hard = "1024MiB" }'
    )
    shown: Any = effective(load_text(tmp_path, text).config)
    pool = shown["pool"]["p"]
    assert "64KiB" == pool["max_line"]
    assert ["1-3"] == pool["limits"]["cpus"]
    assert ("1GiB", "") == (pool["limits"]["memory_hard"], pool["limits"]["max_age"])
    assert "90s" == pool["cancel"]["kill_grace"]
    assert shown == msgspec.json.decode(msgspec.json.encode(shown))


def test_values_of_variables_are_not_shown(tmp_path: Path) -> None:
    """A variable's name is shown, its value may be a secret."""
    text = f'{POOL}env = {{ KEY = "s3cret" }}\nper_slot_env = [{{ TOKEN = "s3cret" }}]'
    shown: Any = effective(load_text(tmp_path, text).config)
    assert {"KEY": "…"} == shown["pool"]["p"]["env"]
    assert [{"TOKEN": "…"}] == shown["pool"]["p"]["per_slot_env"]
    assert "s3cret" not in repr(shown)


def test_what_is_shown_can_be_loaded_again(tmp_path: Path) -> None:
    """The configuration in force, written as TOML, is the same configuration."""
    loaded = load_text(
        tmp_path, f'{POOL}workers = 2\nlimits = {{ cpus = ["0", "1-2"], max_age = "1h" }}'
    )
    again = tmp_path / "again.toml"
    again.write_text(render(effective(loaded.config)))
    assert loaded.config == load(again, environ(tmp_path)).config


_values = st.recursive(
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=15,
)


@given(st.dictionaries(st.text(), _values, max_size=4))
def test_toml_that_was_written_reads_the_same(table: dict[str, object]) -> None:
    """Any nesting of tables, lists and odd keys survives."""
    assert table == tomllib.loads(render(table))


def test_what_toml_has_no_word_for_is_refused() -> None:
    """Nothing is written that would not be read."""
    with pytest.raises(TypeError, match="cannot write NoneType as TOML"):
        render({"a": None})
