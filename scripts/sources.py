"""The pinned sources of the native build, fetched by pip and checked against their hashes.

They come as Python packages because a package index is the one download service that a Python
project needs anyway, with its mirrors, proxies and hash checks; nothing of theirs is installed.
"""

from __future__ import annotations

import os
import sys
import tarfile
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

from scripts.cache import cached, digest
from scripts.steps import run_step

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "requirements"
LOGS = ROOT / "build" / "logs"

# What building the library needs: the repository's tools, tests, models and docs are 90 % of it.
_LLAMA_PARTS = (
    "CMakeLists.txt",
    "LICENSE",
    "cmake",
    "ggml",
    "include",
    "licenses",
    "src",
    "vendor",
)


def llama_source() -> Path:
    """The folder of llama.cpp's sources (with nlohmann/json.hpp below vendor/)."""
    return cached("sources", f"llama-{_pin('llama.txt')}", _fetch_llama)


def catch2_include() -> Path:
    """The folder that has catch2/catch.hpp."""
    return cached("sources", f"catch2-{_pin('catch2.txt')}", _fetch_catch2)


def _pin(name: str) -> str:
    return digest([(REQUIREMENTS / name).read_bytes()])


def _fetch_llama(target: Path) -> None:
    with TemporaryDirectory(prefix=".fetching-", dir=target.parent) as folder:
        # Looking at a source distribution runs its build backend, which the environment has.
        options = ["--no-binary", "llama-cpp-python", "--no-build-isolation"]
        archive = _download("llama.txt", Path(folder), options)
        with tarfile.open(archive) as tar:
            for member in tar:
                _, _, inner = member.name.partition("/vendor/llama.cpp/")
                if inner.split("/", 1)[0] in _LLAMA_PARTS and (member.isfile() or member.isdir()):
                    member.name = inner
                    tar.extract(member, target)


def _fetch_catch2(target: Path) -> None:
    with TemporaryDirectory(prefix=".fetching-", dir=target.parent) as folder:
        # The wheel holds one header and no code, but asks for a newer Python than we do.
        options = ["--only-binary", ":all:", "--python-version", "3.12"]
        archive = _download("catch2.txt", Path(folder), options)
        with zipfile.ZipFile(archive) as wheel:
            text = wheel.read("catch2/install/include/catch2/catch.hpp")
    header = target / "catch2" / "catch.hpp"
    header.parent.mkdir()
    header.write_bytes(text)


def _download(requirement: str, folder: Path, options: list[str]) -> Path:
    print(f"fetching {_first_name(requirement)}", file=sys.stderr, flush=True)
    run_step(
        f"fetching {_first_name(requirement)}",
        [
            *(sys.executable, "-m", "pip", "download", "--no-deps", "--require-hashes"),
            *("--disable-pip-version-check", "--no-input", "--progress-bar", "off"),
            *("--dest", str(folder / "got"), *options, "-r", str(REQUIREMENTS / requirement)),
        ],
        log=LOGS / f"fetch-{requirement}.log",
        remedy="Check the network and pip's settings (index, proxy), then run the same again.",
        env={**os.environ, "PIP_CONSTRAINT": ""},
    )
    (archive,) = (folder / "got").iterdir()
    return archive


def _first_name(requirement: str) -> str:
    lines = (REQUIREMENTS / requirement).read_text(encoding="utf-8").splitlines()
    return next(line.split(" ")[0] for line in lines if not line.startswith("#"))
