"""The file of API keys: who may use a listener, each by the hash of a key.

A line is ``NAME:HASH``; empty lines, and those that begin with ``#``, say nothing. The hash is the
SHA-256 of the key in hexadecimal digits. A slow hash, such as bcrypt, was not taken: it protects
secrets that can be guessed, and a key from ``new_key`` has 256 random bits, while every request
would pay for the slowness. Hence a key must be made here, not thought up.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from supervisord_llm.errors import OperatorError

MAX_FILE = 2**20
"""Bytes of a key file: more than ten thousand keys."""

PREFIX = "sllm-"
"""What a key begins with, so that people and scanners of leaked secrets recognise one."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HASH = re.compile(r"[0-9a-fA-F]{64}")


class ApiKey(msgspec.Struct, frozen=True):
    """A line of the file. Several may have the same name, for as long as a key is replaced."""

    name: str
    digest: bytes

    def __repr__(self) -> str:
        """Without the hash, which is nobody's business in a log or a traceback."""
        return f"ApiKey({self.name!r})"


ApiKeys = tuple[ApiKey, ...]
KeyFiles = Mapping[str, ApiKeys]
"""By the path of the file, as the configuration has it."""


def new_key() -> str:
    """Make a key of 256 random bits."""
    return PREFIX + secrets.token_urlsafe(32)


def hash_key(key: str) -> bytes:
    """What the file has of a key, or of whatever was presented as one."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def key_line(name: str, key: str) -> str:
    """The line for the file. Raises ``OperatorError`` if this cannot be a name."""
    if not _NAME.fullmatch(name):
        raise OperatorError(f"cannot use {name[:80]!r} as a key's name; {_NAME_REMEDY}")
    return f"{name}:{hash_key(key).hex()}"


_NAME_REMEDY = "write 1 to 64 of A-Z, a-z, 0-9, ., _ and -, beginning with a letter or a digit"


def read_keys(path: Path) -> ApiKeys:
    """Read a key file.

    Raises ``OperatorError``, which names the first line that is wrong but shows none: somebody may
    have written a key there instead of its hash.
    """
    text = _read(path)
    keys: dict[bytes, ApiKey] = {}
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()  # noqa: PLW2901 - the rest does not matter
        if not line or line.startswith("#"):
            continue
        name, _, digits = (part.strip() for part in line.partition(":"))
        if not _NAME.fullmatch(name):
            fault = f"it begins with no name and colon; {_NAME_REMEDY}"
        elif not _HASH.fullmatch(digits):
            fault = (
                "what follows the name is no hash; write the 64 hexadecimal digits that "
                "`supervisord-llm new-key` prints"
            )
        elif (digest := bytes.fromhex(digits)) in keys:
            fault = "an earlier line has the same hash; give each user a key of their own"
        else:
            keys[digest] = ApiKey(name, digest)
            continue
        raise OperatorError(f"cannot use line {number} of {path}: {fault}")
    return tuple(keys.values())


def append_line(path: Path, line: str) -> None:
    """Add a line to a key file, which is made, for its owner alone, if it is missing.

    Raises ``OperatorError`` if it cannot be written, or is no key file as it is.
    """
    if path.exists():
        read_keys(path)
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "r+b", buffering=0) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 1))
            unended = file.read(1) not in {b"", b"\n"}
            # In one write: whoever reads meanwhile finds all of the line or none.
            file.write(f"{chr(10) if unended else ''}{line}\n".encode())
    except OSError as error:
        raise OperatorError(
            f"cannot write {path}: {(error.strerror or 'unknown error').lower()}; check its path "
            "and permissions"
        ) from error


def describe_changes(old: KeyFiles, new: KeyFiles) -> Iterator[str]:
    """What reading the files of ``old`` again has changed, for people; names only."""
    for path, before in old.items():
        after = new.get(path, before)
        gone = {key.name for key in before if key not in after}
        come = {key.name for key in after if key not in before}
        told = [f"{name} {_verb(name in gone, name in come)}" for name in sorted(gone | come)]
        if told:
            yield f"API keys in {path}: {', '.join(told)}"


def _verb(gone: bool, come: bool) -> str:
    if gone and come:
        return "replaced"
    return "removed" if gone else "added"


def _read(path: Path) -> str:
    try:
        # A pipe in its place would hold up the daemon while it serves.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise OperatorError(
            f"cannot read {path}: {(error.strerror or 'unknown error').lower()}; check its path "
            "and permissions, or make one with `supervisord-llm new-key NAME --file FILE`"
        ) from error
    mode = os.fstat(fd).st_mode
    if not stat.S_ISREG(mode):
        os.close(fd)
        raise OperatorError(f"cannot read {path}: it is no regular file; name one")
    with os.fdopen(fd, "rb") as file:
        if mode & (stat.S_IROTH | stat.S_IWOTH):
            raise OperatorError(
                f"cannot use {path}: everybody on this machine may read or write it; run "
                f"`chmod o-rw {path}`"
            )
        content = file.read(MAX_FILE + 1)
    if len(content) > MAX_FILE:
        raise OperatorError(f"cannot use {path}: it is longer than 1 MiB; name a file of keys")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise OperatorError(f"cannot read {path}: it is not UTF-8 text; save it as that") from None
