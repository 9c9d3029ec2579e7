"""What an operator sees and does over the API, with real workers in the slots."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from supervisord_llm.client import ApiError, LogStream
from supervisord_llm.core.words import (
    CancelledBy,
    Outcome,
    RejectReason,
    RequestState,
    SlotState,
)
from supervisord_llm.events import (
    ControlOperation,
    RequestFinished,
    WorkerParked,
    WorkerQuarantined,
    WorkerReady,
)
from supervisord_llm.schema import Finished, LogLine, Started, Token
from tests.api.house import ask, house, next_of, read
from tests.harness import QUICK, SCRIPTS, SECONDS

SLOW = "x sim.tokens=100000 sim.tps=200"


async def read_lines(stream: LogStream, count: int) -> list[LogLine]:
    """Read so many lines."""
    found: list[LogLine] = []
    with trio.fail_after(SECONDS):
        while len(found) < count:
            line = await anext(stream)
            assert isinstance(line, LogLine)
            found.append(line)
    return found


async def test_quarantine_takes_out_one_worker(tmp_path: Path) -> None:
    """Its request is cancelled by the operator, its neighbour's completes, the slot comes back."""
    async with (
        house(tmp_path, workers=2) as at,
        at.client.generate(ask("y sim.tokens=200 sim.tps=100")) as other,
    ):
        neighbour = await next_of(other, Started)
        async with at.client.generate(ask(SLOW)) as stream:
            started = await next_of(stream, Started)
            await next_of(stream, Token)
            reply = await at.client.quarantine(started.worker)
            assert (started.worker, SlotState.QUARANTINED, 1) == (
                reply.slot,
                reply.state,
                reply.generation,
            )
            finished = await next_of(stream, Finished)
        assert (Outcome.CANCELLED, CancelledBy.OPERATOR) == (
            finished.outcome,
            finished.cancelled_by,
        )
        await at.wait(WorkerReady, 3)
        text, ended = await read(other)
        [quarantined], [operation] = at.all(WorkerQuarantined), at.all(ControlOperation)
    assert (200, Outcome.COMPLETED) == (len(text.split()), ended.outcome)
    assert neighbour.worker != started.worker
    assert (started.worker, "operator") == (quarantined.worker, quarantined.reason)
    assert ("quarantine", started.worker, "accepted") == (
        operation.verb,
        operation.target,
        operation.outcome,
    )
    assert 2 == len(at.all(RequestFinished))


async def test_a_parked_slot_tells_why_and_can_be_resumed(tmp_path: Path) -> None:
    """Reason, last exit and last lines are there, in its log all its generations' words."""
    model = tmp_path / "model"
    loads = f"test -e {model} && exec {SCRIPTS}/sllm-sim-worker"
    script = f"{loads}; echo cannot find {model} >&2; exit 3"
    settings = 'restart = { backoff_initial = "10ms", backoff_max = "10ms", max_restarts = 2 }'
    complaint = f"cannot find {model}"
    async with house(
        tmp_path, settings=settings, ready=False, command=["/bin/sh", "-c", script]
    ) as at:
        parked = await at.wait(WorkerParked)
        worker = await at.client.worker("sim.0")
        assert (SlotState.PARKED, "unexpected_exit", None) == (
            worker.state,
            worker.reason,
            worker.pid,
        )
        assert worker.last_exit is not None
        assert ("exit:3", [complaint]) == (worker.last_exit.exit, worker.last_exit.last_lines)
        assert [complaint] == parked.last_lines

        remedy = "it is parked and has no worker; `llmctl resume` starts one"
        with pytest.raises(ApiError, match=rf"cannot quarantine sim\.0: {remedy}"):
            await at.client.quarantine("sim.0")
        with pytest.raises(ApiError, match=r"sim\.0 parked \(unexpected_exit, exit:3\)"):
            async with at.client.generate(ask("x")):
                pass

        model.touch()
        assert SlotState.STARTING is (await at.client.resume("sim.0")).state
        await at.wait_serving(1)
        async with at.client.generate(ask("x sim.tokens=2")) as stream:
            text, _ = await read(stream)
        async with at.client.logs("sim.0") as log:
            lines = await read_lines(log, 3)
    assert "t0 t1" == text.strip()
    assert [(1, 1, complaint), (2, 2, complaint), (3, 3, complaint)] == [
        (line.number, line.generation, line.text) for line in lines
    ]


async def test_a_slot_of_a_drained_pool_cannot_be_resumed_alone(tmp_path: Path) -> None:
    """It would be stopped again at once; the message says what brings it back."""
    async with house(tmp_path) as at:
        await at.client.drain_pool("sim", wait=True)
        with pytest.raises(ApiError, match="`llmctl resume sim` brings it back") as refused:
            await at.client.resume("sim.0")
        assert refused.value.code == RejectReason.POOL_UNAVAILABLE
        assert at.supervisor.slots["sim.0"].generation == 1


async def test_resume_leaves_a_slot_in_service_alone(tmp_path: Path) -> None:
    """Its running request goes on, its worker stays."""
    async with (
        house(tmp_path) as at,
        at.client.generate(ask("x sim.tokens=50 sim.tps=100")) as stream,
    ):
        await next_of(stream, Token)
        assert SlotState.BUSY is (await at.client.resume("sim.0")).state
        _, finished = await read(stream)
    assert Outcome.COMPLETED == finished.outcome
    assert 1 == len(at.all(WorkerReady))


async def test_a_log_is_followed_while_it_is_written(tmp_path: Path) -> None:
    """What was there before is not asked for; what the worker says comes; then nothing is left."""
    async with house(tmp_path) as at:
        async with at.client.logs("sim.0", follow=True, lines=0) as log:
            async with at.client.generate(ask("x sim.tokens=1 sim.stderr=3")) as stream:
                await read(stream)
            live = await read_lines(log, 3)
        async with at.client.logs("sim.0", lines=2) as log:
            last = [line async for line in log]
    assert {1} == {line.generation for line in live}
    assert live[1:] == last


async def test_the_queue_moves_up(tmp_path: Path) -> None:
    """Those that wait are numbered from the next one; who leaves makes room."""
    settings = QUICK + "queue.max_queued = 10\n"
    async with (
        house(tmp_path, settings=settings) as at,
        at.client.generate(ask(SLOW)) as running,
        at.client.generate(ask("y")) as first,
        at.client.generate(ask("z")) as second,
    ):
        await next_of(running, Token)
        ids = [stream.accepted.id for stream in (running, first, second)]
        before = (await at.client.requests()).requests
        await at.client.cancel(first.accepted.id, wait=True)
        after = (await at.client.requests()).requests
        alone = await at.client.request(second.accepted.id)
    streaming, queued, finished = (
        RequestState.STREAMING,
        RequestState.QUEUED,
        RequestState.FINISHED,
    )
    assert [(ids[0], streaming, None), (ids[1], queued, 1), (ids[2], queued, 2)] == [
        (each.id, each.state, each.position) for each in before
    ]
    assert [(ids[1], finished, None), (ids[0], streaming, None), (ids[2], queued, 1)] == [
        (each.id, each.state, each.position) for each in after
    ]
    assert 1 == alone.position
