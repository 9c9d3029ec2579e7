"""Who may queue."""

from __future__ import annotations

import pytest

from supervisord_llm.core import admission
from supervisord_llm.core.words import RejectReason


@pytest.mark.parametrize(
    ("queued", "can_serve", "stopping", "expected"),
    [
        (0, True, False, None),
        (1, True, False, None),
        (2, True, False, RejectReason.QUEUE_FULL),
        (3, True, False, RejectReason.QUEUE_FULL),
        (0, False, False, RejectReason.POOL_UNAVAILABLE),
        (2, False, False, RejectReason.POOL_UNAVAILABLE),
        (0, True, True, RejectReason.SHUTTING_DOWN),
        (2, False, True, RejectReason.SHUTTING_DOWN),
    ],
)
def test_a_request_is_refused_for_the_gravest_reason(
    queued: int, expected: RejectReason | None, *, can_serve: bool, stopping: bool
) -> None:
    """Shutting down before no slot that could ever serve, and that before a full queue."""
    assert expected == admission.refusal(queued, 2, can_serve=can_serve, stopping=stopping)
