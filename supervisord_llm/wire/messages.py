"""Everything that a worker may say and be asked, as frozen values.

These carry what the daemon needs, whichever dialect brought it. In the serial dialects a reply
names no request; the connection puts the wire id in.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec

from supervisord_llm.core.words import Extension, FinishReason, Phase, WireId

Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""How many; ``true`` is not a number, and neither is 1.0."""

Milliseconds = Annotated[float, msgspec.Meta(ge=0.0)]

PROBE_SESSION = "__probe__"
"""The session that the idle probe closes. There is none, and a worker acknowledges that as well."""

SESSION_ID_MAX_BYTES = 1024


def valid_session_id(session_id: str) -> bool:
    """Whether a session can have this name.

    Workers take 1 to 1024 bytes of UTF-8. Of those, only printable characters are let through, for
    names are shown on terminals; and not the name that idle probes close.
    """
    return (
        session_id.isprintable()
        and 0 < len(session_id.encode()) <= SESSION_ID_MAX_BYTES
        and session_id != PROBE_SESSION
    )


class SessionOp(StrEnum):
    """What can be done with a named session besides generating in it."""

    OPEN = "open"
    """Take a place for it; a generation does so by itself."""
    CLOSE = "close"
    """Forget it and free its place; one that is not there is closed already."""
    RESET = "reset"
    """Forget its tokens; one that is not there has none."""


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker says of its model, with the extension ``model``; it may know less than all."""

    id: str | None = None
    context_length: Count | None = None
    """Tokens, prompt and output together."""
    chat_template: str | None = None
    """Jinja2 source, as the model was published with."""
    bos_token: str | None = None
    eos_token: str | None = None
    parameters: Count | None = None
    quantization: str | None = None


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """The model is loaded; said once, before anything but heartbeats."""

    max_sessions: int = 1
    max_named_sessions: int = 0
    supports_cancel: bool = False
    extensions: tuple[Extension, ...] = ()
    """Those offered that this daemon knows, in the order of `Extension`."""
    model: Model | None = None


class Tokens(msgspec.Struct, frozen=True):
    """Pieces of output, in order: all that one read brought without anything in between."""

    wire_id: WireId
    texts: list[str]


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """The terminal of a request that ran: to its end, or to the step that saw its cancellation."""

    wire_id: WireId
    finish_reason: FinishReason
    cancelled: bool = False
    prompt_tokens: int
    """All of the prompt, reused ones included."""
    completion_tokens: int
    """Visible ones: the step that ended the generation is not counted."""
    reused_prompt_tokens: int = 0
    prefill_ms: float | None = None
    decode_ms: float | None = None
    total_ms: float | None = None


class Failed(msgspec.Struct, frozen=True):
    """The terminal of a request that the worker refused or could not finish; the worker is well."""

    wire_id: WireId
    error: str
    code: str | None = None


class SessionDone(msgspec.Struct, frozen=True):
    """An operation on a session was done, also where there was nothing to do."""

    op: SessionOp
    session_id: str


class SessionRefused(msgspec.Struct, frozen=True):
    """An operation on a session was refused or failed; the worker is well."""

    op: SessionOp
    session_id: str
    error: str
    code: str | None = None
    """``capacity_exhausted`` or ``unsupported_session``, or what else a worker says."""


class ProbeAck(msgspec.Struct, frozen=True):
    """The idle probe was answered."""


class Pong(msgspec.Struct, frozen=True):
    """A ping was answered, by a thread of the worker that is never busy with the model."""

    nonce: int


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """Unasked, a sign of progress."""

    phase: Phase
    done: Count = 0
    total: Count = 0
    """0 where the worker does not know."""
    beats: Count
    """Steps of the engine since the worker's start: it moves while the worker is slow, and stands
    still when it is stuck."""


class Malformed(msgspec.Struct, frozen=True):
    """The worker broke the protocol. Always the last message: no later byte can be attributed."""

    detail: str
    """What is wrong, and how the line begins, escaped."""


Message = (
    Ready
    | Tokens
    | Done
    | Failed
    | SessionDone
    | SessionRefused
    | ProbeAck
    | Pong
    | Heartbeat
    | Malformed
)


Prompt = str | tuple[int, ...]
"""Text, or the ids of its tokens as the model numbers them, which the worker then adds none to."""


class Generate(msgspec.Struct, frozen=True, kw_only=True):
    """A generation as a worker is asked for it; ``None`` leaves a choice to the worker."""

    prompt: Prompt
    max_new_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    session_id: str | None = None
    """The session whose context it continues; none for one that nothing is kept of."""
