from __future__ import annotations

import fcntl
import grp
import os
import pwd
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from supervisord_llm.api.listeners import open_listeners
from supervisord_llm.config.addresses import SUN_PATH_MAX
from supervisord_llm.config.schema import ListenConfig
from supervisord_llm.errors import AddressInUse, OperatorError


def listen(path: Path, **more: str) -> ListenConfig:
    """Return the configuration of a listener."""
    return ListenConfig(address=f"unix:{path}", **more)  # type: ignore[arg-type]


def can_connect(path: Path) -> bool:
    """Whether somebody listens there."""
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0


def stale_socket(path: Path) -> None:
    """Leave what a dead daemon leaves."""
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
        dead.listen()


def test_the_socket_listens_with_the_configured_mode(tmp_path: Path) -> None:
    """What the configuration says is what the file system shows, whatever the umask."""
    path = tmp_path / "c.sock"
    before = os.umask(0o077)
    try:
        with open_listeners([listen(path, mode="0666")]):
            found = path.stat()
    finally:
        os.umask(before)
    assert (0o666, True) == (stat.S_IMODE(found.st_mode), stat.S_ISSOCK(found.st_mode))


def test_nothing_is_left_at_the_end(tmp_path: Path, no_fd_leak: None) -> None:
    """Socket, lock and descriptors are gone when the block ends."""
    with open_listeners([listen(tmp_path / "c.sock"), listen(tmp_path / "d.sock")]):
        present = sorted(entry.name for entry in tmp_path.iterdir())
    assert ["c.sock", "c.sock.lock", "d.sock", "d.sock.lock"] == present
    assert [] == list(tmp_path.iterdir())


def test_a_dead_daemons_socket_is_replaced(tmp_path: Path) -> None:
    """A socket file that nobody listens on, and an unlocked lock file, are no obstacle."""
    path = tmp_path / "c.sock"
    stale_socket(path)
    (tmp_path / "c.sock.lock").write_text("1\n")
    (tmp_path / "c.sock.new").write_text("left by a start that was killed")
    with open_listeners([listen(path)]):
        assert can_connect(path)


def test_a_live_daemons_socket_is_not_taken(tmp_path: Path) -> None:
    """The second daemon is told the first one's pid, and the first one keeps serving."""
    path = tmp_path / "c.sock"
    with open_listeners([listen(path)]):
        expected = f"cannot listen on unix:{path}: another daemon \\(pid {os.getpid()}\\) serves it"
        with pytest.raises(AddressInUse, match=expected), open_listeners([listen(path)]):
            pass
        assert can_connect(path)


def test_the_lock_ends_with_its_holder(tmp_path: Path) -> None:
    """A daemon that is killed outright leaves nothing that stops the next one."""
    path = tmp_path / "c.sock"
    program = (
        "import os, signal, sys\n"
        "from supervisord_llm.api.listeners import open_listeners\n"
        "from supervisord_llm.config.schema import ListenConfig\n"
        "with open_listeners([ListenConfig(address=f'unix:{sys.argv[1]}')]):\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(path)], check=False)
    assert path.exists()
    with open_listeners([listen(path)]):
        assert can_connect(path)


def test_a_lock_on_a_file_that_was_just_removed_counts_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The holder before unlinks its lock file between our opening and our locking it."""
    path = tmp_path / "c.sock"
    lock, names = fcntl.flock, [tmp_path / "c.sock.lock"]

    def late(fd: int, operation: int) -> None:
        if names:
            names.pop().unlink()
        lock(fd, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    with (
        open_listeners([listen(path)]),
        pytest.raises(AddressInUse, match="another daemon"),
        open_listeners([listen(path)]),
    ):
        pass


def test_nobody_may_connect_before_the_mode_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its birth and its final mode the socket has no permission at all, and no name yet."""
    path, chmod, seen = tmp_path / "c.sock", Path.chmod, []

    def watched(self: Path, mode: int) -> None:
        seen.append((stat.S_IMODE(self.stat().st_mode), path.exists()))
        chmod(self, mode)

    monkeypatch.setattr(Path, "chmod", watched)
    with open_listeners([listen(path)]):
        assert [(0, False)] == seen


def test_another_programs_live_socket_is_not_taken(tmp_path: Path) -> None:
    """A listener that holds no lock of ours is recognised by its answering."""
    path = tmp_path / "c.sock"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        with (
            pytest.raises(AddressInUse, match="another program serves it"),
            open_listeners([listen(path)]),
        ):
            pass
        assert can_connect(path)


def test_a_file_in_the_way_stays(tmp_path: Path) -> None:
    """Something that is not a socket is named, not replaced."""
    path = tmp_path / "c.sock"
    path.write_text("precious")
    with pytest.raises(OperatorError, match="not a socket"), open_listeners([listen(path)]):
        pass
    assert "precious" == path.read_text()
    assert [path] == list(tmp_path.iterdir())


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    """An operator's folder is the operator's to create."""
    path = tmp_path / "absent" / "c.sock"
    with (
        pytest.raises(OperatorError, match="there is no such folder; create it"),
        open_listeners([listen(path)]),
    ):
        pass


def test_the_runtime_folder_is_created_for_its_owner_alone(tmp_path: Path) -> None:
    """The daemon's own folder is made where it is missing, mode 0700."""
    folder = tmp_path / "run"
    with open_listeners([listen(folder / "c.sock")], runtime_dir=folder):
        assert 0o700 == stat.S_IMODE(folder.stat().st_mode)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_runtime_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    """Whoever owns the folder could put a socket of his own there."""
    folder = tmp_path / "run"
    folder.mkdir()
    os.chown(folder, 65534, 65534)
    with (
        pytest.raises(OperatorError, match="belongs to another user"),
        open_listeners([listen(folder / "c.sock")], runtime_dir=folder),
    ):
        pass


def test_a_folder_without_permission_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may write everywhere, so the kernel's answer is forced here."""
    monkeypatch.setattr(os, "access", lambda *_: False)
    with (
        pytest.raises(OperatorError, match="not writable by user id"),
        open_listeners([listen(tmp_path / "c.sock")]),
    ):
        pass


def test_a_path_that_is_too_long_is_refused(tmp_path: Path) -> None:
    """The kernel's limit is checked on the final name, with both lengths in the message."""
    path = tmp_path / ("x" * SUN_PATH_MAX)
    with (
        pytest.raises(OperatorError, match=f"may have {SUN_PATH_MAX}; choose a shorter"),
        open_listeners([listen(path)]),
    ):
        pass


def test_the_longest_path_works(tmp_path: Path) -> None:
    """The temporary name is not bound by the limit of the final one."""
    room = SUN_PATH_MAX - len(os.fsencode(tmp_path)) - 1
    if room < 1:
        pytest.skip("the temporary folder's own path is too long")
    path = tmp_path / ("x" * room)
    with open_listeners([listen(path)]):
        assert can_connect(path)


@pytest.mark.parametrize(
    ("key", "message"), [("owner", "there is no such user"), ("group", "there is no such group")]
)
def test_an_unknown_owner_is_named(tmp_path: Path, key: str, message: str) -> None:
    """Nothing serves, and nothing is left, when the socket cannot be given to whom it should be."""
    with (
        pytest.raises(OperatorError, match=message),
        open_listeners([listen(tmp_path / "c.sock", **{key: "no-such-name"})]),
    ):
        pass
    assert [] == list(tmp_path.glob("*.sock*"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a socket away")
def test_the_socket_is_given_to_its_owner(tmp_path: Path) -> None:
    """Owner and group are set by name."""
    path = tmp_path / "c.sock"
    owner, group = pwd.getpwuid(65534).pw_name, grp.getgrgid(65534).gr_name
    with open_listeners([listen(path, owner=owner, group=group, mode="0620")]):
        found = path.stat()
    assert (65534, 65534, 0o620) == (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode))


def test_one_bad_listener_opens_none(tmp_path: Path, no_fd_leak: None) -> None:
    """A listener that was opened before the bad one is closed again."""
    good, bad = listen(tmp_path / "c.sock"), listen(tmp_path / "absent" / "d.sock")
    with pytest.raises(OperatorError), open_listeners([good, bad]):
        pass
    assert [] == list(tmp_path.iterdir())


def test_only_its_own_socket_is_unlinked(tmp_path: Path) -> None:
    """A socket that took the name meanwhile belongs to somebody else."""
    path = tmp_path / "c.sock"
    with open_listeners([listen(path)]):
        path.unlink()
        stale_socket(path)
    assert path.exists()
