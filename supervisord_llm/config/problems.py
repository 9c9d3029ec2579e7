"""What is wrong with a configuration, gathered so that an operator mends it in one go."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

import msgspec

Finding = tuple[str, tuple[str, ...], str]
"""The key that is named, the keys that it depends on, and the sentence."""

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


class ConfigWarning(msgspec.Struct, frozen=True):
    """Something that works, but hardly as meant."""

    topic: str
    message: str
    remedy: str


class Problems:
    """Sentences about keys, in the order of their discovery."""

    def __init__(self) -> None:
        self.sentences: list[str] = []
        self._paths: set[str] = set()

    def add(self, path: str, text: str) -> None:
        """Record a problem of the key at ``path``."""
        self.sentences.append(f"{path}: {text}")
        self._paths.add(path)

    def touch(self, paths: Iterable[str]) -> bool:
        """Whether one of the keys, or something in it, has a problem already."""
        wanted = tuple(paths)
        return any(
            found == path or found.startswith((f"{path}.", f"{path}["))
            for found in self._paths
            for path in wanted
        )


def quote(text: str) -> str:
    """The text as a string of TOML."""
    # JSON's strings are TOML's too, but for the one control character that JSON leaves alone.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def join(path: str, key: str) -> str:
    """The path of a key in the table at ``path``, as TOML writes it."""
    name = key if _BARE_KEY.fullmatch(key) else quote(key)
    return f"{path}.{name}" if path else name
