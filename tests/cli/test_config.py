from __future__ import annotations

import msgspec
import pytest

from supervisord_llm.schema import ConfigChange
from tests.cli.command import llmctl
from tests.client.fake_daemon import Exchange, FakeDaemon

RELOAD = "POST /api/v1/config/reload"
NOTHING = ConfigChange(digest="ab12", differences=[], needs_restart=[], warnings=[])
CHANGE = ConfigChange(
    digest="cd34",
    differences=["pool smollm: workers 2 -> 3", "pool new: added"],
    needs_restart=["daemon.state_dir"],
    warnings=["pool.new.command: no such program; correct it"],
)


@pytest.mark.parametrize(
    ("change", "out", "err"),
    [
        (
            CHANGE,
            (
                "pool smollm: workers 2 -> 3\npool new: added\n"
                "daemon.state_dir: takes effect only when the daemon is started again\n"
            ),
            "warning: pool.new.command: no such program; correct it\n",
        ),
        (NOTHING, "nothing has changed\n", ""),
    ],
)
async def test_the_differences_are_shown(
    daemon: FakeDaemon, change: ConfigChange, out: str, err: str
) -> None:
    """One line each, with what a reload cannot change; or as the daemon said it."""
    daemon.answer(RELOAD, change)

    done = await llmctl(daemon.socket, "config", "reload")
    as_json = await llmctl(daemon.socket, "config", "reload", "--json")

    assert (0, out, err) == (done.code, done.out, done.err)
    assert change == msgspec.json.decode(as_json.out, type=ConfigChange)
    assert [RELOAD] * 2 == daemon.asked


async def test_an_invalid_file_is_refused_with_its_problems(daemon: FakeDaemon) -> None:
    """The daemon's message names them all."""

    async def refuse(exchange: Exchange) -> None:
        await exchange.refuse(400, "invalid_config", "cannot use a.toml: x; y; nothing has changed")

    daemon.on(RELOAD, refuse)

    done = await llmctl(daemon.socket, "config", "reload")

    assert (1, "llmctl: cannot use a.toml: x; y; nothing has changed\n") == (done.code, done.err)
