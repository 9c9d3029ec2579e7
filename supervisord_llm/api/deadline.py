"""Work in a thread that ends in time, whatever it does.

A thread cannot be killed. But CPython can raise an exception in one, between two steps of its
interpreter; the alternatives were a process per template, which costs more than all the rest of a
request, and to look at the clock in the work itself, which is somebody else's program. A call into
C is not interrupted: the work has to see to it that none takes long.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

import trio

T = TypeVar("T")

_STEPS = 1000
"""Of a thread; the interpreter looks for an exception from outside at each."""
_AGAIN = 0.05
"""Seconds between two interruptions at least, so that one is dealt with before the next comes."""


class TooSlow(Exception):
    """The work did not end in time, and was ended."""


class _Interrupt(BaseException):
    """Raised in the thread; no handler for ordinary errors takes it."""


class _Work(Generic[T]):
    """Work that another thread may interrupt while it lasts, and not a moment longer."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._lock = threading.Lock()
        self._thread: int | None = None
        self._interrupted = False

    def __call__(self) -> T:
        try:
            with self._lock:
                self._thread = threading.get_ident()
            try:
                return self._work()
            finally:
                self._leave()
        except _Interrupt:
            self._leave()
            raise TooSlow from None

    def _leave(self) -> None:
        """From here on the thread is somebody else's: let arrive what has not arrived.

        It could be taken back as well, but the interpreter would go on looking for it at each step
        of every thread: only raising it ends that.
        """
        try:
            with self._lock:
                self._thread = None
            if self._interrupted:
                for _ in range(_STEPS):
                    pass
        except _Interrupt:
            self._leave()

    def interrupt(self) -> None:
        with self._lock:
            if self._thread is not None:
                self._interrupted = True
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(self._thread), ctypes.py_object(_Interrupt)
                )


async def run_in_time(work: Callable[[], T], seconds: float, limiter: trio.CapacityLimiter) -> T:
    """Run ``work`` in a thread and return what it does, raise what it raises.

    It is not left alone when the caller is cancelled, but neither does it go on for longer than it
    may: then comes the cancellation.

    Args:
        work: what to do; Python without long calls into C.
        seconds: how long it may take.
        limiter: has room for it.

    Raises:
        TooSlow: if it took longer.
    """
    interruptible = _Work(work)

    async def interrupt() -> None:
        await trio.sleep(seconds)
        # Again and again: where nobody can raise, as in a finalizer, an exception gets lost.
        while True:
            interruptible.interrupt()
            await trio.sleep(max(seconds, _AGAIN))

    outcome: list[T] = []
    failure: Exception | None = None
    with trio.CancelScope(shield=True):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(interrupt)
            try:
                outcome.append(await trio.to_thread.run_sync(interruptible, limiter=limiter))
            except Exception as error:  # noqa: BLE001 - raised below, without a group around it
                failure = error
            nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return outcome[0]
