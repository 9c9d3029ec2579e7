from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisord_llm.errors import OperatorError
from supervisord_llm.host import state_files
from supervisord_llm.host.parking import Parked, ParkingRecord, ParkingRecords

RECORD = ParkingRecord(
    reason="unexpected_exit",
    exit="exit:3",
    restarts=6,
    at=1767225600.25,
    last_lines=("cannot open model.gguf", "\N{SNOWMAN} \ufffd"),
    launch_digest="ab" * 32,
)


@pytest.fixture
def records(tmp_path: Path, no_fd_leak: None) -> ParkingRecords:
    """The records in a state directory that does not exist before."""
    return ParkingRecords(tmp_path / "state")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the records are."""
    return tmp_path / "state" / "parked"


def test_parking_survives_a_restart(records: ParkingRecords, tmp_path: Path) -> None:
    """Another daemon with that state directory reads all of what was written."""
    records.write("smollm.1", RECORD)
    records.write("smollm.0", ParkingRecord(
        reason=None, exit=None, restarts=1, at=1.0, last_lines=(), launch_digest=""
    ))  # fmt: skip
    found = ParkingRecords(tmp_path / "state").read_all()
    assert list(found.slots) == ["smollm.0", "smollm.1"]
    assert found.slots["smollm.1"] == RECORD
    assert found.slots["smollm.0"].exit is None
    assert found.problems == ()


def test_a_slot_that_is_resumed_is_forgotten(records: ParkingRecords, folder: Path) -> None:
    """Once or twice; the others stay."""
    for slot in ("smollm.0", "smollm.1"):
        records.write(slot, RECORD)
    records.forget("smollm.0")
    records.forget("smollm.0")
    assert list(records.read_all().slots) == ["smollm.1"]
    assert [path.name for path in folder.iterdir()] == ["smollm.1.json"]


def test_the_newest_record_of_a_slot_counts(records: ParkingRecords) -> None:
    """One file for each slot."""
    records.write("smollm.0", RECORD)
    newer = ParkingRecord(
        reason="load_timeout",
        exit="signal:SIGKILL",
        restarts=7,
        at=2.0,
        last_lines=(),
        launch_digest="x",
    )
    records.write("smollm.0", newer)
    assert records.read_all() == Parked({"smollm.0": newer}, ())


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40))
def test_any_name_of_a_slot_comes_back(slot: str) -> None:
    """Whatever is in it, its file is in the folder itself."""
    path = state_files.path_of(Path("folder"), slot)
    assert path.parent == Path("folder")
    assert state_files.slot_of(path) == slot


def test_parking_records_are_for_this_user_alone(records: ParkingRecords, folder: Path) -> None:
    """Folder 0700, file 0600, whatever the umask is."""
    previous = os.umask(0)
    try:
        records.write("smollm.0", RECORD)
    finally:
        os.umask(previous)
    (path,) = folder.iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    "content", [b"", b'{"reason": "un', b"\xff\xfe", b"[]", b'{"slot": "smollm.0"}']
)
def test_a_torn_parking_record_is_told_of_and_removed(
    records: ParkingRecords, folder: Path, content: bytes
) -> None:
    """It hides no other, and keeps no slot down."""
    records.write("smollm.1", RECORD)
    (folder / "smollm.0.json").write_bytes(content)
    found = records.read_all()
    assert found.slots == {"smollm.1": RECORD}
    (problem,) = found.problems
    assert problem.startswith(f"cannot read {folder / 'smollm.0.json'}: ")
    assert "it was removed, its slot starts as if it had not been parked" in problem
    assert not (folder / "smollm.0.json").exists()
    assert records.read_all().problems == ()


def test_a_parking_record_that_cannot_be_written_leaves_the_old_one(
    records: ParkingRecords, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no half file."""
    records.write("smollm.0", RECORD)

    def refuse(*_: object) -> Path:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", refuse)
        with pytest.raises(OSError, match="No space left"):
            records.write("smollm.0", RECORD)
    assert [each.name for each in folder.iterdir()] == ["smollm.0.json"]
    assert records.read_all().slots == {"smollm.0": RECORD}


@pytest.mark.parametrize("mode", [0o770, 0o707])
def test_a_parking_folder_that_others_can_write_to_is_refused(
    tmp_path: Path, no_fd_leak: None, mode: int
) -> None:
    """They could keep a slot down."""
    (tmp_path / "parked").mkdir()
    (tmp_path / "parked").chmod(mode)
    with pytest.raises(OperatorError, match=r"parked slots in .* other users may write to it"):
        ParkingRecords(tmp_path)


def test_a_parking_folder_that_cannot_be_made_is_the_operators_to_mend(tmp_path: Path) -> None:
    """The message names the key to change."""
    (tmp_path / "state").write_text("a file")
    with pytest.raises(OperatorError, match=r"parked slots .* give daemon\.state_dir a folder"):
        ParkingRecords(tmp_path / "state")
