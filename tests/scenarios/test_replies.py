"""Replies that no worker should write; the functions have the scenarios' names."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisord_llm.core.words import FinishReason, Outcome
from supervisord_llm.events import (
    RequestFinished,
    RequestStarted,
    WorkerQuarantined,
    WorkerReady,
    WorkerReaped,
    WorkerRestartScheduled,
)
from supervisord_llm.runtime.request import RequestSpec
from tests.harness import QUICK, bench, read_all
from tests.scenarios.puppet import puppet

READY = '{"ready": true, "supports_cancel": true}'
DONE = '{"done": true, "prompt_tokens": 1, "completion_tokens": 1, "finish_reason": "stop"}'
PROBES = 'health = { probe_interval = "100ms", probe_timeout = "2s" }\n' + QUICK


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("ready", "not JSON"),
        ("[true]", "not a JSON object"),
        ("", "not JSON"),
        ('{"ready": 0}', "says that it is not ready"),
        ('{"ready": true, "multiplexed": true}', "the multiplexed dialect"),
        ('{"ready": true, "max_sessions": -1}', "a malformed 'ready' message"),
        ('{"ready": true, "max_named_sessions": 1e999}', "JSON with a number out of range"),
        ('{"ready": true, "ready": true}', "with the key 'ready' twice"),
        ('{"token": "t"}', "something else before the ready line"),
        (DONE, "something else before the ready line"),
    ],
)
async def test_bad_ready(tmp_path: Path, line: str, says: str) -> None:
    """The worker is reaped, its pipes are closed, the evidence is told, and the slot backs off."""
    async with bench(tmp_path, command=puppet(line), ready=False) as made:
        quarantined = await made.events.wait(WorkerQuarantined)
        assert quarantined.reason == "protocol_error"
        assert says in (quarantined.detail or "")
        await made.events.wait(WorkerReaped)
        await made.events.wait(WorkerRestartScheduled)
        assert made.events.all(WorkerReady) == []


@pytest.mark.parametrize(
    "line",
    ['{"ready": 1}', '{"ready": "yes"}', '{"ready": true, "multiplexed": "true", "more": []}'],
)
async def test_truthy_ready(tmp_path: Path, line: str) -> None:
    """Anything truthy is ready, as upstream has it; other flags count only as a literal true."""
    async with bench(tmp_path, command=puppet(line, '{"token": "t"}', DONE)) as made:
        text, record = await made.generate("x")
        assert (text, record.outcome) == ("t", Outcome.COMPLETED)
        assert made.slot().dialect == "serial"


async def test_log_line_on_stdout(tmp_path: Path) -> None:
    """Text between tokens fails its request and the worker, and is shown to the operator."""
    async with bench(tmp_path) as made:
        text, record = await made.generate("x sim.garbage sim.at=2")
        assert (text, record.outcome, record.error) == ("t0 t1 ", Outcome.FAILED, "protocol_error")
        [quarantined] = made.events.all(WorkerQuarantined)
        assert quarantined.detail == record.detail == "not JSON: this is not JSON"
        await made.events.wait(WorkerReady, generation=2)


async def test_oversized_line(tmp_path: Path) -> None:
    """Ten million bytes without an end of line: no more than the limit is kept, nor delivered."""
    async with bench(tmp_path) as made:
        text, record = await made.generate("x sim.big_line=10000000 sim.at=1 sim.tokens=3")
        assert (text, record.error) == ("t0 ", "protocol_error")
        assert "a line over max_line (1048576 bytes)" in (record.detail or "")
        assert len(record.detail or "") < 500
        await made.events.wait(WorkerReady, generation=2)
        _, record = await made.generate("x sim.big_line=1000000 sim.tokens=1")
        assert record.outcome is Outcome.COMPLETED


async def test_partial_line_at_exit(tmp_path: Path) -> None:
    """Half an object and an exit with status 0: a failure, and the half is not delivered."""
    async with bench(tmp_path) as made:
        text, record = await made.generate("x sim.half_line sim.at=1")
        assert (text, record.error) == ("t0 ", "worker_exited")
        assert "ended in the middle of a line: exit:0" in (record.detail or "")
        await made.events.wait(WorkerReady, generation=2)


@pytest.mark.parametrize(
    ("options", "prompt", "says"),
    [
        ("", "x sim.tokens=2 sim.two_dones", "a terminal that belongs to no request"),
        ("", "x sim.tokens=2 sim.stray_done=50", "a terminal that belongs to no request"),
        ("--stray_done=50", "", "a terminal that belongs to no request"),
        ("--wrong_nonce", "", "a pong without its ping"),
        ("--no_ping --wrong_session", "", "acknowledges a 'close' that was not asked"),
    ],
    ids=["second", "late", "unasked", "nonce", "session"],
)
async def test_wrong_id_reply(tmp_path: Path, options: str, prompt: str, says: str) -> None:
    """It ends the generation of the worker; what was answered before stays as it is."""
    async with bench(tmp_path, options, settings=PROBES) as made:
        if prompt:
            text, record = await made.generate(prompt)
            assert (text, record.outcome) == ("t0 t1 ", Outcome.COMPLETED)
        quarantined = await made.events.wait(WorkerQuarantined)
        assert (quarantined.reason, quarantined.requests) == ("protocol_error", [])
        assert says in (quarantined.detail or "")
        await made.events.wait(WorkerReaped)
        assert len(made.events.all(RequestFinished)) == (1 if prompt else 0)


async def test_second_terminal_before_the_next_request(tmp_path: Path) -> None:
    """Two terminals in one read: the request that waits is never given to such a worker."""
    async with (
        bench(tmp_path, command=puppet(READY, f"{DONE}|{DONE}")) as made,
        made.pool.request(RequestSpec(prompt="x")) as first,
        made.pool.request(RequestSpec(prompt="y")) as waiting,
    ):
        _, record = await read_all(first)
        assert record.outcome is Outcome.COMPLETED
        await made.events.wait(WorkerQuarantined)
        started = await made.events.wait(RequestStarted, request=waiting.request.id)
        assert started.generation == 2
        await read_all(waiting)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ('"finish_reason": "length", "cancelled": true', "cancelled, but with finish_reason"),
        ('"finish_reason": "tired"', "a malformed 'done' message"),
        ('"finish_reason": "stop", "prefill_ms": NaN', "not JSON"),
        ('"finish_reason": "stop", "prefill_ms": -1', "a malformed 'done' message"),
        ('"finish_reason": "stop", "reused_prompt_tokens": 2', "reused more prompt tokens"),
        ('"finish_reason": "stop", "reused_prompt_tokens": -2', "a malformed 'done' message"),
        ('"finish_reason": "stop", "error": "both"', "a message of several kinds (done, error)"),
        ('"finish_reason": "stop", "done": true', "with the key 'done' twice"),
    ],
)
async def test_inconsistent_terminal(tmp_path: Path, fields: str, says: str) -> None:
    """A terminal that contradicts itself is no terminal: the request fails, the worker goes."""
    done = f'{{"done": true, "prompt_tokens": 1, "completion_tokens": 1, {fields}}}'
    async with bench(tmp_path, command=puppet(READY, '{"token": "t"}', done)) as made:
        text, record = await made.generate("x")
        assert (text, record.outcome, record.error) == ("t", Outcome.FAILED, "protocol_error")
        assert says in (record.detail or "")
        await made.events.wait(WorkerReady, generation=2)


async def test_stop_string_split(tmp_path: Path) -> None:
    """A stop string that spans three tokens: nothing of it is seen, and the worker serves on."""
    async with bench(tmp_path) as made:
        pid = made.slot().pid
        prompt = "x sim.text=a_b_E_N_D_c"
        text, record = await made.generate(prompt, stop=("E N D",))
        assert (text, record.finish_reason) == ("a b ", FinishReason.STOP)
        text, record = await made.generate(prompt)
        assert (text, record.finish_reason) == ("a b E N D c", FinishReason.STOP)
        assert made.slot().pid == pid


async def test_closed_stdout(tmp_path: Path) -> None:
    """A worker that lives on without a stdout is found out, not waited for."""
    async with bench(tmp_path) as made:
        text, record = await made.generate("x sim.close_stdout sim.at=1")
        assert (text, record.error) == ("t0 ", "protocol_error")
        assert record.detail == "closed its stdout but is still running"
        await made.events.wait(WorkerReady, generation=2)
