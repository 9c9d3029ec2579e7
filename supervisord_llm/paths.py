"""Where the daemon keeps its socket and its state, so that daemon and client agree without talking.

Nothing is created here. The alternative, one fixed system-wide folder, was not taken: the daemon
runs as a service with folders given by systemd and as an ordinary user without any privilege.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

from supervisord_llm.errors import OperatorError

NAME = "supervisord-llm"
"""The folder's name under the XDG base directories."""

CONTROL_SOCKET = "control.sock"
"""The control socket's name in the runtime directory."""

SYSTEM_SOCKET = f"/run/{NAME}/{CONTROL_SOCKET}"
"""The control socket of the service."""

SOCKET_VARIABLE = "SUPERVISORD_LLM_SOCKET"
"""The environment variable that moves the control socket elsewhere, for daemon and client."""


def runtime_dir(environ: Mapping[str, str]) -> Path:
    """The folder for sockets: it lasts until the user logs out or the service stops.

    ``$RUNTIME_DIRECTORY`` (set by systemd), else ``$XDG_RUNTIME_DIR/supervisord-llm``, else a
    folder of the user's under the temporary directory. That last one has a guessable name in a
    place where anybody may create things, so it is refused with `OperatorError` when it exists and
    is not a folder that this user alone can change.
    """
    if given := _given_by_systemd(environ, "RUNTIME_DIRECTORY"):
        return given
    if base := _absolute(environ, "XDG_RUNTIME_DIR"):
        return base / NAME
    temporary = _absolute(environ, "TMPDIR") or Path(tempfile.gettempdir())
    folder = temporary / f"{NAME}-{os.getuid()}"
    _refuse_foreign(folder)
    return folder


def data_dir(environ: Mapping[str, str]) -> Path:
    """The folder for state that outlives a boot.

    ``$STATE_DIRECTORY`` (set by systemd), else ``supervisord-llm`` under ``$XDG_STATE_HOME`` or
    ``~/.local/state``.
    """
    if given := _given_by_systemd(environ, "STATE_DIRECTORY"):
        return given
    if base := _absolute(environ, "XDG_STATE_HOME"):
        return base / NAME
    home = _absolute(environ, "HOME") or Path("~").expanduser()
    return home / ".local" / "state" / NAME


def control_socket(environ: Mapping[str, str]) -> Path:
    """Where the control socket is unless a configuration says otherwise.

    ``$SUPERVISORD_LLM_SOCKET`` (a path, or a listener's address ``unix:PATH``), else
    ``control.sock`` in `runtime_dir`, whose `OperatorError` passes through; where nothing is there,
    the service's, if it is.
    """
    if given := environ.get(SOCKET_VARIABLE):
        return Path(given.removeprefix("unix:"))
    own, service = runtime_dir(environ) / CONTROL_SOCKET, Path(SYSTEM_SOCKET)
    return service if service.exists() and not own.exists() else own


def _given_by_systemd(environ: Mapping[str, str], variable: str) -> Path | None:
    # A unit may ask for several folders; systemd separates them by colons, and ours is the first.
    first = environ.get(variable, "").split(":")[0]
    return Path(first) if first else None


def _absolute(environ: Mapping[str, str], variable: str) -> Path | None:
    # The XDG base directory specification has relative values ignored.
    value = environ.get(variable, "")
    return Path(value) if value.startswith("/") else None


def _refuse_foreign(folder: Path) -> None:
    try:
        found = folder.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(found.st_mode):
        fault = "it is not a folder"
    elif found.st_uid != os.getuid():
        fault = f"user {found.st_uid} owns it"
    elif found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        fault = "other users may write to it"
    else:
        return
    raise OperatorError(
        f"cannot use {folder} for the control socket: {fault}; "
        "remove it, or set XDG_RUNTIME_DIR to a folder of your own"
    )
