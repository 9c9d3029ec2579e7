"""The requests of one pool that wait: in what order, for how long, and for which slot.

`supervisord_llm.core.queueing` decides the order; this holds the requests, their deadlines and
what is known of the rate at which they are served. A deadline holds from the acceptance to the end,
on a worker as in the queue; the time in the queue counts anew when a request lost its worker.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from supervisord_llm.config.schema import QueueConfig
from supervisord_llm.core import ledger, queueing, rate
from supervisord_llm.core.words import CancelledBy, RequestId, SlotName
from supervisord_llm.runtime.clock import Clock
from supervisord_llm.runtime.request import Request
from supervisord_llm.runtime.sessions import SessionDesk
from supervisord_llm.runtime.timers import Timers
from supervisord_llm.runtime.turn import Turn


class Queue:
    """What waits for a worker; methods are to be called inside a turn."""

    def __init__(
        self,
        config: QueueConfig,
        sessions: SessionDesk,
        *,
        clock: Clock,
        timers: Timers,
        turn: Turn,
    ) -> None:
        """Nothing waits yet."""
        self.config = config
        self.idle_since = clock.now()
        """When the last request was over that waited or ran."""
        self._sessions = sessions
        self._clock = clock
        self._timers = timers
        self._turn = turn
        self._waiting: dict[RequestId, Request] = {}
        self._until: dict[RequestId, float] = {}
        """When each request that is not over has waited for too long, or had."""
        self._turns: dict[str, queueing.Turn] = {}
        self._rate = rate.State()

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    @property
    def requests(self) -> list[Request]:
        """Those that wait, as they were accepted or came back."""
        return list(self._waiting.values())

    @property
    def waiting_since(self) -> float | None:
        """When the oldest of them was accepted."""
        return min((request.accepted_at for request in self._waiting.values()), default=None)

    # In and out ---------------------------------------------------------------

    def accept(self, request: Request) -> None:
        """Let a new request wait, and hold it to its deadline."""
        now = self._clock.now()
        self._rate = rate.began(self._rate, now)
        spec = request.spec
        deadline = self.config.deadline if spec.deadline is None else spec.deadline
        self._timers.arm(
            ("deadline", request.id), now + deadline, lambda _: request.cancel(CancelledBy.DEADLINE)
        )
        if spec.session_id is not None:
            self._sessions.line_up(spec.session_id, request.id)
        self._wait_anew(request)

    def take_back(self, request: Request) -> None:
        """Let a request wait again that has lost its worker; its place is that of its age."""
        if request.spec.session_id is not None:
            self._sessions.let_go(request.spec.session_id)
        self._wait_anew(request)

    def put_back(self, request: Request) -> None:
        """Let a request wait that could not be given to its slot after all."""
        self._join(request)

    def _wait_anew(self, request: Request) -> None:
        timeout = request.spec.queue_timeout
        allowed = self.config.queue_timeout if timeout is None else timeout
        self._until[request.id] = self._clock.now() + allowed
        self._join(request)

    def _join(self, request: Request) -> None:
        self._waiting[request.id] = request
        at = self._until[request.id]
        self._timers.arm(("queue", request.id), at, partial(self._expire, request))

    def _expire(self, request: Request, now: float) -> None:
        def expire() -> None:
            if request.id in self._waiting:
                request.post(ledger.QueueExpired(now))

        self._turn(expire)

    def withdraw(self, request: Request) -> None:
        """Take a request out: it is over, or a slot has it."""
        del self._waiting[request.id]
        self._timers.disarm(("queue", request.id))

    def over(self, request: Request, left: int) -> None:
        """A request is answered, and no worker holds it; so many are left, running or waiting."""
        now = self._clock.now()
        del self._until[request.id]
        self._timers.disarm(("deadline", request.id))
        if request.spec.session_id is not None:
            self._sessions.leave(request.spec.session_id, request.id)
        if request.assigned_at is not None:
            self._rate = rate.ended(self._rate, now, left=left)
        elif not left:
            self._rate = rate.idle(self._rate)
        self.idle_since = now

    # Order --------------------------------------------------------------------

    def assignments(self, slots: Sequence[queueing.SlotLoad]) -> list[tuple[Request, SlotName]]:
        """Who goes where now; they are taken out of the queue."""
        now = self._clock.now()
        decided = queueing.assign(self._entries(), slots, self._turns, self.config.age_step, now)
        self._turns = decided.turns
        taken = []
        for assignment in decided.assignments:
            request = self._waiting[assignment.request]
            self.withdraw(request)
            taken.append((request, assignment.slot))
        return taken

    def order(self) -> list[RequestId]:
        """Those that wait, in the order in which they are served as things stand."""
        now = self._clock.now()
        return queueing.order(self._entries(), self._turns, self.config.age_step, now)

    def _entries(self) -> list[queueing.Waiting]:
        return [self._entry(request) for request in self._waiting.values()]

    def _entry(self, request: Request) -> queueing.Waiting:
        session = request.spec.session_id
        return queueing.Waiting(
            request=request.id,
            client=request.spec.client,
            priority=request.spec.priority,
            enqueued_at=request.accepted_at,
            session=session,
            session_slot=None if session is None else self._sessions.slot_of(session),
            session_busy=session is not None and not self._sessions.is_next(session, request.id),
            prepared=request.spec.render is None,
            avoid=request.worker,
        )

    def retry_after(self, next_start: float | None) -> float:
        """Whole seconds after which there may be room for another.

        Args:
            next_start: when the next slot starts, where none serves.
        """
        now = self._clock.now()
        starting_in = None if next_start is None else max(0.0, next_start - now)
        return rate.retry_after(self._rate, starting_in, now)
