"""Make a wheel with the native workers in it: ``python -m scripts.wheel [--out FOLDER]``.

It fits machines like this one: the same architecture and CPU features (the workers are compiled for
the CPU that compiles them, see build_native.py) and a C library as new as this one's. Its Python
part fits every Python that the package does.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from scripts.build_native import Build, built
from scripts.sources import LOGS, ROOT, llama_source
from scripts.steps import StepFailed, run_step
from scripts.toolchain import find_toolchain
from scripts.wheel_hook import LICENSES_VARIABLE, WORKERS_VARIABLE

LICENSES = {
    "LICENSE.llama.cpp": "LICENSE",
    "LICENSE.nlohmann-json": "licenses/LICENSE-jsonhpp",
}
"""Of what is linked into the workers: the name in the wheel, the file in llama.cpp's sources."""


def make_wheel(out: Path) -> Path:
    """Build the wheel into a folder; its path.

    Raises:
        StepFailed: a step failed; carries the last lines of its output.
    """
    workers = built(Build(find_toolchain(), "none"))
    with TemporaryDirectory(prefix="supervisord-llm-wheel-") as folder:
        licenses, made = Path(folder) / "licenses", Path(folder) / "made"
        licenses.mkdir()
        for name, source in LICENSES.items():
            shutil.copyfile(llama_source() / source, licenses / name)
        run_step(
            "making the wheel",
            [
                *(sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"),
                *("--disable-pip-version-check", "--no-input", "--wheel-dir", str(made), str(ROOT)),
            ],
            log=LOGS / "wheel.log",
            remedy="Run `make build` first.",
            env={
                **os.environ,
                WORKERS_VARIABLE: os.fspath(workers),
                LICENSES_VARIABLE: os.fspath(licenses),
            },
        )
        (wheel,) = made.iterdir()
        out.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy2(wheel, out / wheel.name))


def main() -> int:
    """The command line; exit status 1 with a message where something failed."""
    parser = argparse.ArgumentParser(prog="wheel", description=__doc__.split(":")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="by default dist/")
    try:
        print(make_wheel(parser.parse_args().out))
    except StepFailed as failure:
        print(failure, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
