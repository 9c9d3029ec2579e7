from __future__ import annotations

import os
from pathlib import Path

import pytest

from supervisord_llm import paths
from supervisord_llm.errors import OperatorError
from supervisord_llm.paths import control_socket, data_dir, runtime_dir

SYSTEMD = {"RUNTIME_DIRECTORY": "/run/a:/run/b", "STATE_DIRECTORY": "/var/lib/a:/var/lib/b"}
XDG = {"XDG_RUNTIME_DIR": "/run/user/1", "XDG_STATE_HOME": "/home/u/state", "HOME": "/home/u"}


def test_systemds_folders_come_first() -> None:
    """A service uses the folders of its unit, the first if there are several."""
    assert Path("/run/a") == runtime_dir(XDG | SYSTEMD)
    assert Path("/var/lib/a") == data_dir(XDG | SYSTEMD)


def test_a_users_folders_follow_the_base_directory_rules() -> None:
    """Under the XDG folders there is one of our name; relative values do not count."""
    assert Path("/run/user/1/supervisord-llm") == runtime_dir(XDG)
    assert Path("/home/u/state/supervisord-llm") == data_dir(XDG)
    expected = Path("/home/u/.local/state/supervisord-llm")
    assert expected == data_dir({"HOME": "/home/u", "XDG_STATE_HOME": "state"})


def test_without_a_runtime_folder_there_is_one_of_the_users_own(tmp_path: Path) -> None:
    """Its name holds the user's id, and it need not exist yet."""
    expected = tmp_path / f"supervisord-llm-{os.getuid()}"
    assert expected == runtime_dir({"TMPDIR": str(tmp_path)})
    expected.mkdir(mode=0o700)
    assert expected == runtime_dir({"TMPDIR": str(tmp_path)})


@pytest.mark.parametrize(
    ("make", "fault"),
    [
        (lambda folder: folder.write_text(""), "it is not a folder"),
        (lambda folder: folder.symlink_to("/"), "it is not a folder"),
        (lambda folder: (folder.mkdir(), folder.chmod(0o777)), "other users may write to it"),
    ],
)
def test_a_folder_that_others_could_change_is_refused(
    tmp_path: Path, make: object, fault: str
) -> None:
    """Whoever guesses the name first must not get our users' prompts."""
    assert callable(make)
    make(tmp_path / f"supervisord-llm-{os.getuid()}")
    with pytest.raises(OperatorError, match=f"for the control socket: {fault}; remove it, or set"):
        runtime_dir({"TMPDIR": str(tmp_path)})


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    """The message names the owner."""
    folder = tmp_path / f"supervisord-llm-{os.getuid()}"
    folder.mkdir()
    os.chown(folder, 12345, -1)
    with pytest.raises(OperatorError, match="user 12345 owns it"):
        runtime_dir({"TMPDIR": str(tmp_path)})


def test_the_variable_moves_the_socket() -> None:
    """It may be a path or a listener's address; without it the runtime folder holds the socket."""
    assert Path("/a/b.sock") == control_socket({"SUPERVISORD_LLM_SOCKET": "/a/b.sock"})
    assert Path("/a/b.sock") == control_socket({"SUPERVISORD_LLM_SOCKET": "unix:/a/b.sock"})
    assert Path("/run/user/1/supervisord-llm/control.sock") == control_socket(XDG)


def test_without_a_daemon_of_ones_own_the_services_socket_is_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has not started one wants to talk to the machine's; one's own comes first."""
    service, own = tmp_path / "service.sock", tmp_path / "supervisord-llm" / "control.sock"
    environ = {"XDG_RUNTIME_DIR": str(tmp_path)}
    monkeypatch.setattr(paths, "SYSTEM_SOCKET", str(service))
    assert own == control_socket(environ)
    service.touch()
    assert service == control_socket(environ)
    own.parent.mkdir()
    own.touch()
    assert own == control_socket(environ)
