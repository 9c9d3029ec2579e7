"""Deadlines, on a virtual clock."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import trio
from trio.testing import MockClock

from supervisord_llm.runtime.timers import Timers


@contextmanager
def cancelled_at_the_end(nursery: trio.Nursery) -> Iterator[None]:
    """End the nursery's tasks after the block."""
    yield
    nursery.cancel_scope.cancel()


async def test_deadlines_fire_in_the_order_of_their_times(autojump_clock: MockClock) -> None:
    """Whatever the order in which they were armed."""
    timers = Timers()
    fired: list[tuple[str, float]] = []
    start = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(timers.run)
        with cancelled_at_the_end(nursery):
            for name, delay in (("late", 5.0), ("early", 1.0), ("middle", 3.0)):
                timers.arm(
                    name,
                    start + delay,
                    lambda now, name=name: fired.append((name, now - start)),  # type: ignore[misc]
                )
            await trio.sleep(10)
    assert fired == [("early", 1.0), ("middle", 3.0), ("late", 5.0)]


async def test_arming_again_replaces_the_deadline(autojump_clock: MockClock) -> None:
    """A key has one deadline: the last one."""
    timers = Timers()
    fired: list[float] = []
    start = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(timers.run)
        with cancelled_at_the_end(nursery):
            timers.arm("grace", start + 1, lambda now: fired.append(now - start))
            timers.arm("grace", start + 4, lambda now: fired.append(now - start))
            await trio.sleep(10)
    assert fired == [4.0]


async def test_a_deadline_may_arm_the_next_one(autojump_clock: MockClock) -> None:
    """Also one that is due at once."""
    timers = Timers()
    fired: list[float] = []
    start = trio.current_time()

    def again(now: float) -> None:
        fired.append(now - start)
        if len(fired) < 3:
            timers.arm("resend", now + 0.2 * (len(fired) % 2), again)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(timers.run)
        with cancelled_at_the_end(nursery):
            timers.arm("resend", start + 1, again)
            await trio.sleep(10)
    assert [round(at, 3) for at in fired] == [1.0, 1.2, 1.2]
