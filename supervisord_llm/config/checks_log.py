"""What the table ``[log]`` can get wrong."""

from __future__ import annotations

import os
from collections.abc import Iterator

from supervisord_llm.config.schema import LogConfig
from supervisord_llm.config.units import show


def log_findings(log: LogConfig) -> Iterator[tuple[str, tuple[str, ...], str]]:
    """Yield the key that is wrong, the keys that it depends on, and what to do."""
    if log.file and not os.path.isabs(log.file):  # noqa: PTH117 - text that may be anything
        yield "log.file", (), f"cannot use {show(log.file)}: relative; write an absolute path"
    if log.file and log.format not in {"auto", "json"}:
        text = f'cannot be "{log.format}" with log.file, which is JSON; write "auto"'
        yield "log.format", ("log.file",), text
