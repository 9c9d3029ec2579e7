"""The records of workers, in a state directory of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisord_llm.host.leftovers import WorkerRecords


@pytest.fixture
def records(tmp_path: Path, no_fd_leak: None) -> Iterator[WorkerRecords]:
    """The records in a state directory that does not exist before."""
    with WorkerRecords(tmp_path / "state") as held:
        yield held


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the records are."""
    return tmp_path / "state" / "workers"
