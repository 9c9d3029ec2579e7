from __future__ import annotations

import msgspec
import pytest

from supervisord_llm.core.words import SlotState
from supervisord_llm.schema import PoolReply, SlotReply, WorkerInfo, Workers
from tests.cli.command import llmctl
from tests.client import replies
from tests.client.fake_daemon import Exchange, FakeDaemon

TAKEN = PoolReply(
    pool="smollm",
    target=2,
    standby=0,
    drained=False,
    reloading=True,
    revision=4,
    states={SlotState.READY: 1, SlotState.DRAINING: 1},
)
DRAINED = SlotReply(slot="smollm.0", state=SlotState.DRAINING, generation=3)
FRESH = replies.worker("smollm.0", revision=4)


@pytest.mark.parametrize(
    ("arguments", "asked", "body", "told"),
    [
        (
            ["reload", "smollm"],
            "reload",
            b"",
            "smollm: its workers are replaced, one after the other (ready=1,draining=1)\n",
        ),
        (
            ["drain", "smollm"],
            "drain",
            b"",
            (
                'smollm: it finishes what it has and takes nothing new; "llmctl resume smollm" '
                "brings it back (ready=1,draining=1)\n"
            ),
        ),
        (
            ["drain", "smollm", "--wait"],
            "drain?wait=true",
            b"",
            (
                'smollm: it has finished and takes nothing new; "llmctl resume smollm" brings it '
                "back (ready=1,draining=1)\n"
            ),
        ),
        (["resume", "smollm"], "resume", b"", "smollm: resumed (ready=1,draining=1)\n"),
        (
            ["scale", "smollm", "2"],
            "scale",
            b'{"workers":2}',
            "smollm: it is to have 2 workers (ready=1,draining=1)\n",
        ),
    ],
)
async def test_a_command_for_a_pool_tells_what_it_does_now(
    daemon: FakeDaemon, arguments: list[str], asked: str, body: bytes, told: str
) -> None:
    """In a sentence, or as the daemon said it."""
    path = f"POST /api/v1/pools/smollm/{asked}"
    daemon.answer(path.partition("?")[0], TAKEN, status=202)

    done = await llmctl(daemon.socket, *arguments)
    as_json = await llmctl(daemon.socket, *arguments, "--json")

    assert (0, told, "") == (done.code, done.out, done.err)
    assert TAKEN == msgspec.json.decode(as_json.out, type=PoolReply)
    assert [path] * 2 == daemon.asked
    assert {body} == {exchange.body for exchange in daemon.exchanges}


async def test_the_only_pool_need_not_be_named_to_reload_it(daemon: FakeDaemon) -> None:
    """Where there are several, a choice is asked for."""
    daemon.answer("POST /api/v1/pools/smollm/reload", TAKEN, status=202)
    daemon.answer("GET /api/v1/status", replies.STATUS)
    alone = await llmctl(daemon.socket, "reload")
    other = msgspec.structs.replace(replies.POOL_SUMMARY, name="other")
    status = msgspec.structs.replace(replies.STATUS, pools=[replies.POOL_SUMMARY, other])
    daemon.answer("GET /api/v1/status", status)
    several = await llmctl(daemon.socket, "reload")

    assert 0 == alone.code
    assert (2, True) == (
        several.code,
        "There are several pools, name the one to reload: smollm, other.\n" in several.err,
    )


@pytest.mark.parametrize("arguments", [["reload", "smollm"], ["scale", "smollm", "2"]])
async def test_a_change_that_is_waited_for_is_done(
    daemon: FakeDaemon, arguments: list[str]
) -> None:
    """Other pools' workers do not matter, and neither does one that was stopped on purpose."""
    verb = arguments[0]
    daemon.answer(f"POST /api/v1/pools/smollm/{verb}", TAKEN)
    stopped = replies.worker("smollm.1", state=SlotState.STOPPED, revision=3)
    other = replies.worker("other.0", pool="other", state=SlotState.PARKED)
    daemon.answer("GET /api/v1/workers", Workers(workers=[FRESH, stopped, other]))

    done = await llmctl(daemon.socket, *arguments, "--wait")

    assert (0, "smollm: done (ready=1,draining=1)\n", "") == (done.code, done.out, done.err)
    assert f"POST /api/v1/pools/smollm/{verb}?wait=true" == daemon.asked[0]


@pytest.mark.parametrize(
    ("worker", "complaint"),
    [
        (
            replies.worker("smollm.1", revision=3),
            (
                "smollm.1 goes on with its old worker: the one that was to replace it failed; see "
                '"llmctl events", mend the cause, and reload again'
            ),
        ),
        (
            replies.worker("smollm.1", state=SlotState.PARKED, revision=4, reason="load_timeout"),
            (
                "smollm.1 is parked because its workers failed too often (load_timeout: it was not "
                'ready in time); mend the cause, then run "llmctl resume smollm.1"'
            ),
        ),
        (
            replies.worker("smollm.1", state=SlotState.BACKOFF, revision=4, reason="spawn_failed"),
            (
                "smollm.1 is in backoff (spawn_failed: it could not be started); see "
                '"llmctl logs smollm.1"'
            ),
        ),
    ],
)
async def test_a_worker_that_did_not_follow_is_told(
    daemon: FakeDaemon, worker: WorkerInfo, complaint: str
) -> None:
    """The exit status says that not all is done, the complaint what to do."""
    daemon.answer("POST /api/v1/pools/smollm/reload", TAKEN)
    daemon.answer("GET /api/v1/workers", Workers(workers=[FRESH, worker]))

    done = await llmctl(daemon.socket, "reload", "smollm", "--wait")

    assert (1, "smollm: not all is done (ready=1,draining=1)\n") == (done.code, done.out)
    assert f"llmctl: {complaint}\n" == done.err


async def test_a_slot_is_drained(daemon: FakeDaemon) -> None:
    """Without --wait it tells that it has begun, with it that the worker is gone."""
    states = iter([SlotState.BUSY, SlotState.DRAINING, SlotState.STOPPED])
    daemon.answer("POST /api/v1/workers/smollm.0/drain", DRAINED, status=202)

    async def worker(exchange: Exchange) -> None:
        await exchange.reply(replies.worker(state=next(states)))

    daemon.on("GET /api/v1/workers/smollm.0", worker)
    next(states)

    begun = await llmctl(daemon.socket, "drain", "smollm.0")
    done = await llmctl(daemon.socket, "drain", "smollm.0", "--wait")

    back = '"llmctl resume smollm.0" brings it back\n'
    assert (0, f"smollm.0 draining: it finishes what it has and takes nothing new; {back}") == (
        begun.code,
        begun.out,
    )
    assert (0, f"smollm.0 stopped: {back}", "smollm.0 draining\n") == (
        done.code,
        done.out,
        done.err,
    )


async def test_a_slot_that_was_resumed_meanwhile_is_not_drained(daemon: FakeDaemon) -> None:
    """Whoever waits for its end is told that it will not come."""
    daemon.answer("POST /api/v1/workers/smollm.0/drain", DRAINED, status=202)
    daemon.answer("GET /api/v1/workers/smollm.0", replies.worker())

    done = await llmctl(daemon.socket, "drain", "smollm.0", "--wait")

    assert (1, 'llmctl: smollm.0 is ready (no reason given); see "llmctl logs smollm.0"\n') == (
        done.code,
        done.err,
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["drain"], "Missing argument 'POOL|SLOT'."),
        (["scale", "smollm"], "Missing argument 'WORKERS'."),
        (["scale", "smollm", "0"], "0 is not in the range 1<=x<=1024."),
        (["config", "check"], "'check' is not 'reload'."),
    ],
)
async def test_wrong_usage_changes_nothing(
    daemon: FakeDaemon, arguments: list[str], message: str
) -> None:
    """Exit status 2, and the message names what is wrong."""
    done = await llmctl(daemon.socket, *arguments)

    assert (2, True) == (done.code, message in done.err)
    assert [] == daemon.asked
