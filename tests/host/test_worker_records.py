from __future__ import annotations

import os
import stat
from pathlib import Path

import msgspec
import pytest

from supervisord_llm.errors import OperatorError
from supervisord_llm.host import leftovers, tree
from supervisord_llm.host.leftovers import WorkerRecord, WorkerRecords
from tests.host.crashed import SLEEP, crashed


def test_records_are_for_this_user_alone(records: WorkerRecords, folder: Path) -> None:
    """Folder 0700, file 0600, whatever the umask is."""
    previous = os.umask(0)
    try:
        with crashed(records, SLEEP):
            (path,) = folder.iterdir()
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
    finally:
        os.umask(previous)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_slots_record_is_replaced_and_forgotten(records: WorkerRecords, folder: Path) -> None:
    """One file for each slot; forgetting twice is the same as once."""
    leader = tree.read(os.getpid())
    assert leader is not None
    for generation in (1, 2):
        records.write(slot="a/b.0", generation=generation, leader=leader, relatives={7: 8})
    (path,) = folder.iterdir()
    record = msgspec.json.decode(path.read_bytes(), type=WorkerRecord)
    assert (record.mark, record.pid, record.relatives) == ("a/b.0/2", leader.pid, {7: 8})
    records.forget("a/b.0")
    records.forget("a/b.0")
    assert list(folder.iterdir()) == []


def test_a_write_that_fails_leaves_the_old_record(
    records: WorkerRecords, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk costs the news, not the record, and leaves no half file."""
    with crashed(records, SLEEP) as worker:
        (path,) = folder.iterdir()
        before = path.read_bytes()

        def refuse(*_: object) -> Path:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", refuse)
            with pytest.raises(OSError, match="No space left"):
                worker.record(records, relatives={1: 2})
        assert [each.name for each in folder.iterdir()] == [path.name]
        assert path.read_bytes() == before


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"slot": "smollm.0", "gen',
        b"\xff\xfe",
        b"[]",
        b'{"slot": "smollm.0"}',
        b'{"slot":"s.0","generation":1,"pid":"1","start_time":1,"group":1,"boot_id":"b"}',
    ],
)
def test_a_torn_record_is_told_of_and_removed(
    records: WorkerRecords, folder: Path, content: bytes
) -> None:
    """It does not keep the daemon from starting, nor hide the others."""
    with crashed(records, SLEEP) as worker:
        (folder / "torn.0.json").write_bytes(content)
        found = records.find_leftovers()
        (problem,) = found.problems
        assert problem.startswith(f"cannot read {folder / 'torn.0.json'}: ")
        assert "it was removed" in problem
        assert not (folder / "torn.0.json").exists()
        assert [each.record.pid for each in found.leftovers] == [worker.process.pid]


def test_a_record_that_cannot_be_read_is_told_of_and_left(
    records: WorkerRecords, folder: Path
) -> None:
    """What is no file of ours is not ours to remove."""
    (folder / "odd.json").mkdir()
    found = records.find_leftovers()
    assert found.problems == (f"cannot read {folder / 'odd.json'}: Is a directory; remove it",)
    assert (folder / "odd.json").exists()


def test_what_is_no_record_is_ignored(records: WorkerRecords, folder: Path) -> None:
    """As the beginnings of a file that a crash left."""
    (folder / "smollm.0.new").write_bytes(b"{")
    assert records.find_leftovers() == leftovers.Found((), ())


# The folder ---------------------------------------------------------------------------------------


def test_two_daemons_cannot_share_a_state_directory(records: WorkerRecords, tmp_path: Path) -> None:
    """The second would take the workers of the first for leftovers."""
    second = WorkerRecords(tmp_path / "state")
    with pytest.raises(OperatorError, match="another daemon does; stop that one, or give each"):
        second.__enter__()


def test_a_state_directory_is_free_again_after_its_daemon(tmp_path: Path, no_fd_leak: None) -> None:
    """However it ended: the kernel lets go of the lock."""
    for _ in range(2):
        with WorkerRecords(tmp_path):
            pass


@pytest.mark.parametrize("mode", [0o770, 0o707])
def test_a_folder_that_others_can_write_to_is_refused(
    tmp_path: Path, no_fd_leak: None, mode: int
) -> None:
    """A record there could have any process of the daemon's user killed."""
    (tmp_path / "workers").mkdir()
    (tmp_path / "workers").chmod(mode)
    with pytest.raises(OperatorError, match="other users may write to it; make it this user's own"):
        WorkerRecords(tmp_path).__enter__()


def test_a_folder_that_cannot_be_made_is_the_operators_to_mend(
    tmp_path: Path, no_fd_leak: None
) -> None:
    """The message names the key to change."""
    (tmp_path / "state").write_text("a file")
    with pytest.raises(OperatorError, match=r"give daemon\.state_dir a folder"):
        WorkerRecords(tmp_path / "state").__enter__()
