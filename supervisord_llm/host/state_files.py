"""Small files in the state directory, one for each slot: private, and never half written.

Nothing is synced to disk: what is kept here matters when the daemon crashed or was restarted. A
file that a crash of the machine tore is told of and removed.
"""

from __future__ import annotations

import contextlib
import os
import stat
import urllib.parse
from pathlib import Path
from typing import TypeVar

import msgspec

from supervisord_llm.errors import OperatorError

Kept = TypeVar("Kept", bound=msgspec.Struct)


def path_of(folder: Path, slot: str) -> Path:
    """Where a slot's file is, whatever is in the slot's name."""
    return folder / f"{urllib.parse.quote(slot, safe='')}.json"


def slot_of(path: Path) -> str:
    """Whose file it is."""
    return urllib.parse.unquote(path.stem)


def write(path: Path, content: bytes) -> None:
    """Put a file, for this user alone, in place of what was there.

    Raises:
        OSError: if it cannot be written; what was there before is unharmed.
    """
    temporary = path.with_suffix(".new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with open(os.open(temporary, flags, 0o600), "wb") as file:  # noqa: PTH123 - with a mode
            file.write(content)
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def read_all(folder: Path, kind: type[Kept], advice: str) -> tuple[dict[Path, Kept], list[str]]:
    """Every file of a folder, in the order of their names; those that are torn are removed.

    Args:
        folder: where to look; there need not be one.
        kind: what the files hold.
        advice: what to do about one that was removed.

    Returns:
        What could be read, and one sentence for each file that could not.
    """
    kept, problems = {}, []
    for path in sorted(folder.glob("*.json")):
        try:
            kept[path] = msgspec.json.decode(path.read_bytes(), type=kind)
        except OSError as error:
            problems.append(f"cannot read {path}: {error.strerror}; remove it")
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            path.unlink(missing_ok=True)
            problems.append(f"cannot read {path}: {error}; it was removed, {advice}")
    return kept, problems


def refuse_foreign(descriptor: int, folder: Path, what: str) -> None:
    """Insist on a folder that only this user can write to.

    Whoever can write there can have a process killed by the daemon's user, or a slot kept down.

    Args:
        descriptor: the folder, open.
        folder: its name, for the message.
        what: what is kept there, for the message.

    Raises:
        OperatorError: if others can.
    """
    status = os.fstat(descriptor)
    if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise OperatorError(
            f"cannot keep {what} in {folder}: other users may write to it; "
            "make it this user's own with mode 0700"
        )
