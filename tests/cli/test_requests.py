from __future__ import annotations

import msgspec
import pytest

from supervisord_llm.core.words import (
    AnsweredBy,
    FailureReason,
    FinishReason,
    Outcome,
    RequestState,
    Resolution,
)
from supervisord_llm.schema import CancelRecord, Failure, RequestInfo, Requests, Timings
from tests.cli.command import llmctl
from tests.client import replies
from tests.client.fake_daemon import FakeDaemon

FAILURE = Failure(code=FailureReason.STALLED, message="no sign\nof life", retryable=True)


def queued(position: int, attempt: int = 0) -> RequestInfo:
    """A request that waits, for the first time or once more."""
    return msgspec.structs.replace(
        replies.cancelling(),
        state=RequestState.QUEUED,
        position=position,
        attempt=attempt,
        priority=5,
        worker=None,
        tokens=0,
        timings=Timings(queued_ms=1500.0, ttft_ms=None, total_ms=1500.0),
    )


@pytest.mark.parametrize(
    ("info", "cells"),
    [
        pytest.param(
            queued(2), "smollm queued uid:1000 5 - - 0 1.5s number 2 in the queue", id="queued"
        ),
        pytest.param(
            queued(1, attempt=1),
            "smollm queued uid:1000 5 1 - 0 1.5s number 1 in the queue, its worker failed on "
            "attempt 1",
            id="requeued",
        ),
        pytest.param(
            replies.cancelling(),
            "smollm cancelling uid:1000 0 1 smollm.0 5 582ms -",
            id="cancelling",
        ),
        pytest.param(
            replies.request(),
            "smollm cancelled uid:1000 0 1 smollm.0 5 582ms cancelled by api after 3 ms "
            "(answered by worker); worker settled cooperatively after 4 ms",
            id="cancelled",
        ),
        pytest.param(
            replies.request(state=RequestState.HELD, resolution=None, settled_ms=None),
            "smollm held uid:1000 0 1 smollm.0 5 582ms cancelled by api after 3 ms (answered "
            'by worker); what becomes of its worker is not known yet, see "llmctl workers"',
            id="held",
        ),
        pytest.param(
            replies.request(
                outcome=Outcome.COMPLETED,
                finish_reason=FinishReason.LENGTH,
                cancelled_by=None,
                cancel=None,
                resolution=None,
            ),
            "smollm completed uid:1000 0 1 smollm.0 5 582ms length",
            id="completed",
        ),
        pytest.param(
            replies.request(
                outcome=Outcome.FAILED,
                error=FAILURE,
                cancelled_by=None,
                cancel=None,
                resolution=None,
            ),
            "smollm failed uid:1000 0 1 smollm.0 5 582ms stalled: no sign of life",
            id="failed",
        ),
        pytest.param(
            replies.request(
                outcome=Outcome.FAILED,
                error=msgspec.structs.replace(FAILURE, suspect=True),
                attempt=2,
                cancelled_by=None,
                cancel=None,
                resolution=None,
            ),
            "smollm failed uid:1000 0 2 smollm.0 5 582ms stalled: no sign of life (suspect)",
            id="suspect",
        ),
        pytest.param(
            replies.request(
                cancel=CancelRecord(answered_by=AnsweredBy.DETACH, elapsed_ms=0.0),
                resolution=Resolution.DETACHED,
                settled_ms=60000.0,
            ),
            "smollm cancelled uid:1000 0 1 smollm.0 5 582ms cancelled by api after <0.1 ms "
            "(answered by detach); worker cannot be cancelled, and has ended it by itself after "
            "1m00s",
            id="detached",
        ),
    ],
)
async def test_a_request_is_one_line(daemon: FakeDaemon, info: RequestInfo, cells: str) -> None:
    """Where it is or how it ended, how long it took, and a note."""
    daemon.answer("GET /api/v1/requests", Requests(requests=[info]))

    done = await llmctl(daemon.socket, "requests")

    header, row = done.out.splitlines()
    assert (0, "") == (done.code, done.err)
    titles = "REQUEST POOL STATE AGO CLIENT PRIO TRY WORKER TOKENS TOOK NOTE"
    assert titles.split() == header.split()
    id_, pool, state, ago, *rest = row.split()
    assert (replies.ID, cells) == (id_, " ".join([pool, state, *rest]))
    assert ago[0].isdigit()


async def test_requests_in_json_are_as_the_daemon_said(daemon: FakeDaemon) -> None:
    """In the daemon's order, every field."""
    answer = Requests(requests=[replies.request(), queued(1), queued(2)])
    daemon.answer("GET /api/v1/requests", answer)

    done = await llmctl(daemon.socket, "requests", "--json")

    assert answer == msgspec.json.decode(done.out, type=Requests)
