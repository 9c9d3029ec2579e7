"""Slow is told from stuck: one worker's signs of life against its budgets, in virtual time.

The pipes are real and this process holds both ends of them; the process behind them is a fake that
uses no CPU time but what a test says, so that half an hour is over at once.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest
import trio
from trio.testing import MockClock

from supervisord_llm.config.schema import PoolConfig
from supervisord_llm.config.schema_pool import HealthConfig, LimitsConfig, LoadLimits
from supervisord_llm.core.words import ExitCause, Generation, QuarantineReason
from supervisord_llm.host import memory, usage
from supervisord_llm.runtime.process import Pipes, WorkerProcess
from supervisord_llm.runtime.scans import Scans
from supervisord_llm.runtime.worker import Worker
from supervisord_llm.wire.messages import Generate, Message

CONFIG = PoolConfig(
    command=("engine",),
    load_limits=LoadLimits(timeout=600.0, stall=60.0),
    health=HealthConfig(
        probe_interval=10.0, probe_timeout=5.0, first_token_stall=60.0, token_stall=30.0
    ),
)
TICK = 0.5
"""How late a verdict may be: the interval at which it is looked for."""
MINUTE = 60.0
READY = {"ready": True, "supports_cancel": True}
BEATS = {**READY, "extensions": ["heartbeat"]}
PINGS = {**READY, "extensions": ["ping"]}
BOTH = {**READY, "extensions": ["heartbeat", "ping"]}
ASKED = Generate(prompt="x", max_new_tokens=10)


class Judge:
    """Hears what is said of a worker, like a slot; nothing follows from it."""

    def __init__(self) -> None:
        """Nothing has been said."""
        self.verdicts: list[tuple[QuarantineReason, float]] = []
        """Why the worker is unfit, and when that was found."""
        self.details: list[str] = []
        self.held: list[int] = []

    def on_messages(self, messages: Sequence[Message]) -> None:
        """Taken."""

    def after_read(self) -> None:
        """Nothing to wait for."""

    def on_decoding(self) -> None:
        """Taken."""

    def on_log(self, lines: Sequence[str]) -> None:
        """Taken."""

    def on_unfit(self, reason: QuarantineReason, detail: str) -> None:
        """A verdict; the first one counts."""
        self.verdicts.append((reason, trio.current_time()))
        self.details.append(detail)

    def on_exit(self, cause: ExitCause, *, cut_off: bool) -> None:
        """Taken."""

    def on_usage(self, used: usage.Usage) -> None:
        """Taken."""

    def on_held(self, held: int) -> bool:
        """The soft limit goes on mattering."""
        self.held.append(held)
        return True

    def on_descendants(self) -> None:
        """Taken."""


class Engine:
    """The other side of a worker's pipes, and what its processes seem to have done."""

    def __init__(self, worker: Worker, judge: Judge, stdin: int, stdout: int, stderr: int) -> None:
        """Speak through these ends."""
        self.worker = worker
        self.judge = judge
        self.done: dict[int, int] = {}
        """CPU time and I/O by pid, as far as they are set."""
        self.beats = 0
        self._stdin, self._stdout, self._stderr = stdin, stdout, stderr

    async def say(self, **message: object) -> None:
        """Write a line of the protocol, and let it be heard."""
        os.write(self._stdout, json.dumps(message).encode() + b"\n")
        await trio.testing.wait_all_tasks_blocked()

    async def log(self, line: str) -> None:
        """Write a line to stderr, and let it be heard."""
        os.write(self._stderr, line.encode() + b"\n")
        await trio.testing.wait_all_tasks_blocked()

    async def beat(self, phase: str, *, stuck: bool = False) -> None:
        """Say that the engine made a step; ``stuck``: that it made none since."""
        self.beats += not stuck
        await self.say(heartbeat={"phase": phase, "done": 0, "total": 0, "beats": self.beats})

    async def load(self, **ready: object) -> None:
        """Become ready and idle."""
        await self.say(**ready)
        self.worker.became_idle()

    def heard(self) -> list[dict[str, object]]:
        """What was written to the worker since the last look."""
        try:
            said = os.read(self._stdin, 1 << 20)
        except BlockingIOError:
            return []
        return [json.loads(line) for line in said.splitlines()]

    def ask(self) -> None:
        """Give it a generation."""
        self.worker.became_busy()
        self.worker.channel.generate(ASKED, 1)

    def verdict(self) -> QuarantineReason | None:
        """Why it is unfit, if it is."""
        return self.judge.verdicts[0][0] if self.judge.verdicts else None

    async def found_stuck(self, reason: QuarantineReason, due: float, late: float = TICK) -> None:
        """Its first verdict is this, when it is due and at most so much later."""
        await trio.sleep_until(due + 2 * late)
        [(found, at), *_] = self.judge.verdicts
        assert found is reason
        assert due <= at <= due + late


@asynccontextmanager
async def engine(
    monkeypatch: pytest.MonkeyPatch, config: PoolConfig = CONFIG, children: Sequence[int] = ()
) -> AsyncIterator[Engine]:
    """Run a worker whose process does nothing; it has just been spawned."""
    (stdin, ours_in), (ours_out, stdout), (ours_err, stderr) = (
        os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC) for _ in range(3)
    )
    process = SimpleNamespace(
        pid=1000,
        generation=Generation("sim.0", 1),
        known=dict.fromkeys(children, 0),
        wait_exited=trio.sleep_forever,
        observe=lambda _scans: False,
        close=lambda: None,
    )
    judge = Judge()
    worker = Worker(
        cast(WorkerProcess, process),
        Pipes(ours_in, ours_out, ours_err, None),
        config,
        judge,
        os.write,
        cast(Scans, None),
        gpu_memory=lambda: None,
        true_cause=lambda cause: cause,
    )
    made = Engine(worker, judge, stdin, stdout, stderr)
    monkeypatch.setattr(
        usage, "progress", lambda pid: usage.Progress(cpu_ticks=made.done.get(pid, 0), io_bytes=0)
    )
    monkeypatch.setattr(usage, "read", lambda *_: None)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(worker.run)
        await trio.testing.wait_all_tasks_blocked()
        yield made
        worker.release()
    for descriptor in (stdin, stdout, stderr):
        os.close(descriptor)


# Loading -------------------------------------------------------------------------


async def test_a_load_without_a_sign_is_stalled(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the end of ``load_limits.stall``, and not before."""
    async with engine(monkeypatch) as made:
        await made.found_stuck(QuarantineReason.LOAD_STALLED, trio.current_time() + MINUTE)


@pytest.mark.parametrize("sign", ["beats", "log", "work", "childs work"])
async def test_a_load_that_shows_any_sign_may_take_its_total_time(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, sign: str
) -> None:
    """A sign every 50 s carries it to ``load_limits.timeout``; that nothing extends."""
    async with engine(monkeypatch, children=[1001]) as made:
        since = trio.current_time()
        for number in range(11):
            await trio.sleep(50.0)
            if sign == "beats":
                await made.beat("load")
            elif sign == "log":
                await made.log(f"loading, {number} of 11")
            else:
                made.done[1000 if sign == "work" else 1001] = number + 1
        assert made.verdict() is None
        await made.found_stuck(QuarantineReason.LOAD_TIMEOUT, since + 600.0)


async def test_beats_without_a_step_are_no_sign(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that beats lives, and the CPU is busy, but the engine stands still."""
    async with engine(monkeypatch) as made:
        await made.beat("load")
        since = trio.current_time()
        for number in range(5):
            await trio.sleep(10.0)
            await made.beat("load", stuck=True)
            made.done[1000] = number + 1
        assert made.verdict() is None
        await made.found_stuck(QuarantineReason.LOAD_STALLED, since + MINUTE)


# Prefill and decode --------------------------------------------------------------


async def test_a_prefill_of_half_an_hour_that_beats_is_never_touched(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Field report 19: thirty times its budget; then it freezes, and is found within one."""
    async with engine(monkeypatch) as made:
        await made.load(**BEATS)
        made.ask()
        begun = trio.current_time()
        while trio.current_time() < begun + 30 * MINUTE:
            await trio.sleep(20.0)
            await made.beat("prefill")
        assert (made.verdict(), made.worker.decoding) == (None, False)
        await made.found_stuck(QuarantineReason.FIRST_TOKEN_STALL, trio.current_time() + MINUTE)
        assert made.judge.details[0].startswith("no sign of progress in prefill for 60")


@pytest.mark.parametrize("pid", [1000, 1001])
async def test_a_prefill_that_cannot_beat_is_judged_by_its_work(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, pid: int
) -> None:
    """CPU time of the worker, or of its child where it is a script that started the engine."""
    async with engine(monkeypatch, children=[1001]) as made:
        await made.load(**READY)
        made.ask()
        for number in range(90):
            await trio.sleep(20.0)
            made.done[pid] = number + 1
        assert made.verdict() is None
        # The last work may be seen at the next look.
        await made.found_stuck(
            QuarantineReason.FIRST_TOKEN_STALL, trio.current_time() + MINUTE, late=2 * TICK
        )


async def test_the_answer_to_a_ping_is_no_progress(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that pings but does not beat: it is not asked while only its work can tell."""
    async with engine(monkeypatch) as made:
        await made.load(**PINGS)
        made.ask()
        await trio.testing.wait_all_tasks_blocked()
        since = trio.current_time()
        assert len(made.heard()) == 1
        await made.found_stuck(QuarantineReason.FIRST_TOKEN_STALL, since + MINUTE)
        assert made.heard() == []


@pytest.mark.parametrize("ready", [READY, BEATS])
async def test_a_frozen_decode_is_found_within_its_gap(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, ready: dict[str, object]
) -> None:
    """However long it has decoded, tokens 25 s apart; and busy CPU is no token."""
    async with engine(monkeypatch) as made:
        await made.load(**ready)
        made.ask()
        for _ in range(40):
            await trio.sleep(25.0)
            await made.say(token="t")
        assert (made.verdict(), made.worker.decoding) == (None, True)
        since = trio.current_time()
        await trio.sleep(20.0)
        made.done[1000] = 1
        assert made.verdict() is None
        await made.found_stuck(QuarantineReason.TOKEN_STALL, since + 30.0)


async def test_beats_fill_the_gap_between_two_tokens(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps that yield no text, such as those of a draft that is refused, are steps."""
    async with engine(monkeypatch) as made:
        await made.load(**BEATS)
        made.ask()
        await made.say(token="t")
        for _ in range(40):
            await trio.sleep(25.0)
            await made.beat("decode")
        assert made.verdict() is None


async def test_the_time_in_which_the_daemon_stood_still_is_nobodys_silence(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was stopped for an hour, with a load, a prefill or a probe under way."""
    async with engine(monkeypatch) as made:
        autojump_clock.jump(60 * MINUTE)
        await trio.sleep(5.0)
        assert made.verdict() is None
        await made.load(**BOTH)
        made.ask()
        await made.beat("prefill")
        autojump_clock.jump(60 * MINUTE)
        await trio.sleep(1.0)
        assert made.verdict() is None
        pinged = [line for line in made.heard() if line.get("op") == "ping"]
        assert len(pinged) == 1
        autojump_clock.jump(60 * MINUTE)
        await trio.sleep(1.0)
        assert made.verdict() is None


# Probes --------------------------------------------------------------------------


async def test_an_idle_worker_is_asked_and_never_given_work(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Field report 20: an hour of pings, one every interval, and nothing else."""
    async with engine(monkeypatch) as made:
        await made.load(**PINGS)
        asked = []
        until = trio.current_time() + 60 * MINUTE
        while trio.current_time() < until:
            await trio.sleep(1.0)
            for line in made.heard():
                asked.append(line)
                await made.say(pong=line["nonce"])
        assert made.verdict() is None
        assert {"ping"} == {line["op"] for line in asked}
        assert 340 <= len(asked) <= 360


async def test_a_probe_without_an_answer_is_the_last_one(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Field report 20: none is sent on top of it, so they cannot pile up in an engine."""
    async with engine(monkeypatch) as made:
        await made.load(**PINGS)
        begun = trio.current_time()
        await made.found_stuck(QuarantineReason.HEALTH_PROBE_FAILED, begun + 15.0, late=2 * TICK)
        assert len(made.heard()) == 1


async def test_the_probe_of_a_plain_worker_leaves_no_session(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It closes one that there never was; while it is busy it is not asked at all."""
    async with engine(monkeypatch) as made:
        await made.load(**READY)
        await trio.sleep(11.0)
        [probe] = made.heard()
        assert (probe["op"], probe["session_id"]) == ("close", "__probe__")
        operating = [made.worker.operating]
        await made.say(closed=True, session_id="__probe__")
        operating.append(made.worker.operating)
        assert [True, False] == operating
        made.ask()
        await made.say(token="t")
        await trio.sleep(25.0)
        assert (made.verdict(), [line.get("op") for line in made.heard()]) == (None, [None])


# Memory --------------------------------------------------------------------------


async def test_memory_is_weighed_every_second_with_that_of_new_descendants(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of one that was started since the last look at what the worker uses."""
    monkeypatch.setattr(memory, "quick", lambda pids: 2**20 * len(pids))
    limits = LimitsConfig(memory_hard=64 * 2**20)
    config = msgspec.structs.replace(CONFIG, limits=limits)
    async with engine(monkeypatch, config) as made:
        process = made.worker.process
        await trio.sleep(1.5)
        monkeypatch.setattr(process, "observe", lambda _scans: process.known.update({1001: 0}))
        await trio.sleep(1.0)
        assert made.judge.held == [2**20, 2 * 2**20]
        await trio.sleep(math.floor(MINUTE))
        assert len(made.judge.held) == 62
