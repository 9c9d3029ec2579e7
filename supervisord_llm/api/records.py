"""From the runtime's terminal record to what the API says about it."""

from __future__ import annotations

from supervisord_llm.core.record import Record
from supervisord_llm.core.words import RequestId
from supervisord_llm.schema import CancelRecord, Failure, Finished, Timings, Usage


def finished(id_: RequestId, record: Record) -> Finished:
    """Return the last line of a stream."""
    return Finished(
        id=id_,
        outcome=record.outcome,
        finish_reason=record.finish_reason,
        cancelled_by=record.cancelled_by,
        cancel=cancellation(record),
        cancel_raced=record.cancel_raced,
        error=failure(record),
        usage=usage(record),
        timings=timings(record),
    )


def cancellation(record: Record) -> CancelRecord | None:
    """Return how a cancelled request was answered; ``None`` for others."""
    if record.answered_by is None:
        return None
    return CancelRecord(
        answered_by=record.answered_by, elapsed_ms=_ms(record.cancel_elapsed_ms or 0.0)
    )


def failure(record: Record) -> Failure | None:
    """Return why a failed request failed; ``None`` for others."""
    if record.error is None:
        return None
    return Failure(
        code=record.error,
        message=record.detail or str(record.error),
        retryable=record.retryable,
        suspect=record.suspect,
    )


def usage(record: Record) -> Usage | None:
    """Return the tokens as the worker counted them, if it came to that."""
    if record.usage is None:
        return None
    return Usage(
        prompt_tokens=record.usage.prompt_tokens,
        reused_tokens=record.usage.reused_tokens,
        generated_tokens=record.usage.generated_tokens,
    )


def timings(record: Record) -> Timings:
    """Return where the request's time went, to the microsecond."""
    return Timings(
        queued_ms=_ms(record.queued_ms),
        ttft_ms=_ms_if_known(record.ttft_ms),
        total_ms=_ms(record.total_ms),
        prefill_ms=_ms_if_known(record.prefill_ms),
        decode_ms=_ms_if_known(record.decode_ms),
    )


def _ms(value: float) -> float:
    return round(value, 3)


def _ms_if_known(value: float | None) -> float | None:
    return None if value is None else _ms(value)
