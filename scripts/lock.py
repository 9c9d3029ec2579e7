"""Refresh the locked requirements: ``make lock``.

The Python locks follow the bounds of pyproject.toml; the native and model pins keep their version
(edit it in their file first to move it) and get the hash of what the index serves for it.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from scripts.sources import REQUIREMENTS, ROOT
from scripts.toolchain import venv_tool

_COMPILE = (
    *("--quiet", "--upgrade", "--generate-hashes", "--allow-unsafe", "--strip-extras"),
    # The lock is for every machine: nothing of this one's settings goes into it.
    *("--no-emit-index-url", "--no-emit-trusted-host", "--no-emit-find-links", "--no-emit-options"),
)
_PINS = {
    "llama.txt": ("--no-binary", ":all:", "--no-build-isolation"),
    "catch2.txt": ("--only-binary", ":all:", "--python-version", "3.12"),
    "model.txt": ("--only-binary", ":all:"),
}


def compile_lock(name: str, *options: str) -> None:
    """Write one lock of the package's own dependencies."""
    argv = [venv_tool("pip-compile"), *_COMPILE, *options]
    argv += ["--output-file", f"requirements/{name}", "pyproject.toml", "requirements/tools.in"]
    environment = {k: v for k, v in os.environ.items() if k != "PIP_FIND_LINKS"}
    environment["CUSTOM_COMPILE_COMMAND"] = "make lock"
    subprocess.run(argv, check=True, cwd=ROOT, env=environment)


def refresh_pin(name: str, options: tuple[str, ...]) -> None:
    """Write the hash of the pinned version into its file; the comments stay."""
    path = REQUIREMENTS / name
    lines = path.read_text(encoding="utf-8").splitlines()
    comments = [line for line in lines if line.startswith("#")]
    (pin,) = (line.split(" ")[0] for line in lines if not line.startswith("#"))
    with TemporaryDirectory() as folder:
        argv = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder]
        subprocess.run([*argv, *options, pin], check=True)
        (archive,) = Path(folder).iterdir()
        sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()
    path.write_text("\n".join([*comments, f"{pin} --hash=sha256:{sha256}", ""]), encoding="utf-8")


def main() -> None:
    """Refresh all of them."""
    if sys.version_info[:2] != (3, 11):
        # A newer one would leave out what the oldest supported Python needs.
        sys.exit(
            "cannot lock with this Python; use the oldest supported one: make PYTHON=python3.11"
        )
    compile_lock("base.txt")
    compile_lock("dev.txt", "--extra", "dev", "--constraint", "requirements/base.txt")
    for name, options in _PINS.items():
        refresh_pin(name, options)


if __name__ == "__main__":
    main()
