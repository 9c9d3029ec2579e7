"""Configuration files for the tests of this room."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisord_llm.config.load import LoadedConfig, load
from supervisord_llm.errors import ConfigError

POOL = '[pool.p]\ncommand = ["worker"]\n'
"""The least that is valid."""


def environ(folder: Path) -> dict[str, str]:
    """An environment whose folders are all in ``folder``."""
    return {
        "HOME": f"{folder}/home",
        "PATH": f"{folder}/bin",
        "XDG_RUNTIME_DIR": f"{folder}/run",
    }


def load_text(folder: Path, text: str, **variables: str) -> LoadedConfig:
    """Load a file with this text."""
    path = folder / "c.toml"
    path.write_text(text)
    return load(path, {**environ(folder), **variables})


def problems(folder: Path, text: str, **variables: str) -> list[str]:
    """What is wrong with a file of this text."""
    with pytest.raises(ConfigError) as caught:
        load_text(folder, text, **variables)
    return caught.value.problems
