"""What is written down of parked slots finds its way to the slots of the next daemon."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from supervisord_llm.host.leftovers import WorkerRecords
from supervisord_llm.host.parking import ParkingRecord, ParkingRecords
from supervisord_llm.runtime.records import RecordKeeper

DIGEST = "ab" * 32


def parked(at: float, place: int | None) -> ParkingRecord:
    """The record of a slot that was parked at that time, in that place."""
    return ParkingRecord(
        reason="unexpected_exit",
        exit="exit:3",
        restarts=6,
        at=at,
        last_lines=(),
        place=place,
        launch_digest=DIGEST,
    )


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[WorkerRecords]:
    """Records of workers, of which there are none."""
    with WorkerRecords(tmp_path) as records:
        yield records


@pytest.mark.parametrize(
    ("written", "places", "expected"),
    [
        pytest.param({"a.0": (1, 0)}, {"a.0": 0, "a.1": 1}, {"a.0": 1}, id="its own"),
        pytest.param({"a.3": (1, 0)}, {"a.0": 0, "a.1": 1}, {"a.0": 1}, id="of its heir"),
        pytest.param({"a.1": (1, 1)}, {"a.0": 0}, {"a.1": 1}, id="of a place that is no more"),
        pytest.param(
            {"a.0": (1, 1), "a.1": (2, 0)},
            {"a.0": 0, "a.1": 1},
            {"a.0": 2, "a.1": 1},
            id="changed places",
        ),
        pytest.param({"a.0": (1, 0), "a.2": (2, 0)}, {"a.0": 0}, {"a.0": 2}, id="the newest"),
        pytest.param({"a.2": (1, 0), "a.0": (2, 0)}, {"a.0": 0}, {"a.0": 2}, id="its own newest"),
        pytest.param({"a.0": (1, None)}, {"a.0": 0}, {"a.0": 1}, id="of an unknown place"),
        pytest.param(
            {"a.b.1": (1, 0), "b.1": (2, 0)}, {"a.0": 0}, {"a.b.1": 1, "b.1": 2}, id="alien"
        ),
    ],
)
def test_a_slot_inherits_what_was_parked_in_its_place(
    tmp_path: Path,
    workers: WorkerRecords,
    written: Mapping[str, tuple[int, int | None]],
    places: Mapping[str, int],
    expected: Mapping[str, int],
) -> None:
    """And the files say so from then on; those of other pools are left alone."""
    parking = ParkingRecords(tmp_path)
    for slot, (at, place) in written.items():
        parking.write(slot, parked(at, place))
    keeper = RecordKeeper(workers, parking, lambda _event: 0)
    keeper.hand_down("a", places)
    now = {name: record.at for name, record in parking.read_all().slots.items()}
    assert expected == now
    for slot in places:
        record = keeper.parked(slot, DIGEST)
        assert expected.get(slot) == (None if record is None else record.at)
