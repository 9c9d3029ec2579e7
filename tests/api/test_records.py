from __future__ import annotations

import msgspec
import pytest

from supervisord_llm.api import records
from supervisord_llm.core.record import Record
from supervisord_llm.core.words import FailureReason, Outcome


@pytest.mark.parametrize("suspect", [False, True])
def test_a_suspect_is_called_one(suspect: bool) -> None:
    """Only then is the field there, and the same request is not to be sent again."""
    record = Record(
        outcome=Outcome.FAILED,
        error=FailureReason.WORKER_EXITED,
        suspect=suspect,
        detail="the worker ended: signal:SIGSEGV",
        queued_ms=0.0,
        ttft_ms=None,
        total_ms=1.0,
    )

    told = msgspec.to_builtins(records.failure(record))

    expected = {
        "code": "worker_exited",
        "message": "the worker ended: signal:SIGSEGV",
        "retryable": not suspect,
    }
    assert expected | ({"suspect": True} if suspect else {}) == told
