"""Generations and sessions: bodies, the lines of a stream, and what is told of it later."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from supervisord_llm.core.words import (
    AnsweredBy,
    CancelledBy,
    FailureReason,
    FinishReason,
    Outcome,
    RequestState,
    Resolution,
)
from supervisord_llm.schema.base import INT32_MAX, INT64_MAX, Request

SessionId = Annotated[str, msgspec.Meta(min_length=1, max_length=128, pattern=r"^[!-~]+\Z")]
"""A session's name: printable ASCII without spaces, as upstream has it."""

PRIORITY_MIN = -10
PRIORITY_MAX = 10


class Message(Request, frozen=True, kw_only=True):
    """One turn of a conversation, for the model's chat template."""

    role: str
    content: str


class GenerateRequest(Request, frozen=True, kw_only=True, omit_defaults=True):
    """The body of ``POST /api/v1/generate``: exactly one of ``prompt`` and ``messages``.

    Fields left out take the defaults of the pool's ``sampling`` and ``queue``, then the worker's.
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
    session_id: SessionId | None = None
    """The conversation that it continues; its worker keeps what it has read between requests."""
    priority: Annotated[int, msgspec.Meta(ge=PRIORITY_MIN, le=PRIORITY_MAX)] = 0
    """A higher one waits less; each step is worth ``queue.age_step`` of waiting."""
    deadline_ms: Annotated[int, msgspec.Meta(ge=1, le=INT32_MAX)] | None = None
    """It is cancelled when it has not ended so long after its acceptance, wherever it is then."""
    queue_timeout_ms: Annotated[int, msgspec.Meta(ge=1, le=INT32_MAX)] | None = None
    """It fails when no worker has taken it by then."""


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


class Failure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a request failed; ``retryable`` says whether the same request may succeed elsewhere."""

    code: FailureReason
    message: str
    retryable: bool
    suspect: bool = False
    """Each of its workers died with nothing but this request on it: perhaps the prompt kills."""


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
    """How many workers have had it; above 1 it was tried again."""
    priority: int = 0
    client: str = "unknown"
    """Who sent it, and takes turns with others in the queue: ``uid:1000``."""
    session_id: str | None = None
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


class SessionRequest(Request, frozen=True, kw_only=True, omit_defaults=True):
    """The body of the commands for a session, which may be left out."""

    model: str | None = None
    """The pool; may be left out when there is only one, or when the query names it."""


class SessionReset(msgspec.Struct, frozen=True, kw_only=True):
    """A session's context was forgotten; its next request is read from the beginning."""

    id: str
    object: Literal["session"] = "session"
    reset: Literal[True] = True
    existed: bool
    """Whether a worker held it."""


class SessionDeleted(msgspec.Struct, frozen=True, kw_only=True):
    """A session was closed, and its place on its worker is free."""

    id: str
    object: Literal["session"] = "session"
    deleted: Literal[True] = True
    existed: bool
    """Whether a worker held it."""
