"""Work in a thread ends in time, and nothing of that reaches whoever has the thread next."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import NoReturn

import pytest
import trio

from supervisord_llm.api.deadline import TooSlow, run_in_time
from tests.harness import SECONDS


def for_ever() -> NoReturn:
    """Python without an end."""
    while True:
        pass


def stubbornly() -> NoReturn:
    """Python without an end that takes every ordinary error for one of its own."""
    while True:
        with contextlib.suppress(Exception):
            for_ever()


class Deaf:
    """Loses the first interruption, as a finalizer does: nobody is there to raise it to."""

    def __del__(self) -> None:
        for_ever()


def in_a_finalizer() -> NoReturn:
    """Python without an end, where an exception is thrown away the first time."""
    Deaf()
    for_ever()


async def in_time(work: Callable[[], object], seconds: float = 0.05) -> object:
    """Run work in a thread of its own, with a bound for the test."""
    with trio.fail_after(SECONDS):
        return await run_in_time(work, seconds, trio.CapacityLimiter(1))


async def test_what_ends_by_itself_returns() -> None:
    """In another thread than the caller's."""
    assert threading.get_ident() != await in_time(threading.get_ident, SECONDS)


async def test_what_fails_by_itself_raises() -> None:
    """The error as it is, in no group."""
    with pytest.raises(ZeroDivisionError):
        await in_time(lambda: 1 / 0, SECONDS)


@pytest.mark.parametrize("work", [for_ever, stubbornly])
async def test_what_does_not_end_is_ended(work: Callable[[], object]) -> None:
    """Whatever it does about errors."""
    with pytest.raises(TooSlow):
        await in_time(work)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_an_interruption_that_got_lost_is_repeated() -> None:
    """Until the work has ended."""
    with pytest.raises(TooSlow):
        await in_time(in_a_finalizer)


async def test_others_go_on_meanwhile() -> None:
    """The loop runs while the thread does not let go."""
    rounds = 0

    async def count() -> None:
        nonlocal rounds
        while True:
            await trio.sleep(0.01)
            rounds += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count)
        with pytest.raises(TooSlow):
            await in_time(for_ever, 0.3)
        nursery.cancel_scope.cancel()
    assert rounds > 3


async def test_an_interruption_in_the_last_moment_stays_with_its_work() -> None:
    """However close to its end it comes, the thread's next work is not hurt by it."""
    limiter = trio.CapacityLimiter(1)

    def short() -> None:
        end = time.monotonic() + 0.03
        while time.monotonic() < end:
            pass

    interrupted = 0
    with trio.fail_after(SECONDS):
        for step in range(60):
            try:
                await run_in_time(short, step * 0.001, limiter)
            except TooSlow:
                interrupted += 1
            # The cache of threads gives this one the same thread.
            assert "next" == await trio.to_thread.run_sync(lambda: "next", limiter=limiter)
    assert 0 < interrupted < 60


async def test_a_caller_that_leaves_waits_for_the_thread() -> None:
    """So that no thread is left to itself; it has an end anyway."""
    ended = threading.Event()

    def work() -> None:
        try:
            for_ever()
        finally:
            ended.set()

    with trio.move_on_after(0.01), pytest.raises(TooSlow):
        await in_time(work)
    assert ended.is_set()


TRACED = """
import sys, time, trio
from supervisord_llm.api.deadline import TooSlow, run_in_time

def work():
    end = time.monotonic() + 0.02
    while time.monotonic() < end:
        pass

async def main():
    limiter = trio.CapacityLimiter(1)
    for step in range(40):
        try:
            await run_in_time(work, step * 0.001, limiter)
        except TooSlow:
            pass

trio.run(main)
sys.settrace(lambda *_: None)
work()
"""


def test_no_interruption_is_left_behind_for_the_interpreter() -> None:
    """It would look for it at each step, and a function that is traced would never begin."""
    done = subprocess.run([sys.executable, "-c", TRACED], timeout=SECONDS, check=False)
    assert 0 == done.returncode
