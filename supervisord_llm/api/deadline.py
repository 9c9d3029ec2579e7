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
        """From here on the thread is somebody else's: take back what has not arrived."""
        with self._lock:
            thread, self._thread = self._thread, None
            if thread is not None:
                _raise_in(thread, None)

    def interrupt(self) -> None:
        with self._lock:
            if self._thread is not None:
                _raise_in(self._thread, _Interrupt)


def _raise_in(thread: int, kind: type[BaseException] | None) -> None:
    """Let a thread raise; with ``None``, not raise what it has not raised yet."""
    exception = ctypes.py_object() if kind is None else ctypes.py_object(kind)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), exception)


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
        # Again and again: where nobody can raise, as in a finalizer, an exception gets lost.
        while True:
            await trio.sleep(seconds)
            interruptible.interrupt()

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
