"""The virtual environment of an installed program: the wheel, its dependencies, nothing of a build.

Dependencies are the locked ones, downloaded once with their hashes checked and kept in the build
cache; installing itself needs no network. The environment is made where it is staged and then told
where it will be: a virtual environment knows its own path in the first lines of its scripts.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from scripts.cache import cached, digest
from scripts.sources import LOGS, REQUIREMENTS, ROOT
from scripts.steps import StepFailed, run_step

PACKAGE = "supervisord-llm"
HIDDEN = ("/home", "/root", "/run/user", "/tmp", "/var/tmp")  # noqa: S108 - named, not used
"""What the unit hides from the service (ProtectHome=, PrivateTmp=)."""

_PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input")
_QUIET = {**os.environ, "PIP_CONSTRAINT": ""}


def runtime_requirements() -> str:
    """Those of requirements/base.txt that the program needs to run, with their hashes."""
    text = (REQUIREMENTS / "base.txt").read_text(encoding="utf-8")
    blocks = re.split(r"(?m)^(?=[A-Za-z0-9])", text)[1:]
    wanted = _closure()
    return "".join(each for each in blocks if _normal(each.partition("==")[0]) in wanted)


def wheelhouse() -> Path:
    """A folder with the wheels of `runtime_requirements`, for this Python."""
    requirements = runtime_requirements()

    def make(target: Path) -> None:
        listed = target / "requirements.txt"
        listed.write_text(requirements, encoding="utf-8")
        run_step(
            "fetching Python packages",
            [
                *(*_PIP, "download", "--no-deps", "--require-hashes", "--only-binary", ":all:"),
                *("--progress-bar", "off", "--dest", str(target), "-r", str(listed)),
            ],
            log=LOGS / "wheelhouse.log",
            remedy="Check the network and pip's settings (index, proxy), then run the same again.",
            env=_QUIET,
        )

    python = f"{sys.implementation.cache_tag}-{sysconfig.get_platform()}"
    return cached("wheelhouse", digest([requirements, python]), make)


def interpreter() -> Path:
    """The Python for the installed program: this one, or its like that the service can see.

    Raises:
        StepFailed: there is none.
    """
    own = Path(sys.base_prefix, "bin", f"python3.{sys.version_info.minor}")
    others = [Path(folder) / own.name for folder in ("/usr/local/bin", "/usr/bin")]
    for each in (own, *others):
        real = each.resolve()
        if real.exists() and not any(real.is_relative_to(folder) for folder in HIDDEN):
            return each
    raise StepFailed(
        f"cannot install with {own}: the service does not see that folder, and there is no "
        f"{others[-1]}; install Python for the whole machine, and run `make clean`, then "
        "`make install PYTHON=` with its path"
    )


def make_environment(staged: Path, final: Path, wheel: Path) -> None:
    """Make the environment at ``staged``, in place of an older one, to be used at ``final``.

    Raises:
        StepFailed: a step failed; carries the last lines of its output.
    """
    python = interpreter()
    house = wheelhouse()
    new = staged.with_name(f".{staged.name}.installing")
    shutil.rmtree(new, ignore_errors=True)
    new.parent.mkdir(parents=True, exist_ok=True)
    try:
        run_step(
            "making the environment",
            [python, "-m", "venv", "--without-pip", str(new)],
            log=LOGS / "environment.log",
            remedy="Install Python's venv module (Debian: apt-get install python3-venv).",
        )
        version = wheel.name.split("-")[1]
        run_step(
            "installing the wheel",
            [
                *(*_PIP, "--python", str(new / "bin" / "python3"), "install", "--no-index"),
                *("--no-compile", "--no-warn-script-location", "--ignore-installed"),
                *("--find-links", str(house), "--find-links", str(wheel.parent.absolute())),
                f"{PACKAGE}=={version}",
            ],
            log=LOGS / "install.log",
            remedy="Run `make wheel` again.",
            env=_QUIET,
        )
        _relocate(new, final)
        _compile(new, final, python)
        shutil.rmtree(staged, ignore_errors=True)
        new.rename(staged)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _relocate(staged: Path, final: Path) -> None:
    """Let the scripts know where they will be, and drop what only an interactive shell uses."""
    for script in (staged / "bin").iterdir():
        if script.name.lower().startswith("activate"):
            script.unlink()
            continue
        if script.is_symlink():
            continue
        content = script.read_bytes()
        if content.startswith(b"#!"):
            script.write_bytes(content.replace(os.fsencode(staged), os.fsencode(final)))
    config = staged / "pyvenv.cfg"
    lines = config.read_text(encoding="utf-8").splitlines()
    # The command that made it is of no use to anybody, and names the staging folder.
    kept = [line for line in lines if not line.startswith("command")]
    config.write_text("\n".join(kept) + "\n", encoding="utf-8")


def _compile(staged: Path, final: Path, python: Path) -> None:
    """Compile ahead: the service may not write there, and would compile at each start."""
    subprocess.run(
        [
            *(python, "-m", "compileall", "-q", "-s", str(staged), "-p", str(final)),
            str(staged / "lib"),
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )


def _closure() -> set[str]:
    """All that the program needs, by normal names: its file's word, then what is installed says."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        left: list[str] = tomllib.load(file)["project"]["dependencies"]
    found: set[str] = set()
    while left:
        needed = Requirement(left.pop())
        name = _normal(needed.name)
        if name in found or not (needed.marker is None or needed.marker.evaluate({"extra": ""})):
            continue
        found.add(name)
        left += metadata.requires(name) or ()
    return found


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
