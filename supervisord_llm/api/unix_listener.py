"""A Unix socket to listen on: taken, or refused with a reason.

Which daemon owns an address is decided by an flock on a file next to the socket: it vanishes with
its holder, so a socket without a locked neighbour is stale, however its daemon died. Testing by
connecting alone was not taken as the rule, because a daemon that is too busy to accept looks dead.

The socket is made under another name, given its owner and mode, set to listen, and then renamed:
nobody ever sees it with other permissions, or finds it refusing connections.
"""

from __future__ import annotations

import errno
import fcntl
import grp
import os
import pwd
import socket
import stat
from contextlib import suppress
from pathlib import Path

from supervisord_llm.config.addresses import SUN_PATH_MAX
from supervisord_llm.config.schema import ListenConfig
from supervisord_llm.errors import AddressInUse, OperatorError

BACKLOG = 1024
"""Connections that the kernel holds until they are accepted."""


class UnixListener:
    """One listening socket, its lock, and the configuration it came from.

    Made by ``open_unix`` only. ``close`` is idempotent and unlinks the socket's name only
    while it still means this socket.
    """

    def __init__(self, config: ListenConfig, path: Path, sock: socket.socket, lock: int) -> None:
        self.config = config
        self.path = path
        self.address = f"unix:{path}"
        self.socket = sock
        self._lock = lock
        found = path.lstat()
        self._identity = (found.st_dev, found.st_ino)

    def close(self) -> None:
        """Stop listening and remove what is ours from the file system."""
        if self._lock < 0:
            return
        lock, self._lock = self._lock, -1
        self.socket.close()
        with suppress(FileNotFoundError):
            found = self.path.lstat()
            if (found.st_dev, found.st_ino) == self._identity:
                self.path.unlink()
        _release_lock(self.path, lock)


def open_unix(config: ListenConfig, runtime_dir: Path | None) -> UnixListener:
    """Take the socket that ``config`` names.

    ``runtime_dir`` is the one folder that may be created (mode 0700) if it is missing. Raises
    ``AddressInUse`` if another daemon serves the address, ``OperatorError`` for all else that the
    operator must mend.
    """
    path = Path(config.address.removeprefix("unix:"))
    _check_path(path)
    _prepare_folder(path.parent, runtime_dir)
    lock = _take_lock(path)
    try:
        _clear_way(path)
        sock = _bind(path, config)
        try:
            return UnixListener(config, path, sock, lock)
        except BaseException:
            sock.close()
            raise
    except BaseException:
        _release_lock(path, lock)
        raise


def _check_path(path: Path) -> None:
    if not path.is_absolute():
        raise OperatorError(f"cannot listen on unix:{path}: it is relative; write an absolute path")
    length = len(os.fsencode(path))
    if length > SUN_PATH_MAX:
        raise OperatorError(
            f"cannot listen on unix:{path}: the path has {length} bytes and a Unix socket's may "
            f"have {SUN_PATH_MAX}; choose a shorter one"
        )


def _prepare_folder(folder: Path, runtime_dir: Path | None) -> None:
    if folder == runtime_dir:
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise OperatorError(
                f"cannot create {folder} for the control socket: {error.strerror}; set "
                "XDG_RUNTIME_DIR to a folder of yours, or listen.address to another path"
            ) from error
        # In a folder that anybody may write to, somebody else can have been quicker.
        if folder.stat().st_uid not in {os.geteuid(), 0}:
            raise OperatorError(
                f"cannot use {folder} for the control socket: it belongs to another user; remove "
                "it, or set XDG_RUNTIME_DIR to a folder of yours"
            )
    if not folder.is_dir():
        raise OperatorError(
            f"cannot listen in {folder}: there is no such folder; create it, or change "
            "listen.address"
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OperatorError(
            f"cannot listen in {folder}: it is not writable by user id {os.geteuid()}; change its "
            "owner or mode, or listen.address"
        )


def _lock_path(path: Path) -> Path:
    return path.with_name(path.name + ".lock")


def _take_lock(path: Path) -> int:
    name = _lock_path(path)
    while True:
        try:
            fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise OperatorError(
                f"cannot open the lock file {name}: {error.strerror}; remove it, or change "
                "listen.address"
            ) from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(fd, 32).decode("ascii", "replace").strip() or "unknown"
            os.close(fd)
            raise AddressInUse(
                f"cannot listen on unix:{path}: another daemon (pid {holder}) serves it; stop that "
                "one, or give this one another listen.address"
            ) from None
        # The previous holder unlinks its lock file as its last act: a lock on a file without a name
        # excludes nobody.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(fd), name.stat()):
                os.ftruncate(fd, 0)
                os.write(fd, f"{os.getpid()}\n".encode())
                return fd
        os.close(fd)


def _release_lock(path: Path, lock: int) -> None:
    # The name goes first, while the lock still holds: see `_take_lock`.
    _lock_path(path).unlink(missing_ok=True)
    os.close(lock)


def _clear_way(path: Path) -> None:
    """Check that nothing but a dead daemon's socket has the name; the rename will replace that."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise OperatorError(
            f"cannot listen on unix:{path}: something that is not a socket has that name; move it "
            "away, or change listen.address"
        )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(0)
        # A program that is not this one holds no lock, so whether it lives is asked by connecting;
        # EAGAIN is a full backlog, which has an owner too.
        if probe.connect_ex(os.fspath(path)) in {0, errno.EAGAIN}:
            raise AddressInUse(
                f"cannot listen on unix:{path}: another program serves it; stop that one, or "
                "change listen.address"
            )


def _bind(path: Path, config: ListenConfig) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    new = path.with_name(path.name + ".new")
    try:
        folder = os.open(path.parent, os.O_DIRECTORY | os.O_CLOEXEC)
        before = os.umask(0o777)
        try:
            new.unlink(missing_ok=True)
            # By way of the folder's descriptor, the temporary name cannot be too long.
            sock.bind(f"/proc/self/fd/{folder}/{new.name}")
        finally:
            os.umask(before)
            os.close(folder)
        try:
            _give(new, config)
            sock.listen(BACKLOG)
            sock.settimeout(0)
            new.rename(path)
        except BaseException:
            new.unlink(missing_ok=True)
            raise
    except OSError as error:
        sock.close()
        raise OperatorError(
            f"cannot listen on unix:{path}: {error.strerror}; check the folder and listen.mode, "
            "owner and group"
        ) from error
    except BaseException:
        sock.close()
        raise
    return sock


def _give(path: Path, config: ListenConfig) -> None:
    uid = gid = -1
    if config.owner:
        try:
            uid = pwd.getpwnam(config.owner).pw_uid
        except KeyError:
            raise OperatorError(
                f"cannot give {path} to listen.owner {config.owner!r}: there is no such user"
            ) from None
    if config.group:
        try:
            gid = grp.getgrnam(config.group).gr_gid
        except KeyError:
            raise OperatorError(
                f"cannot give {path} to listen.group {config.group!r}: there is no such group"
            ) from None
    if (uid, gid) != (-1, -1):
        os.chown(path, uid, gid, follow_symlinks=False)
    path.chmod(int(config.mode, 8))
