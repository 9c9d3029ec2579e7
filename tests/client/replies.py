"""Plausible answers, to be varied by the tests with `msgspec.structs.replace`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from supervisord_llm.core.words import (
    AnsweredBy,
    CancelledBy,
    Dialect,
    Extension,
    FinishReason,
    Outcome,
    RequestState,
    Resolution,
    SlotState,
)
from supervisord_llm.schema import (
    Accepted,
    CancelRecord,
    Finished,
    Memory,
    ModelInfo,
    PoolInfo,
    PoolSummary,
    RequestInfo,
    Started,
    Status,
    Timings,
    Token,
    Totals,
    Usage,
    WorkerInfo,
)

ID = "req_01JA2B3C4D5E6F7G8H9JKMNPQR"

TIMINGS = Timings(queued_ms=1.0, ttft_ms=82.0, total_ms=582.0, prefill_ms=80.0, decode_ms=500.0)

ACCEPTED = Accepted(id=ID, pool="smollm", queued=0)
STARTED = Started(id=ID, worker="smollm.0", attempt=1)
COMPLETED = Finished(
    id=ID,
    outcome=Outcome.COMPLETED,
    finish_reason=FinishReason.STOP,
    usage=Usage(prompt_tokens=30, reused_tokens=0, generated_tokens=25),
    timings=TIMINGS,
)
CANCELLED = Finished(
    id=ID,
    outcome=Outcome.CANCELLED,
    cancelled_by=CancelledBy.API,
    cancel=CancelRecord(answered_by=AnsweredBy.WORKER, elapsed_ms=3.2),
    timings=TIMINGS,
)

POOL_SUMMARY = PoolSummary(
    name="smollm",
    ready=True,
    states={SlotState.READY: 1, SlotState.BUSY: 1},
    queued=0,
    in_flight=1,
)
STATUS = Status(
    version="0.1.0",
    boot="01JA2B3C",
    pid=4711,
    state="running",
    uptime_seconds=192.4,
    config="/etc/supervisord-llm.toml",
    pools=[POOL_SUMMARY],
    queued=0,
    totals=Totals(accepted=12, completed=9, cancelled=2, failed=1, rejected=0, restarts=3),
)

POOL = PoolInfo(
    name="smollm",
    ready=True,
    required=True,
    min_ready=1,
    workers=2,
    target=2,
    states={SlotState.READY: 1, SlotState.BUSY: 1},
    queued=0,
    in_flight=1,
    model=ModelInfo(
        id="SmolLM2 135M Instruct",
        context_length=8192,
        parameters=134515008,
        quantization="Q4_1",
        chat_template=True,
    ),
    config={"command": ["sllm-llama-worker"]},
)

MIB = 1024 * 1024


def worker(slot: str = "smollm.0", **changes: object) -> WorkerInfo:
    """A worker that has been ready for four hours and ten minutes."""
    since = datetime.now(UTC) - timedelta(hours=4, minutes=10, seconds=30)
    fields: dict[str, object] = {
        "slot": slot,
        "pool": "smollm",
        "state": SlotState.READY,
        "stage": None,
        "since": since.isoformat(),
        "reason": None,
        "pid": 4712,
        "generation": 3,
        "dialect": Dialect.SERIAL_CANCEL,
        "extensions": [Extension.PING],
        "capacity": 1,
        "requests": [],
        "served": 7,
        "restarts": 2,
        "next_start_in_ms": None,
        "last_exit": None,
        "memory": Memory(rss=170 * MIB, pss=160 * MIB),
        "cpu_seconds": 12.5,
    }
    return WorkerInfo(**{**fields, **changes})  # type: ignore[arg-type]


def request(**changes: object) -> RequestInfo:
    """A request that was cancelled in the middle of its generation, and whose worker obeyed."""
    fields: dict[str, object] = {
        "id": ID,
        "pool": "smollm",
        "state": RequestState.FINISHED,
        "position": None,
        "worker": "smollm.0",
        "generation": 3,
        "attempt": 1,
        "client": "uid:1000",
        "accepted_at": "2026-05-04T03:02:01.000000Z",
        "outcome": Outcome.CANCELLED,
        "finish_reason": None,
        "cancelled_by": CancelledBy.API,
        "cancel": CancelRecord(answered_by=AnsweredBy.WORKER, elapsed_ms=3.2),
        "cancel_raced": False,
        "resolution": Resolution.COOPERATIVE,
        "settled_ms": 4.1,
        "error": None,
        "tokens": 5,
        "usage": None,
        "timings": TIMINGS,
    }
    return RequestInfo(**{**fields, **changes})  # type: ignore[arg-type]


def cancelling() -> RequestInfo:
    """The same request while its worker has not answered yet."""
    return request(
        state=RequestState.CANCELLING,
        outcome=None,
        cancelled_by=None,
        cancel=None,
        resolution=None,
        settled_ms=None,
    )


def tokens(*texts: str) -> list[Token]:
    """The stream's lines for these pieces of text."""
    return [Token(text=text) for text in texts]
