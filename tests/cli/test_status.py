from __future__ import annotations

import msgspec
import trio

from supervisord_llm.core.words import SlotState
from supervisord_llm.schema import ModelInfo, Pools, Status
from tests.cli.command import at_terminal, llmctl
from tests.client import replies
from tests.client.fake_daemon import FakeDaemon

SECOND = msgspec.structs.replace(
    replies.POOL_SUMMARY, name="a", ready=False, states={SlotState.PARKED: 1}, queued=12
)


async def test_status_fits_on_a_screen(daemon: FakeDaemon) -> None:
    """Who runs since when with which configuration, how the pools are, what was done."""
    status = msgspec.structs.replace(replies.STATUS, pools=[replies.POOL_SUMMARY, SECOND])
    daemon.answer("GET /api/v1/status", status)

    done = await llmctl(daemon.socket, "status")

    assert (0, "") == (done.code, done.err)
    expected = """\
supervisord-llm 0.1.0 running for 3m12s, pid 4711
configuration /etc/supervisord-llm.toml

POOL    READY  QUEUED  IN-FLIGHT  WORKERS
smollm  yes         0          1  ready=1,busy=1
a       no         12          1  parked=1

12 accepted, 9 completed, 2 cancelled, 1 failed, 0 rejected, 3 restarts
"""
    assert expected == done.out


async def test_json_is_one_line_for_programs_and_laid_out_for_people(daemon: FakeDaemon) -> None:
    """Both decode to what the daemon said."""
    daemon.answer("GET /api/v1/status", replies.STATUS)

    piped = await llmctl(daemon.socket, "status", "--json")
    shown = await at_terminal(daemon.socket, "status", "--json")

    assert 1 == piped.out.count("\n")
    assert shown.out.count("\n") > 10
    for done in (piped, shown):
        assert replies.STATUS == msgspec.json.decode(done.out, type=Status)


async def test_pools_show_their_models(daemon: FakeDaemon) -> None:
    """What is unusual with a pool is one word; what is not known is a dash; the columns stay."""
    silent = msgspec.structs.replace(
        replies.POOL,
        name="new",
        ready=False,
        required=False,
        drained=True,
        loaded=False,
        states={},
        in_flight=0,
        model=None,
    )
    bare = msgspec.structs.replace(
        replies.POOL, name="bare", standby=1, reloading=True, model=ModelInfo()
    )
    daemon.answer("GET /api/v1/pools", Pools(pools=[replies.POOL, silent, bare]))

    done = await llmctl(daemon.socket, "pools")

    expected = """\
POOL    READY  STATE      TARGET  QUEUED  IN-FLIGHT  WORKERS         CONTEXT  MODEL
smollm  yes    -               2       0          1  ready=1,busy=1     8192  SmolLM2 135M Instruct Q4_1
new     no     drained         2       0          0  -                     -  -
bare    yes    reloading     2+1       0          1  ready=1,busy=1        -  (no chat template)
"""  # noqa: E501 - it is as wide as that
    assert (0, expected, "") == (done.code, done.out, done.err)


async def test_pools_in_json_bring_their_configuration(daemon: FakeDaemon) -> None:
    """What is in force is there for programs, not for the table."""
    answer = Pools(pools=[replies.POOL])
    daemon.answer("GET /api/v1/pools", answer)

    done = await llmctl(daemon.socket, "pools", "--json")

    assert answer == msgspec.json.decode(done.out, type=Pools)


async def test_a_terminal_gets_colours(daemon: FakeDaemon) -> None:
    """The same table, with states that catch the eye."""
    daemon.answer("GET /api/v1/status", replies.STATUS)

    done = await at_terminal(daemon.socket, "status")

    assert "\x1b[32myes" in done.out
    assert "\x1b[36mbusy=1\x1b[0m" in done.out


async def test_a_full_disk_is_told(daemon: FakeDaemon) -> None:
    """What cannot be written is a failure, in one line."""
    daemon.answer("GET /api/v1/status", replies.STATUS)

    async with await trio.open_file("/dev/full", "wb") as full:
        done = await llmctl(daemon.socket, "status", stdout=full.fileno())

    assert (1, "llmctl: cannot write the output: No space left on device\n") == (
        done.code,
        done.err,
    )
