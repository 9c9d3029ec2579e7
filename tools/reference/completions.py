"""How accepted requests that did not complete are told under ``/v1``."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from supervisord_llm.api.errors import HttpError
from supervisord_llm.api.openai_errors import unfinished
from supervisord_llm.core.record import Record
from supervisord_llm.core.words import CancelledBy, FailureReason, Outcome
from supervisord_llm.openai.unsupported import NO_OPS
from tools.reference import markdown


def completions() -> str:
    """The sections on the errors and the refused fields of completions."""
    rows: dict[tuple[str, str, str], list[str]] = {}
    for ending, error in _endings():
        again = {"true": "yes", "false": "no"}.get(error.headers.get("x-should-retry", ""), "")
        rows.setdefault((str(error.status), f"`{error.code}`", again), []).append(f"`{ending}`")
    table = [(*key, ", ".join(endings)) for key, endings in rows.items()]
    failures = markdown.section(
        3,
        "Completions that do not complete",
        "Under `/v1`, a request that was accepted and ended otherwise is an error too. Before the "
        "first output it has this status; behind it, it is an event of the stream, before "
        "`[DONE]`. The header `x-should-retry`, which OpenAI's clients follow, says whether to "
        "send it again.",
        markdown.table(("status", "code", "send again", "the record's `error` or `by`"), table),
    )
    fields = [(f"`{name}`", ", ".join(_shown(each) for each in NO_OPS[name])) for name in NO_OPS]
    refused = markdown.section(
        3,
        "Fields of completions that are refused",
        "Under `/v1`, these are `unsupported_parameter`, for they would change the output; `null` "
        "and these values do nothing and are taken. Fields that are not known are passed over.",
        markdown.table(("field", "taken"), fields),
    )
    return f"{failures}\n{refused}"


def _endings() -> Iterator[tuple[str, HttpError]]:
    for reason in FailureReason:
        yield from _ending(reason.value, Outcome.FAILED, error=reason)
    for by in CancelledBy:
        yield from _ending(by.value, Outcome.CANCELLED, cancelled_by=by)


def _ending(
    name: str,
    outcome: Outcome,
    *,
    error: FailureReason | None = None,
    cancelled_by: CancelledBy | None = None,
) -> Iterator[tuple[str, HttpError]]:
    record = Record(
        outcome=outcome,
        error=error,
        cancelled_by=cancelled_by,
        queued_ms=0,
        ttft_ms=None,
        total_ms=0,
    )
    if (told := unfinished(record)) is not None:
        yield name, told


def _shown(value: object) -> str:
    return f"`{msgspec.json.encode(value).decode()}`"
