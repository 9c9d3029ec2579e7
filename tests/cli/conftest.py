from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.client.fake_daemon import FakeDaemon, fake_daemon


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncGenerator[FakeDaemon]:
    """A daemon that knows no route yet."""
    async with fake_daemon(tmp_path) as daemon:
        yield daemon
