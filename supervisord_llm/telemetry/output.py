"""Chooses where the event log is written, by the configuration and by what stderr is."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from supervisord_llm.config.schema import LogConfig
from supervisord_llm.telemetry.file import FileOutput
from supervisord_llm.telemetry.journal import IDENTIFIER, SOCKET, JournalOutput
from supervisord_llm.telemetry.log import Output
from supervisord_llm.telemetry.render import stderr_renderer
from supervisord_llm.telemetry.sink import LineSink


def open_output(
    config: LogConfig,
    *,
    journal: bool,
    fd: int = 2,
    environ: Mapping[str, str] = os.environ,
    socket: str = SOCKET,
) -> Output:
    """Open what the event log writes to; close it.

    Args:
        config: the table ``[log]``.
        journal: whether stderr is a stream to the journal.
        fd: stderr; it stays the caller's.
        environ: see `stderr_renderer`.
        socket: the journal's.

    Raises:
        OperatorError: if ``log.file`` cannot be opened.
    """
    if config.file:
        return FileOutput(
            Path(config.file),
            level=config.level,
            rotate_size=config.rotate_size,
            rotate_keep=config.rotate_keep,
            complain=lambda sentence: _complain(fd, sentence),
        )
    if config.format == "journald" or (config.format == "auto" and journal):
        return JournalOutput(LineSink(fd), level=config.level, path=socket)
    return stderr_renderer(style=config.format, level=config.level, fd=fd, environ=environ)


def _complain(fd: int, sentence: str) -> None:
    sink = LineSink(fd)
    sink.write(f"{IDENTIFIER}: {sentence}\n".encode(errors="backslashreplace"))
    sink.close()
