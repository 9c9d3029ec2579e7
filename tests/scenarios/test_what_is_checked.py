"""What is checked after every test on real workers is checked in fact."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import trio

from supervisord_llm.events import RequestAccepted, RequestFinished
from tests.harness import bench


async def test_a_descriptor_too_many_is_noticed(tmp_path: Path) -> None:
    """One that a test leaves open fails it."""
    opened: list[int] = []
    with pytest.raises(AssertionError):
        async with bench(tmp_path):
            opened.append(os.open("/dev/null", os.O_RDONLY))
    for descriptor in opened:
        os.close(descriptor)


async def test_a_task_too_many_is_noticed(tmp_path: Path) -> None:
    """One that goes on after the supervisor fails the test."""
    async with trio.open_nursery() as nursery:
        with pytest.raises(AssertionError):
            async with bench(tmp_path):
                nursery.start_soon(trio.sleep_forever)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("kind", [RequestAccepted, RequestFinished])
async def test_another_number_of_terminals_than_one_is_noticed(
    tmp_path: Path, kind: type[RequestAccepted | RequestFinished]
) -> None:
    """A request without a record, or with two."""

    async def repeat() -> None:
        async with bench(tmp_path) as made:
            await made.generate("x sim.tokens=1")
            [event] = made.events.all(kind)
            made.events(event)

    with pytest.raises(AssertionError):
        await repeat()
