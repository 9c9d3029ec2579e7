"""Shared nouns: ids, states, outcomes and reasons, used by every layer exactly as written here.

The string values are what operators and programs see in events, metrics and the control API, so
renaming one is a change of the public interface.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

PoolName = str
"""A pool's name, the key of its table in the configuration, e.g. ``smollm``."""

SlotName = str
"""A slot's stable name, pool and index, e.g. ``smollm.0``."""

RequestId = str
"""A request's public id, ``req_`` and a ULID; it lives as long as the request."""

WireId = int
"""An attempt's id towards one worker: 1 to 2**64 - 1, monotonic per generation, never reused."""

WIRE_ID_MAX = 2**64 - 1


class Generation(msgspec.Struct, frozen=True, order=True):
    """One worker process in the life of a slot: ``smollm.0``, generation 3."""

    slot: SlotName
    number: int

    def __str__(self) -> str:
        return f"{self.slot}/{self.number}"


class SlotState(StrEnum):
    """What a slot is doing, in an operator's words."""

    STARTING = "starting"
    """A worker was spawned and loads its model."""
    READY = "ready"
    """It serves, and has nothing to do."""
    BUSY = "busy"
    """It serves, and has a request."""
    CANCELLING = "cancelling"
    """Its request is being cancelled."""
    DRAINING = "draining"
    """It finishes what it has; then its worker is stopped or replaced."""
    QUARANTINED = "quarantined"
    """Its worker was judged unfit and is being torn down."""
    BACKOFF = "backoff"
    """It has no worker and waits for its next start."""
    PARKED = "parked"
    """It failed too often and stays down until an operator acts."""
    STOPPED = "stopped"
    """It was taken down on purpose."""


class TeardownStage(StrEnum):
    """How far the teardown of a quarantined worker has come."""

    TERMINATING = "terminating"
    KILLING = "killing"
    REAPING = "reaping"


class EscalationStage(StrEnum):
    """A rung of the ladder from asking a worker nicely to collecting its exit status."""

    COOPERATIVE = "cooperative"
    TERMINATE = "terminate"
    KILL = "kill"
    REAP = "reap"


class QuarantineReason(StrEnum):
    """Why a worker was judged unfit; a closed set."""

    CANCEL_GRACE_MISSED = "cancel_grace_missed"
    UNCANCELLABLE = "uncancellable"
    CONTROL_PIPE_BROKEN = "control_pipe_broken"
    STDIN_BLOCKED = "stdin_blocked"
    SELF_TEST_FAILED = "self_test_failed"
    LOAD_TIMEOUT = "load_timeout"
    LOAD_STALLED = "load_stalled"
    FIRST_TOKEN_STALL = "first_token_stall"
    TOKEN_STALL = "token_stall"
    HEALTH_PROBE_FAILED = "health_probe_failed"
    PROTOCOL_ERROR = "protocol_error"
    MEMORY_LIMIT = "memory_limit"
    UNEXPECTED_EXIT = "unexpected_exit"
    OPERATOR = "operator"


class PlannedReason(StrEnum):
    """Why a fit worker is being replaced or taken down on purpose."""

    RELOAD = "reload"
    """An operator asked for a fresh worker, or the configuration of its pool changed."""
    RECYCLE = "recycle"
    """It has reached a limit of its age, its requests or its memory."""
    SCALE_DOWN = "scale_down"
    """The pool is to have fewer slots."""
    DRAIN = "drain"
    """An operator takes the slot or the pool out of service."""
    IDLE = "idle"
    """Nobody has asked for its model for a while."""
    EXCLUSIVE = "exclusive"
    """Another pool needs the device."""
    SHUTDOWN = "shutdown"
    """The daemon stops."""


class Outcome(StrEnum):
    """How an accepted request ended."""

    COMPLETED = "completed"
    CANCELLED = "cancelled"
    FAILED = "failed"


class FinishReason(StrEnum):
    """Why a completed generation ended."""

    STOP = "stop"
    LENGTH = "length"


class CancelledBy(StrEnum):
    """Whose wish a cancellation was."""

    CLIENT = "client"
    """It closed its connection."""
    API = "api"
    """Somebody cancelled the request by its id."""
    DEADLINE = "deadline"
    """Its time was up, on a worker or in the queue."""
    OPERATOR = "operator"
    """Somebody tore down its worker."""
    SHUTDOWN = "shutdown"
    """The daemon stops."""


class FailureReason(StrEnum):
    """Why an accepted request failed."""

    WORKER_EXITED = "worker_exited"
    WORKER_QUARANTINED = "worker_quarantined"
    PROTOCOL_ERROR = "protocol_error"
    ENGINE_ERROR = "engine_error"
    INVALID_REQUEST = "invalid_request"
    """What is wrong with it was seen only when its model was there."""
    CONTEXT_LENGTH_EXCEEDED = "context_length_exceeded"
    STALLED = "stalled"
    SLOW_CONSUMER = "slow_consumer"
    QUEUE_TIMEOUT = "queue_timeout"
    POOL_UNAVAILABLE = "pool_unavailable"


class RejectReason(StrEnum):
    """Why a request was never accepted."""

    INVALID_REQUEST = "invalid_request"
    UNKNOWN_MODEL = "unknown_model"
    QUEUE_FULL = "queue_full"
    POOL_UNAVAILABLE = "pool_unavailable"
    SHUTTING_DOWN = "shutting_down"


class AnsweredBy(StrEnum):
    """What let a cancelled request's client be answered."""

    WORKER = "worker"
    """Its word."""
    GRACE = "grace"
    """Not its word: it did not speak in time, or will not speak any more."""
    QUEUE = "queue"
    """No worker had it."""
    DETACH = "detach"
    """Nobody asked the worker, which cannot be cancelled; what it still writes is thrown away."""


class Resolution(StrEnum):
    """What became of the worker that a cancellation was aimed at."""

    QUEUED = "queued"
    """No worker had heard of the request."""
    COOPERATIVE = "cooperative"
    """It ended the request by itself."""
    RACED = "raced"
    """It had completed the request before it heard of the cancellation."""
    TERMINATED = "terminated"
    """It was torn down, and SIGTERM was enough."""
    KILLED = "killed"
    """It was torn down, and SIGKILL was needed."""
    DETACHED = "detached"
    """It ended the request by itself, unasked, after its client had been answered."""
    UNREAPABLE = "unreapable"
    """It does not end although it was killed."""


class Dialect(StrEnum):
    """The wire protocol that a worker's ready line announced."""

    SERIAL = "serial"
    SERIAL_CANCEL = "serial+cancel"


class Extension(StrEnum):
    """An addition to the upstream protocol that both sides have said they know."""

    PING = "ping"
    """A ping is answered at once, even while the model computes."""
    HEARTBEAT = "heartbeat"
    """The worker says unasked how far its work is."""
    CANCEL_PREFILL = "cancel_prefill"
    """A cancel frame takes effect within prefill."""
    CANCEL_IDS = "cancel_ids"
    """A cancel frame for a request that is not there yet is kept for it."""
    MODEL = "model"
    """The ready line describes the model."""


class Phase(StrEnum):
    """What a worker says, or shows, that it is working on."""

    LOAD = "load"
    PREFILL = "prefill"
    DECODE = "decode"


class RequestState(StrEnum):
    """Where a request stands; these are the rows of the ledger's table."""

    QUEUED = "queued"
    """It waits for a slot."""
    DISPATCHED = "dispatched"
    """A worker has it and has not answered yet."""
    STREAMING = "streaming"
    """Output comes."""
    CANCELLING = "cancelling"
    """Its worker was asked to stop."""
    STOPPING = "stopping"
    """Its output is complete, because a stop string was found in it; its worker was asked to stop.
    """
    HELD = "held"
    """Its client has been answered, a worker still holds it."""
    FINISHED = "finished"
    """Its client has been answered, and no worker holds it."""


class ExitKind(StrEnum):
    """How a process ended."""

    EXIT = "exit"
    SIGNAL = "signal"
    CORE_DUMPED = "core_dumped"
    OOM_KILLED = "oom_killed"
    """The kernel ended it because memory ran out."""


class ExitCause(msgspec.Struct, frozen=True):
    """How a process ended: ``exit:3``, ``signal:SIGKILL``, ``core_dumped:SIGABRT``, ``oom_killed``.

    A kill by the kernel for want of memory keeps the signal in its number and name.
    """

    kind: ExitKind
    code: int
    """The exit status, or the number of the signal."""
    signal_name: str = ""

    def __str__(self) -> str:
        if self.kind is ExitKind.EXIT:
            return f"exit:{self.code}"
        if self.kind is ExitKind.OOM_KILLED:
            return self.kind.value
        return f"{self.kind}:{self.signal_name or self.code}"


class Usage(msgspec.Struct, frozen=True):
    """Tokens of one request as its worker counted them."""

    prompt_tokens: int = 0
    reused_tokens: int = 0
    generated_tokens: int = 0
