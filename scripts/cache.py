"""The build cache: content-addressed folders outside the checkout.

A folder is named after a hash of everything that went into it, is filled under another name and
renamed when complete, so a folder that exists is whole. Two builders of the same thing meet at a
file lock; the second finds the first one's work. Mere modification times (what make would use)
were not taken: they differ in each fresh clone.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

KEPT_PER_KIND = 3
ABANDONED_SECONDS = 24 * 3600


def cache_root() -> Path:
    """Where the cache is: $SUPERVISORD_LLM_CACHE, else the user's cache folder."""
    if own := os.environ.get("SUPERVISORD_LLM_CACHE"):
        return Path(own).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser().absolute() / "supervisord-llm"


def digest(parts: Iterable[str | bytes]) -> str:
    """A short hash of the parts, each length-prefixed so that no two lists collide."""
    sha = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        sha.update(len(data).to_bytes(8, "little"))
        sha.update(data)
    return sha.hexdigest()[:20]


def tree_parts(root: Path) -> Iterator[str | bytes]:
    """Names and contents of all files below root, in a stable order."""
    for path in sorted(p for p in root.rglob("*") if p.is_file()):
        yield path.relative_to(root).as_posix()
        yield path.read_bytes()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file at path; say so when another build has it, then wait for that build."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"waiting for another build (lock {path})", file=sys.stderr)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def cached(kind: str, key: str, make: Callable[[Path], None]) -> Path:
    """The folder of this kind and key, made by ``make(empty_folder)`` if it is not there yet.

    If ``make`` raises, nothing is left behind. Of each kind the most recently used few are kept.
    """
    home = cache_root() / kind
    target = home / key
    if not target.is_dir():
        with locked(home / f".{key}.lock"):
            if not target.is_dir():
                _make_whole(home, target, make)
    os.utime(target)
    return target


def _make_whole(home: Path, target: Path, make: Callable[[Path], None]) -> None:
    staging = Path(tempfile.mkdtemp(prefix=".making-", dir=home))
    try:
        make(staging)
        staging.chmod(0o755)
        staging.rename(target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    _prune(home, keep=target)


def _prune(home: Path, keep: Path) -> None:
    entries = [p for p in home.iterdir() if p.is_dir() and not p.name.startswith(".") and p != keep]
    entries.sort(key=lambda p: p.stat().st_mtime, reverse=True)
    for old in entries[KEPT_PER_KIND - 1 :]:
        shutil.rmtree(old, ignore_errors=True)
    for abandoned in home.glob(".making-*"):  # its builder was killed
        if time.time() - abandoned.stat().st_mtime > ABANDONED_SECONDS:
            shutil.rmtree(abandoned, ignore_errors=True)


def place(source: Path, target: Path) -> bool:
    """Copy a file into place by rename (a running one keeps its old content); True if it changed.

    The modification time is kept, and with the size it tells that nothing needs to be done.
    """
    ours = source.stat()
    if target.is_file():
        theirs = target.stat()
        if (ours.st_size, ours.st_mtime_ns) == (theirs.st_size, theirs.st_mtime_ns):
            return False
    handle, name = tempfile.mkstemp(prefix=f".{target.name}-", dir=target.parent)
    os.close(handle)
    try:
        shutil.copy2(source, name)
        Path(name).replace(target)
    finally:
        Path(name).unlink(missing_ok=True)
    return True
