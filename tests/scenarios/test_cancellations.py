"""A cancellation that meets something else at a bad moment; the functions have scenarios' names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import trio

from supervisord_llm.core.words import CancelledBy, Outcome, Resolution
from supervisord_llm.events import (
    CancelDelivered,
    CancelEscalated,
    CancelRequested,
    CancelSettled,
    RequestFirstToken,
    RequestStarted,
    WorkerLog,
    WorkerQuarantined,
    WorkerReady,
    WorkerReaped,
    WorkerSignalled,
)
from supervisord_llm.runtime.request import RequestSpec
from tests.harness import QUICK, SECONDS, bench, read_all, read_tokens
from tests.native import sim
from tests.scenarios.puppet import puppet

LONG = "x sim.tokens=100000 sim.tps=200"


class Frames:
    """Takes the place of the write to a control pipe, and keeps what was written."""

    def __init__(self) -> None:
        """Nothing was written yet."""
        self.ids: list[int] = []

    def __call__(self, descriptor: int, data: bytes) -> int:
        """Write it, as it would have been."""
        self.ids.append(int.from_bytes(data, "little"))
        return os.write(descriptor, data)


async def test_cancel_before_submit(tmp_path: Path) -> None:
    """A frame that overtakes its request ends it all the same; a queued one costs no byte."""
    frames = Frames()
    async with bench(tmp_path, write=frames) as made:
        async with (
            made.pool.request(RequestSpec(prompt=LONG)) as running,
            made.pool.request(RequestSpec(prompt=LONG)) as queued,
        ):
            # Nothing was awaited since: what the first one asks for is not yet written to stdin.
            running.request.cancel(CancelledBy.API)
            assert frames.ids == [1]
            queued.request.cancel(CancelledBy.API)
            (text, first), (_, second) = await read_all(running), await read_all(queued)
        assert (text, first.outcome, first.answered_by) == ("", Outcome.CANCELLED, "worker")
        assert (second.outcome, second.answered_by) == (Outcome.CANCELLED, "queue")
        assert [event.request for event in made.events.all(RequestStarted)] == [running.request.id]
        assert set(frames.ids) == {1}


async def test_done_then_late_cancel(tmp_path: Path) -> None:
    """What is asked after the end writes no frame and changes nothing, also for the next one."""
    frames = Frames()
    async with bench(tmp_path, write=frames) as made:
        async with made.pool.request(RequestSpec(prompt="x sim.tokens=2")) as stream:
            _, record = await read_all(stream)
            for _ in range(10):
                stream.request.cancel(CancelledBy.API)
            async with made.pool.request(RequestSpec(prompt="y sim.tokens=3 sim.tps=50")) as after:
                await read_tokens(after, 1)
                stream.request.cancel(CancelledBy.OPERATOR)
                _, second = await read_all(after)
        assert (record.outcome, second.outcome) == (Outcome.COMPLETED, Outcome.COMPLETED)
        assert stream.request.record == record
        assert frames.ids == []
        assert made.events.all(CancelRequested) == []


@pytest.mark.parametrize("seam", ["before_detach", "after_flush", "before_read"])
async def test_back_to_back_cancel(tmp_path: Path, seam: str) -> None:
    """The next request's frame comes while the worker is between the two: it is not lost."""
    async with bench(tmp_path) as made:
        pid = made.slot().pid
        # The daemon hears the end before the seam is over, unless the end itself waits for it.
        await made.generate(f"x sim.tokens=1 sim.pause_at={seam}:100")
        async with made.pool.request(RequestSpec(prompt=LONG)) as stream:
            stream.request.cancel(CancelledBy.CLIENT)
            text, record = await read_all(stream)
        assert (text, record.outcome, record.answered_by) == ("", Outcome.CANCELLED, "worker")
        assert made.events.all(WorkerQuarantined) == []
        assert made.slot().pid == pid


async def test_rejected_then_cancel(tmp_path: Path) -> None:
    """A frame for a request that the worker refuses neither sticks nor hits the next one."""
    async with bench(tmp_path) as made:
        pid = made.slot().pid
        async with made.pool.request(RequestSpec(prompt="x sim.no_such_thing")) as refused:
            refused.request.cancel(CancelledBy.API)
            _, first = await read_all(refused)
            async with made.pool.request(RequestSpec(prompt=LONG)) as stream:
                stream.request.cancel(CancelledBy.API)
                _, second = await read_all(stream)
        assert (first.outcome, second.outcome) == (Outcome.CANCELLED, Outcome.CANCELLED)
        assert refused.request.resolution is Resolution.COOPERATIVE
        assert stream.request.resolution is Resolution.COOPERATIVE
        _, third = await made.generate("y sim.tokens=1")
        assert third.outcome is Outcome.COMPLETED
        assert made.slot().pid == pid


def test_stale_cancel() -> None:
    """A frame for an old id in the middle of a new request: it completes, its session is clean."""
    with sim.ready("--sessions", "1") as worker:
        worker.generate("x sim.tokens=1", cancel_request_id=1)
        worker.send(prompt="a sim.tokens=20 sim.tps=200", session_id="s", cancel_request_id=2)
        assert worker.receive() == {"token": "t0 "}
        worker.cancel(1)
        text, done = worker.finish()
        assert (len(text.split()), "cancelled" in done) == (19, False)
        _, again = worker.generate("b sim.tokens=1", session_id="s", cancel_request_id=3)
        assert again["session_reset_reason"] != "dirty"


async def test_control_eof(tmp_path: Path) -> None:
    """A worker that closes its end of the control pipe cannot be asked: straight to SIGTERM."""
    replies = ['{"ready": true, "supports_cancel": true}', "!close-control", '{"token": "t"}']
    async with bench(tmp_path, command=puppet(*replies)) as made:
        async with made.pool.request(RequestSpec(prompt="x")) as stream:
            await read_tokens(stream, 1)
            stream.request.cancel(CancelledBy.API)
            _, record = await read_all(stream)
            await stream.request.wait_settled()
        assert (record.outcome, record.answered_by) == (Outcome.CANCELLED, "grace")
        [quarantined] = made.events.all(WorkerQuarantined)
        assert quarantined.reason == "control_pipe_broken"
        [escalated] = made.events.all(CancelEscalated)
        assert (escalated.to, made.events.all(CancelDelivered)) == ("terminate", [])
        await made.events.wait(WorkerReady, generation=2)


async def test_repeated_cancel_of_cleanup(tmp_path: Path) -> None:
    """The client's task is cancelled over and over while its worker is torn down, once."""
    async with bench(tmp_path) as made:
        scope = trio.CancelScope()
        async with trio.open_nursery() as nursery:

            async def client() -> None:
                with scope:
                    async with made.pool.request(
                        RequestSpec(prompt=LONG + " sim.ignore_cancel sim.ignore_sigterm")
                    ) as stream:
                        await read_tokens(stream, 1)
                        await trio.sleep_forever()

            nursery.start_soon(client)
            started = await made.events.wait(RequestStarted)
            request = made.supervisor.find_request(started.request)
            await made.events.wait(RequestFirstToken)
            for wait in (
                made.events.wait(CancelDelivered),
                made.events.wait(CancelEscalated, to="terminate"),
                made.events.wait(CancelEscalated, to="kill"),
            ):
                for _ in range(4):
                    scope.cancel()
                await wait
        assert scope.cancelled_caught
        with trio.fail_after(SECONDS):
            await request.wait_settled()
        assert request.resolution is Resolution.KILLED
        for kind in (CancelRequested, WorkerQuarantined, WorkerReaped, CancelSettled):
            assert len(made.events.all(kind)) == 1
        assert [event.signal for event in made.events.all(WorkerSignalled, target="pid")] == [
            "SIGTERM"
        ]


@pytest.mark.parametrize("extra", ["", "--no_cancel_prefill"], ids=["inside", "behind"])
async def test_cancel_latency_slo(tmp_path: Path, extra: str) -> None:
    """Cancels anywhere in sixty requests are all heard within the grace: no worker pays for one."""
    async with bench(tmp_path, extra) as made:
        pid = made.slot().pid
        for number in range(60):
            prompt = "x sim.prefill_ms=5 sim.tps=1000 sim.tokens=100000 sim.stderr=1"
            async with made.pool.request(RequestSpec(prompt=prompt)) as stream:
                if number % 3 == 1:  # which the worker writes when its prefill begins
                    await made.events.wait(WorkerLog, count=len(made.events.all(WorkerLog)) + 1)
                elif number % 3 == 2:
                    await read_tokens(stream, number % 7 + 1)
                stream.request.cancel(CancelledBy.API)
                _, record = await read_all(stream)
                with trio.fail_after(SECONDS):
                    await stream.request.wait_settled()
            assert (record.outcome, record.answered_by) == (Outcome.CANCELLED, "worker")
            assert stream.request.resolution is Resolution.COOPERATIVE
        assert made.slot().pid == pid


@pytest.mark.parametrize("policy", ["auto", "off", "required"])
@pytest.mark.parametrize("able", [True, False])
async def test_cancellation_policy(tmp_path: Path, policy: str, able: bool) -> None:
    """Off never asks, required refuses a worker that cannot be asked, auto takes what there is."""
    settings = QUICK.replace("cancel = {", f'cancel = {{ cancellation = "{policy}",')
    options = "" if able else "--no_cancel"
    ready = able or policy != "required"
    async with bench(tmp_path, options, settings=settings, ready=ready) as made:
        if not ready:
            quarantined = await made.events.wait(WorkerQuarantined)
            assert quarantined.reason == "uncancellable"
            assert 'cancel.cancellation is "required"' in (quarantined.detail or "")
            return
        asked = able and policy != "off"
        assert made.slot().dialect == ("serial+cancel" if asked else "serial")
        async with made.pool.request(RequestSpec(prompt=LONG)) as stream:
            await read_tokens(stream, 1)
            stream.request.cancel(CancelledBy.API)
            await read_all(stream)
            await stream.request.wait_settled()
        resolution = Resolution.COOPERATIVE if asked else Resolution.TERMINATED
        assert stream.request.resolution is resolution


def test_dirty_after_cancel() -> None:
    """The next turn of a cancelled session starts cold, says why, and answers as a fresh one."""
    with sim.ready("--sessions", "1") as worker:
        worker.send(prompt=LONG, session_id="s", cancel_request_id=1)
        worker.receive()
        worker.cancel(1)
        _, first = worker.finish()
        assert (first["cancelled"], "generated_token_ids" in first) == (True, False)
        turn = {"prompt": "x y sim.tokens=4", "session_id": "s"}
        text, second = worker.generate(**turn, cancel_request_id=2)
        assert (second["session_reset_reason"], second["reused_prompt_tokens"]) == ("dirty", 0)
    with sim.ready("--sessions", "1") as fresh:
        other, third = fresh.generate(**turn, cancel_request_id=1)
    assert text == other
    assert second["generated_token_ids"] == third["generated_token_ids"]


def test_same_session_order() -> None:
    """A reset waits for the terminal of what is cancelled before it; what follows starts cold."""
    with sim.ready("--sessions", "1") as worker:
        worker.send(prompt=LONG, session_id="s", cancel_request_id=1)
        worker.receive()
        worker.send(op="reset", session_id="s")
        worker.send(prompt="x sim.tokens=2", session_id="s", cancel_request_id=2)
        worker.cancel(1)
        _, first = worker.finish()
        assert first["cancelled"] is True
        assert worker.receive() == {"reset": True, "session_id": "s"}
        text, third = worker.finish()
        assert (text, third["reused_prompt_tokens"]) == ("t0 t1 ", 0)
