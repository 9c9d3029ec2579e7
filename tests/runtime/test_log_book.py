"""A slot's last lines."""

from __future__ import annotations

import trio
from trio.testing import wait_all_tasks_blocked

from supervisord_llm.runtime.log_book import LogBook, LoggedLine


async def test_the_last_lines_are_kept_across_generations() -> None:
    """In order, numbered without holes, and by generation for a report."""
    book = LogBook()
    for number, generation in enumerate([1, 1, 2], start=1):
        book.add(float(number), generation, f"line {number}")
    assert book.last(2) == [LoggedLine(2, 2.0, 1, "line 2"), LoggedLine(3, 3.0, 2, "line 3")]
    assert book.last(0) == []
    assert book.of_generation(1, 10) == ["line 1", "line 2"]


async def test_a_book_is_bounded_in_lines_and_in_bytes() -> None:
    """The oldest go first; the numbers tell what is missing."""
    book = LogBook()
    for _ in range(1500):
        book.add(0.0, 1, "short")
    assert [line.number for line in book.last(5000)] == list(range(501, 1501))
    book.add(0.0, 1, "x" * 256 * 1024)
    assert [line.number for line in book.last(5000)] == [1501]


async def test_a_follower_waits_for_what_is_new() -> None:
    """From a number on; what is there already comes at once."""
    book = LogBook()
    book.add(0.0, 1, "old")
    assert [line.text for line in await book.wait_after(0)] == ["old"]
    found: list[str] = []

    async def follow() -> None:
        found.extend(line.text for line in await book.wait_after(book.last_number))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(follow)
        await wait_all_tasks_blocked()
        book.add(1.0, 1, "new")
    assert found == ["new"]
