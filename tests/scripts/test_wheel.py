"""The wheel in an environment that has nothing else, as `pip install` would put it there."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from scripts.environment import wheelhouse
from scripts.sources import ROOT
from scripts.wheel import make_wheel
from tests.daemon.running import running
from tests.harness import write_config


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    return make_wheel(tmp_path_factory.mktemp("dist"))


def test_it_says_which_machines_it_fits_and_what_is_in_it(wheel: Path) -> None:
    """Any Python, this platform; with the workers, and the licences of what they are made of."""
    assert wheel.name.endswith("-py3-none-linux_" + os.uname().machine + ".whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        [tags] = [name for name in names if name.endswith(".dist-info/WHEEL")]
        assert b"Root-Is-Purelib: false" in archive.read(tags)
    for worker in ("sllm-launch", "sllm-llama-worker", "sllm-sim-worker"):
        assert any(name.endswith(f".data/scripts/{worker}") for name in names)
    for library in ("llama.cpp", "nlohmann-json"):
        assert any(name.endswith(f"/LICENSE.{library}") for name in names)
    assert not [name for name in names if name.startswith(("tests/", "scripts/", "tools/"))]


def test_it_works_in_an_empty_environment(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Installed without a network, it checks a configuration and serves from real workers."""
    venv.create(tmp_path / "empty", symlinks=True, with_pip=False)
    programs = tmp_path / "empty" / "bin"
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "--python", str(programs / "python"), "install"),
            *("--quiet", "--no-index", "--no-compile", "--disable-pip-version-check"),
            *("--find-links", str(wheelhouse()), str(wheel)),
        ],
        check=True,
        env={**os.environ, "PIP_CONSTRAINT": ""},
    )
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setattr("tests.daemon.running.PROGRAM", programs / "supervisord-llm")
    config = write_config(tmp_path)
    argv = [str(programs / "supervisord-llm"), "check", "--config", str(config)]
    checked = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert f"{programs}/sllm-sim-worker" in checked.stdout
    with running(tmp_path, config) as served:
        body = {"pool": "sim", "prompt": "x sim.tokens=3"}
        assert '"completed"' in served.client.post("/api/v1/generate", json=body).text


def test_there_is_no_wheel_without_workers(tmp_path: Path) -> None:
    """Who asks pip for one directly is told what to do."""
    argv = [
        *(sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"),
        *("--disable-pip-version-check", "--wheel-dir", str(tmp_path), str(ROOT)),
    ]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "it would have no native workers; use `make wheel`" in done.stdout + done.stderr
