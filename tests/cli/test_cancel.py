from __future__ import annotations

import msgspec
import pytest

from supervisord_llm.core.words import (
    AnsweredBy,
    FailureReason,
    Outcome,
    RequestState,
    Resolution,
)
from supervisord_llm.schema import CancelRecord, Failure, RequestInfo
from tests.cli.command import llmctl
from tests.client import replies
from tests.client.fake_daemon import Exchange, FakeDaemon

CANCEL = f"POST /api/v1/requests/{replies.ID}/cancel"
LOOK = f"GET /api/v1/requests/{replies.ID}"
GRACE = CancelRecord(answered_by=AnsweredBy.GRACE, elapsed_ms=2004.0)


async def test_cancel_returns_at_once(daemon: FakeDaemon) -> None:
    """Without --wait it tells where the request stands."""
    daemon.answer(CANCEL, replies.cancelling(), status=202)

    done = await llmctl(daemon.socket, "cancel", replies.ID)

    assert (0, f"{replies.ID} cancelling\n", "") == (done.code, done.out, done.err)


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        pytest.param(
            replies.request(),
            "cancelled after 3 ms (answered by worker); worker settled cooperatively after 4 ms",
            id="cooperative",
        ),
        pytest.param(
            replies.request(cancel=GRACE, resolution=Resolution.TERMINATED, settled_ms=2300.0),
            "cancelled after 2.0 s (answered by grace); "
            "worker had to be terminated, gone after 2.3 s",
            id="terminated",
        ),
        pytest.param(
            replies.request(cancel=GRACE, resolution=Resolution.KILLED, settled_ms=5100.0),
            "cancelled after 2.0 s (answered by grace); worker had to be killed, gone after 5.1 s",
            id="killed",
        ),
        pytest.param(
            replies.request(cancel=GRACE, resolution=Resolution.UNREAPABLE, settled_ms=12000.0),
            "cancelled after 2.0 s (answered by grace); worker was killed but does not go away "
            'after 12.0 s; see "llmctl workers"',
            id="unreapable",
        ),
        pytest.param(
            replies.request(
                cancel=CancelRecord(answered_by=AnsweredBy.QUEUE, elapsed_ms=0.2),
                resolution=Resolution.QUEUED,
                settled_ms=0.2,
            ),
            "cancelled after 0.2 ms (answered by queue); no worker had it yet",
            id="queued",
        ),
        pytest.param(
            replies.request(
                outcome=Outcome.COMPLETED,
                cancel=None,
                cancel_raced=True,
                resolution=Resolution.RACED,
            ),
            "completed all the same",
            id="raced",
        ),
        pytest.param(
            replies.request(
                outcome=Outcome.FAILED,
                cancel=None,
                error=Failure(
                    code=FailureReason.WORKER_EXITED, message="worker exited", retryable=True
                ),
                resolution=Resolution.TERMINATED,
            ),
            "failed: worker exited",
            id="failed",
        ),
    ],
)
async def test_cancel_can_wait_for_the_whole_story(
    daemon: FakeDaemon, end: RequestInfo, expected: str
) -> None:
    """Both times are told: to the client's answer, and to the worker's end."""
    unresolved = msgspec.structs.replace(end, resolution=None, settled_ms=None)
    looks = [unresolved, end]

    async def cancel(exchange: Exchange) -> None:
        waits = exchange.target.endswith("?wait=true")
        await exchange.reply(unresolved if waits else replies.cancelling())

    async def look(exchange: Exchange) -> None:
        await exchange.reply(looks.pop(0))

    daemon.on(CANCEL, cancel)
    daemon.on(LOOK, look)

    done = await llmctl(daemon.socket, "cancel", replies.ID, "--wait")

    assert (0, f"{replies.ID} {expected}\n", "") == (done.code, done.out, done.err)


async def test_a_request_that_has_finished_is_left_alone(daemon: FakeDaemon) -> None:
    """There is nothing to wait for, and the outcome is told."""
    finished = replies.request(
        outcome=Outcome.COMPLETED, cancelled_by=None, cancel=None, resolution=None, settled_ms=None
    )
    daemon.answer(CANCEL, finished)

    done = await llmctl(daemon.socket, "cancel", replies.ID, "--wait")

    assert (0, f"{replies.ID} had finished before: completed\n") == (done.code, done.out)
    assert [CANCEL] == daemon.asked


async def test_a_request_in_the_queue_is_over_at_once(daemon: FakeDaemon) -> None:
    """That the first answer is the last one does not make it a cancellation that came too late."""
    queued = replies.request(
        worker=None,
        cancel=CancelRecord(answered_by=AnsweredBy.QUEUE, elapsed_ms=0.02),
        resolution=Resolution.QUEUED,
        settled_ms=0.02,
    )
    daemon.answer(CANCEL, queued)

    done = await llmctl(daemon.socket, "cancel", replies.ID)

    expected = "cancelled after <0.1 ms (answered by queue); no worker had it yet"
    assert (0, f"{replies.ID} {expected}\n") == (done.code, done.out)


async def test_cancel_in_json_is_the_request(daemon: FakeDaemon) -> None:
    """As the daemon said it."""
    daemon.answer(CANCEL, replies.cancelling(), status=202)

    done = await llmctl(daemon.socket, "cancel", replies.ID, "--json")

    found = msgspec.json.decode(done.out, type=RequestInfo)
    assert (replies.cancelling(), RequestState.CANCELLING) == (found, found.state)


async def test_an_unknown_request_is_refused(daemon: FakeDaemon) -> None:
    """The daemon's message, and a failure's exit status."""
    done = await llmctl(daemon.socket, "cancel", "req_x")

    expected = "llmctl: cannot find POST /api/v1/requests/req_x/cancel\n"
    assert (1, expected) == (done.code, done.err)
