"""One synchronous breath: a thing that happened, and everything that follows from it at once.

The machines' effects cause further events: a sealed request frees a slot, which takes the next from
the queue. Run nested, a second event would come between the effects of the first. So whatever
follows is queued and done in order, before the task that brought the first event goes on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class Turn:
    """Runs acts one after the other, those that they cause included."""

    def __init__(self) -> None:
        """Start outside of any turn."""
        self._acts: deque[Callable[[], None]] = deque()
        self._running = False

    def __call__(self, act: Callable[[], None]) -> None:
        """Do ``act`` now, or after what is being done if a turn is running.

        Raises:
            ExceptionGroup: what the acts raised, after all of them were done: one broken act must
                not cost the others their effects.
        """
        self._acts.append(act)
        if self._running:
            return
        self._running = True
        broken: list[Exception] = []
        while self._acts:
            try:
                self._acts.popleft()()
            except Exception as error:  # noqa: BLE001 - raised below, with the others
                broken.append(error)
        self._running = False
        if broken:
            raise ExceptionGroup("a turn was broken", broken)
