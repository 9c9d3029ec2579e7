"""What the control API says: request, response and record Structs, shared by daemon and client.

Field names are the public interface. Requests forbid unknown fields; responses tolerate them when
decoded, so that an older client can talk to a newer daemon. Times are RFC 3339 in UTC, durations
end in ``_ms`` or ``_seconds``, sizes are bytes.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from supervisord_llm.core.words import (
    AnsweredBy,
    CancelledBy,
    Dialect,
    Extension,
    FailureReason,
    FinishReason,
    Outcome,
    RequestState,
    Resolution,
    SlotState,
    TeardownStage,
)

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The root of bodies that clients send."""


class Message(Request, frozen=True, kw_only=True):
    """One turn of a conversation, for the model's chat template."""

    role: str
    content: str


class GenerateRequest(Request, frozen=True, kw_only=True):
    """The body of ``POST /api/v1/generate``: exactly one of ``prompt`` and ``messages``.

    Fields left out take the pool's ``sampling`` defaults, then the worker's.
    """

    pool: str
    prompt: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    messages: Annotated[list[Message], msgspec.Meta(min_length=1)] | None = None
    max_new_tokens: Annotated[int, msgspec.Meta(ge=1, le=INT32_MAX)] | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0.0, le=100.0)] | None = None
    top_p: Annotated[float, msgspec.Meta(gt=0.0, le=1.0)] | None = None
    top_k: Annotated[int, msgspec.Meta(ge=0, le=INT32_MAX)] | None = None
    seed: Annotated[int, msgspec.Meta(ge=0, le=INT64_MAX)] | None = None
    stop: (
        Annotated[
            list[Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]],
            msgspec.Meta(max_length=16),
        ]
        | None
    ) = None


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens as the worker counted them."""

    prompt_tokens: int
    reused_tokens: int
    generated_tokens: int


class Timings(msgspec.Struct, frozen=True, kw_only=True):
    """Where a request's time went; ``None`` for what it never reached."""

    queued_ms: float
    ttft_ms: float | None
    total_ms: float
    prefill_ms: float | None = None
    decode_ms: float | None = None


class CancelRecord(msgspec.Struct, frozen=True, kw_only=True):
    """How a cancelled request's client came to be answered, and how long after the asking."""

    answered_by: AnsweredBy
    elapsed_ms: float


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Why a request failed; ``retryable`` says whether the same request may succeed elsewhere."""

    code: FailureReason
    message: str
    retryable: bool


class Accepted(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="accepted"):
    """The first line of a stream: the queue took the request; ``queued`` are before it."""

    id: str
    pool: str
    queued: int


class Started(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="started"):
    """A worker has the request."""

    id: str
    worker: str
    attempt: int


class Token(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="token"):
    """A piece of generated text."""

    text: str


class Finished(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="event", tag="finished"
):
    """The last line of a stream, exactly once."""

    id: str
    outcome: Outcome
    finish_reason: FinishReason | None = None
    cancelled_by: CancelledBy | None = None
    cancel: CancelRecord | None = None
    cancel_raced: bool = False
    """A cancellation was asked for, but the worker had already completed."""
    error: Failure | None = None
    usage: Usage | None = None
    timings: Timings


StreamLine = Accepted | Started | Token | Finished


class LastExit(msgspec.Struct, frozen=True, kw_only=True):
    """How the previous generation of a slot ended."""

    exit: str
    reason: str | None
    at: str
    generation: int
    last_lines: list[str]


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's memory in bytes; ``None`` where the kernel does not say."""

    rss: int
    pss: int | None = None
    anonymous: int | None = None
    swap: int | None = None


class WorkerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A slot and the worker in it."""

    slot: str
    pool: str
    state: SlotState
    stage: TeardownStage | None
    since: str
    reason: str | None
    pid: int | None
    generation: int
    dialect: Dialect | None
    extensions: list[Extension]
    capacity: int
    requests: list[str]
    served: int
    restarts: int
    next_start_in_ms: float | None
    last_exit: LastExit | None
    memory: Memory | None
    cpu_seconds: float | None


class Workers(msgspec.Struct, frozen=True, kw_only=True):
    """``GET /api/v1/workers``."""

    workers: list[WorkerInfo]


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a pool's workers said about their model."""

    id: str | None = None
    context_length: int | None = None
    parameters: int | None = None
    quantization: str | None = None
    chat_template: bool = False
    """Whether ``messages`` can be rendered for it."""


class PoolInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A pool's live state and the configuration in force."""

    name: str
    ready: bool
    """Whether at least ``min_ready`` slots serve."""
    required: bool
    min_ready: int
    workers: int
    states: dict[SlotState, int]
    queued: int
    in_flight: int
    model: ModelInfo | None
    config: dict[str, object]


class Pools(msgspec.Struct, frozen=True, kw_only=True):
    """``GET /api/v1/pools``."""

    pools: list[PoolInfo]


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """Counts since the daemon started."""

    accepted: int
    completed: int
    cancelled: int
    failed: int
    rejected: int
    restarts: int


class PoolSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A pool in ``GET /api/v1/status``."""

    name: str
    ready: bool
    states: dict[SlotState, int]
    queued: int
    in_flight: int


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """``GET /api/v1/status``."""

    version: str
    boot: str
    pid: int
    state: str
    """``starting``, ``running`` or ``stopping``."""
    uptime_seconds: float
    config: str
    pools: list[PoolSummary]
    queued: int
    totals: Totals


class RequestInfo(msgspec.Struct, frozen=True, kw_only=True):
    """``GET /api/v1/requests/{id}``: a request in flight, queued or recently finished."""

    id: str
    pool: str
    state: RequestState
    position: int | None
    """Its place in its pool's queue, 1 for the next one; ``None`` when it does not wait there."""
    worker: str | None
    generation: int | None
    attempt: int
    accepted_at: str
    outcome: Outcome | None
    finish_reason: FinishReason | None
    cancelled_by: CancelledBy | None
    cancel: CancelRecord | None
    cancel_raced: bool
    resolution: Resolution | None
    """What became of the worker; ``None`` until known, and for requests never cancelled."""
    settled_ms: float | None
    """From the asking to the resolution."""
    error: Failure | None
    tokens: int
    usage: Usage | None
    timings: Timings


class Requests(msgspec.Struct, frozen=True, kw_only=True):
    """``GET /api/v1/requests``: first those that are over, then those under way, newest last."""

    requests: list[RequestInfo]


class SlotReply(msgspec.Struct, frozen=True, kw_only=True):
    """A command for one slot was taken (``reload``, ``quarantine``, ``resume``)."""

    slot: str
    state: SlotState
    """What the slot does now that it was told."""
    generation: int
    """The worker that it had, or had had, when it was told."""


class LogLine(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="line"):
    """One line that a slot's worker wrote to stderr."""

    number: int
    """Counted from 1 for each slot, across its generations."""
    at: str
    generation: int
    text: str


class StreamOpened(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="stream.opened"
):
    """The first line of an event stream."""

    boot: str
    seq: int
    """The sequence number of the first event that follows."""


class StreamGap(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="stream.gap"):
    """Events, or lines of a log, that this reader cannot have any more, both ends included."""

    first: int
    last: int


class PoolHealth(msgspec.Struct, frozen=True, kw_only=True):
    """One pool's part of ``GET /health``."""

    status: str
    ready: int
    min_ready: int
    workers: int
    required: bool
    reason: str | None = None


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """``GET /health``: ``healthy``, ``degraded`` or ``unavailable``."""

    status: str
    pools: dict[str, PoolHealth]


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True):
    """What went wrong, in OpenAI's shape."""

    message: str
    type: str
    code: str
    param: str | None = None


class ErrorReply(msgspec.Struct, frozen=True, kw_only=True):
    """The one error envelope."""

    error: ErrorBody
