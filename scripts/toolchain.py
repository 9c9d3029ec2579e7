"""The compilers, and what about this machine decides whether an object file fits it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from scripts.steps import StepFailed

_INSTALL = "install g++ or clang++ (C++20), or name one in $CXX (and its C compiler in $CC)"
_PROBE = "#include <concepts>\n#include <span>\n#include <stop_token>\nint main() {}\n"


@dataclass(frozen=True)
class Toolchain:
    """A C and a C++ compiler, and the identity that goes into cache keys."""

    cc: str
    cxx: str
    identity: str

    def cmake_arguments(self) -> list[str]:
        """The choice, as cmake is told it."""
        return [f"-DCMAKE_C_COMPILER={self.cc}", f"-DCMAKE_CXX_COMPILER={self.cxx}"]

    def require_cxx20(self) -> None:
        """Compile a C++20 probe.

        Raises:
            StepFailed: the compiler cannot, with its own words and the remedy.
        """
        probe = subprocess.run(
            [self.cxx, "-std=c++20", "-fsyntax-only", "-x", "c++", "-"],
            input=_PROBE,
            capture_output=True,
            text=True,
            check=False,
        )
        if probe.returncode != 0:
            said = "\n".join(f"  {line}" for line in probe.stderr.splitlines()[:8])
            raise StepFailed(f"cannot compile C++20 with {self.cxx}:\n{said}\n{_INSTALL}")


def find_toolchain() -> Toolchain:
    """$CXX and $CC where set, else the usual names.

    Raises:
        StepFailed: there is none.
    """
    cxx = _find("CXX", ["c++", "g++", "clang++"])
    cc = _find("CC", ["cc", "gcc", "clang"])
    identity = "\n".join(_version(path) for path in (cc, cxx))
    return Toolchain(cc, cxx, identity)


def cpu_identity() -> str:
    """What -march=native depends on: the CPU's model and instruction sets."""
    wanted = ("model name", "flags", "CPU part", "Features", "isa")
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return os.uname().machine
    first = text.split("\n\n", 1)[0]
    facts = [line for line in first.splitlines() if line.split("\t")[0].strip() in wanted]
    return "\n".join([os.uname().machine, *facts])


def venv_tool(name: str) -> str:
    """A build tool of the virtual environment that runs this script.

    Raises:
        StepFailed: it is not installed there.
    """
    path = Path(sysconfig.get_path("scripts")) / name
    if not path.exists():
        raise StepFailed(f"cannot find {path}; run this through `make build`, which installs it")
    return str(path)


def _find(variable: str, names: list[str]) -> str:
    if chosen := os.environ.get(variable):
        names = [chosen]
    for name in names:
        if path := shutil.which(name):
            return path
    what = f"${variable} = {names[0]!r}" if chosen else " or ".join(names)
    raise StepFailed(f"cannot find a compiler ({what}); {_INSTALL}")


def _version(compiler: str) -> str:
    done = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False)
    return f"{os.path.realpath(compiler)}\n{done.stdout}"
