"""Which names a session can have."""

from __future__ import annotations

import pytest

from supervisord_llm.wire.messages import PROBE_SESSION, valid_session_id


@pytest.mark.parametrize("name", ["s", "chat 7/ä", "x" * 1024, "é" * 512, "__probe", "🙂"])
def test_a_name_that_workers_take(name: str) -> None:
    """Up to 1024 bytes of printable text."""
    assert valid_session_id(name)


@pytest.mark.parametrize(
    "name",
    ["", "x" * 1025, "é" * 513, PROBE_SESSION, "a\nb", "\x1b[2J", "\x00", "\ud800", "\u202e"],
)
def test_a_name_that_no_session_can_have(name: str) -> None:
    """Empty, too long in bytes, the probe's, or not fit to be shown."""
    assert not valid_session_id(name)
