"""Build the native workers and put them beside the environment's scripts.

    python -m scripts.build_native [--sanitize none|address|thread] [--test]

Two levels are cached by content (see scripts/cache.py): llama.cpp's static libraries, which take
minutes and change with a pin, and our own binaries, which take seconds. Our own build tree stays
in the checkout (``build/``) and is incremental. Building llama.cpp as a part of our own tree would
be simpler, but every fresh clone and every sanitizer would pay for it again.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from scripts.cache import cached, digest, locked, place, tree_parts
from scripts.sources import LOGS, REQUIREMENTS, ROOT, catch2_include, llama_source
from scripts.steps import StepFailed, run_step
from scripts.toolchain import Toolchain, cpu_identity, find_toolchain, venv_tool

BINARIES = ("sllm-launch", "sllm-sim-worker", "sllm-llama-worker")

# Static and without OpenMP: a worker is one file that owns each of its threads. GGML_NATIVE is on
# because it doubles the speed, and safe because the CPU is a part of the cache's key; binaries
# are made where they run. No ccache: it is one more thing to install for what is cached here.
LLAMA_OPTIONS = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DBUILD_SHARED_LIBS=OFF",
    "-DGGML_NATIVE=ON",
    "-DGGML_OPENMP=OFF",
    "-DGGML_CCACHE=OFF",
    "-DLLAMA_BUILD_APP=OFF",
    "-DLLAMA_BUILD_COMMON=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_IS_DEV=OFF",
    "-DLLAMA_BUILD_SERVER=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_TOOLS=OFF",
    "-DLLAMA_OPENSSL=OFF",
)
_COMPILE_REMEDY = "If the compiler is too old, install a newer g++ or clang++ (C++20) or set $CXX."


@dataclass(frozen=True)
class Build:
    """One variant of our own build tree."""

    toolchain: Toolchain
    sanitize: str

    @property
    def tree(self) -> Path:
        """The incremental build tree of this variant."""
        return ROOT / "build" / self.sanitize

    def key(self) -> str:
        """Changes with our sources, the pins, this driver and the compiler."""
        return digest(
            [
                self.sanitize,
                llama_key(self.toolchain),
                *tree_parts(ROOT / "native"),
                Path(__file__).read_bytes(),
                (REQUIREMENTS / "catch2.txt").read_bytes(),
            ]
        )

    def compile(self, *, tests: bool) -> None:
        """Configure if needed and bring the tree up to date."""
        llama = llama_source()
        options = [
            f"-DCMAKE_BUILD_TYPE={'Release' if self.sanitize == 'none' else 'RelWithDebInfo'}",
            f"-DCMAKE_RUNTIME_OUTPUT_DIRECTORY={self.tree / 'bin'}",
            f"-DSLLM_SANITIZE={self.sanitize}",
            f"-DSLLM_JSON_INCLUDE={llama / 'vendor'}",
            f"-DSLLM_CATCH_INCLUDE={catch2_include() if tests else ''}",
        ]
        if self.sanitize == "none":
            prefix = llama_prefix(self.toolchain)
            options += [f"-DSLLM_LLAMA_SOURCE={llama}", f"-DSLLM_LLAMA_PREFIX={prefix}"]
        self._forget_other_compiler()
        title = "building the workers"
        title += "" if self.sanitize == "none" else f" with the {self.sanitize} sanitizer"
        print(title, file=sys.stderr, flush=True)
        configure_and_build(
            title, ROOT / "native", self.tree, options, self.toolchain, name=self.sanitize
        )

    def test(self) -> None:
        """Run the unit tests.

        Raises:
            StepFailed: one failed; its output was shown.
        """
        print(f"native unit tests ({self.sanitize})", file=sys.stderr, flush=True)
        argv = [venv_tool("ctest"), "--test-dir", str(self.tree), "--output-on-failure"]
        argv += ["--no-tests=error", "--parallel", str(os.cpu_count() or 1)]
        if subprocess.run(argv, check=False).returncode != 0:
            raise StepFailed(f"native unit tests failed ({self.sanitize}); their output is above")

    def _forget_other_compiler(self) -> None:
        """A tree remembers its compiler for ever; start over when that is another one now."""
        stamp = self.tree / "toolchain.txt"
        wanted = f"{self.toolchain.identity}\n{venv_tool('cmake')}"
        if stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
            return
        shutil.rmtree(self.tree, ignore_errors=True)
        self.tree.mkdir(parents=True)
        stamp.write_text(wanted, encoding="utf-8")


def llama_key(toolchain: Toolchain) -> str:
    """Changes with the pin, our options, the compiler and the CPU."""
    pin = (REQUIREMENTS / "llama.txt").read_bytes()
    return digest([pin, *LLAMA_OPTIONS, toolchain.identity, cpu_identity()])


def llama_prefix(toolchain: Toolchain) -> Path:
    """llama.cpp's headers and static libraries, installed."""

    def make(target: Path) -> None:
        toolchain.require_cxx20()
        title = "building llama.cpp"
        print(f"{title} (once; minutes on two cores)", file=sys.stderr, flush=True)
        tree = target / "tree"
        options = [*LLAMA_OPTIONS, f"-DCMAKE_INSTALL_PREFIX={target}"]
        configure_and_build(
            title, llama_source(), tree, options, toolchain, name="llama", target="llama"
        )
        run_step(
            "installing llama.cpp",
            [venv_tool("cmake"), "--install", tree],
            log=LOGS / "llama-install.log",
            remedy="Is the disk full?",
        )
        shutil.rmtree(tree)

    return cached("llama", llama_key(toolchain), make)


def configure_and_build(
    title: str,
    source: Path,
    tree: Path,
    options: list[str],
    toolchain: Toolchain,
    *,
    name: str,
    target: str = "all",
) -> None:
    """Run cmake, then ninja, on one tree.

    Raises:
        StepFailed: with the last lines of output and where the rest is.
    """
    cmake, ninja = venv_tool("cmake"), venv_tool("ninja")
    run_step(
        f"configuring for {title}",
        [
            *(cmake, "-S", str(source), "-B", str(tree), "-G", "Ninja"),
            *(f"-DCMAKE_MAKE_PROGRAM={ninja}", *toolchain.cmake_arguments(), *options),
        ],
        log=LOGS / f"{name}-configure.log",
        remedy=_COMPILE_REMEDY,
    )
    run_step(
        title,
        [ninja, "-C", str(tree), target],
        log=LOGS / f"{name}-build.log",
        remedy=_COMPILE_REMEDY,
        env={**os.environ, "NINJA_STATUS": "[%f/%t] "},
    )


def built(build: Build) -> Path:
    """The folder of the whole binaries, and nothing else; builds what is missing."""

    def make(target: Path) -> None:
        build.toolchain.require_cxx20()
        with locked(ROOT / "build" / f"{build.sanitize}.lock"):
            build.compile(tests=False)
            for name in BINARIES:
                shutil.copy2(build.tree / "bin" / name, target / name)

    return cached("workers", build.key(), make)


def install(build: Build) -> None:
    """Bring the binaries into the environment's scripts folder, building what is missing."""
    ready = built(build)
    scripts = Path(sysconfig.get_path("scripts"))
    changed = [name for name in BINARIES if place(ready / name, scripts / name)]
    if changed:
        print(f"installed {', '.join(changed)} in {scripts}", file=sys.stderr)


def main() -> int:
    """The command line; exit status 1 with a message where something failed."""
    parser = argparse.ArgumentParser(prog="build_native", description=__doc__.split("\n")[0])
    parser.add_argument("--sanitize", choices=["none", "address", "thread"], default="none")
    parser.add_argument("--test", action="store_true", help="build and run the unit tests")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        build = Build(find_toolchain(), options.sanitize)
        if options.sanitize == "none":
            install(build)
        if options.test:
            with locked(ROOT / "build" / f"{build.sanitize}.lock"):
                build.compile(tests=True)
                build.test()
    except StepFailed as failure:
        print(failure, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
