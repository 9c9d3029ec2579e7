"""The API keys in force: whose is the one that a client presents?"""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from supervisord_llm.config.keys import ApiKeys, hash_key


class KeyRings:
    """What each key file holds; read again, it is put in here, for listeners that serve already."""

    def __init__(self, files: Mapping[str, ApiKeys] | None = None) -> None:
        """Begin with these files, by their paths."""
        self._files = dict(files or {})

    def replace(self, files: Mapping[str, ApiKeys]) -> None:
        """Put what was read again in the place of what these files held."""
        self._files.update(files)

    def owner(self, file: str, presented: str) -> str | None:
        """Whose key of a file this is; ``None`` if nobody's.

        How long it takes says nothing about any key: hashes are compared, each in constant time,
        and always all of them.
        """
        digest = hash_key(presented)
        owner = None
        for key in self._files.get(file, ()):
            if hmac.compare_digest(key.digest, digest):
                owner = key.name
        return owner
