from __future__ import annotations

import msgspec
import pytest

from supervisord_llm.core.words import SlotState
from supervisord_llm.schema import SlotReply, WorkerInfo
from tests.cli.command import llmctl
from tests.client import replies
from tests.client.fake_daemon import Exchange, FakeDaemon

RELOADED = SlotReply(slot="smollm.0", state=SlotState.DRAINING, generation=3)


async def test_reload_returns_at_once(daemon: FakeDaemon) -> None:
    """Without --wait it tells only that it has begun."""
    daemon.answer("POST /api/v1/workers/smollm.0/reload", RELOADED, status=202)

    done = await llmctl(daemon.socket, "reload", "smollm.0")

    assert (0, "smollm.0 draining: generation 3 is replaced\n", "") == (
        done.code,
        done.out,
        done.err,
    )
    assert ["POST /api/v1/workers/smollm.0/reload"] == daemon.asked


def on_the_way(daemon: FakeDaemon, *workers: WorkerInfo) -> None:
    """Let the slot be in these states, one after the other, and stay in the last."""
    answers = list(workers)

    async def worker(exchange: Exchange) -> None:
        await exchange.reply(answers.pop(0) if len(answers) > 1 else answers[0])

    daemon.answer("POST /api/v1/workers/smollm.0/reload", RELOADED, status=202)
    daemon.on("GET /api/v1/workers/smollm.0", worker)


async def test_reload_can_wait_for_the_next_generation(daemon: FakeDaemon) -> None:
    """The old generation's readiness is not mistaken for the new one's."""
    on_the_way(
        daemon,
        replies.worker(state=SlotState.CANCELLING),
        replies.worker(state=SlotState.DRAINING),
        replies.worker(state=SlotState.STARTING, generation=4),
        replies.worker(generation=4),
    )

    done = await llmctl(daemon.socket, "reload", "smollm.0", "--wait")

    assert (0, "smollm.0 ready: generation 4\n") == (done.code, done.out)
    assert [
        "smollm.0 cancelling",
        "smollm.0 draining",
        "smollm.0 starting",
    ] == done.err.splitlines()


@pytest.mark.parametrize("as_json", [False, True])
async def test_reload_fails_when_the_slot_stays_down(daemon: FakeDaemon, as_json: bool) -> None:
    """A parked slot needs an operator, who is told why and where to look."""
    parked = replies.worker(state=SlotState.PARKED, generation=9, pid=None, reason="load_timeout")
    on_the_way(daemon, parked)

    options = ["--json"] if as_json else []
    done = await llmctl(daemon.socket, "reload", "smollm.0", "--wait", *options)

    expected = (
        "llmctl: smollm.0 is parked because its workers failed too often (load_timeout: it was not "
        'ready in time); mend the cause, then run "llmctl resume smollm.0"\n'
    )
    assert (1, expected) == (done.code, done.err)
    if as_json:
        assert parked == msgspec.json.decode(done.out, type=WorkerInfo)


async def test_an_unknown_slot_is_the_daemons_to_refuse(daemon: FakeDaemon) -> None:
    """Its message is passed on."""

    async def refuse(exchange: Exchange) -> None:
        await exchange.refuse(404, "not_found", 'cannot find slot "x.9"; see the list of workers')

    daemon.on("POST /api/v1/workers/x.9/reload", refuse)

    done = await llmctl(daemon.socket, "reload", "x.9")

    assert (1, 'llmctl: cannot find slot "x.9"; see the list of workers\n') == (done.code, done.err)


@pytest.mark.parametrize(
    ("verb", "state", "told"),
    [
        ("quarantine", SlotState.QUARANTINED, "generation 3 is torn down"),
        ("resume", SlotState.STARTING, "resumed"),
    ],
)
async def test_a_command_tells_what_the_slot_does_now(
    daemon: FakeDaemon, verb: str, state: SlotState, told: str
) -> None:
    """In a sentence, or as the daemon said it."""
    reply = SlotReply(slot="smollm.0", state=state, generation=3)
    daemon.answer(f"POST /api/v1/workers/smollm.0/{verb}", reply, status=202)

    done = await llmctl(daemon.socket, verb, "smollm.0")
    as_json = await llmctl(daemon.socket, verb, "smollm.0", "--json")

    assert (0, f"smollm.0 {state}: {told}\n", "") == (done.code, done.out, done.err)
    assert reply == msgspec.json.decode(as_json.out, type=SlotReply)
    assert [f"POST /api/v1/workers/smollm.0/{verb}"] * 2 == daemon.asked


async def test_a_slot_that_stays_stopped_has_a_log_to_look_at(daemon: FakeDaemon) -> None:
    """Not every slot that is down is parked."""
    on_the_way(daemon, replies.worker(state=SlotState.STOPPED, pid=None, reason="shutdown"))

    done = await llmctl(daemon.socket, "reload", "smollm.0", "--wait")

    expected = (
        'llmctl: smollm.0 is stopped (shutdown: the daemon stops); see "llmctl logs smollm.0"\n'
    )
    assert (1, expected) == (done.code, done.err)
