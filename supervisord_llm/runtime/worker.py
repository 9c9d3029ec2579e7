"""One live worker: its process, its channel, its signs of life and its idle probe.

The tasks of one generation live here, in one nursery that ends when the worker is reaped. What they
notice is told to the slot, which decides; see `supervisord_llm.runtime.slot`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import trio

from supervisord_llm.config.schema import PoolConfig
from supervisord_llm.core import vigil
from supervisord_llm.core.words import (
    Dialect,
    ExitCause,
    Extension,
    Generation,
    Phase,
    QuarantineReason,
)
from supervisord_llm.host import memory, usage
from supervisord_llm.runtime.channel import Channel, Write
from supervisord_llm.runtime.log_lines import LogLines
from supervisord_llm.runtime.process import Pipes, WorkerProcess
from supervisord_llm.runtime.scans import Scans
from supervisord_llm.wire.messages import (
    Heartbeat,
    Message,
    Pong,
    ProbeAck,
    SessionDone,
    SessionRefused,
    Tokens,
)
from supervisord_llm.wire.serial import SerialConnection

_TICK_SECONDS = 0.5
"""How often signs of life are judged: small against every sensible budget."""
_SHORTEST_TICK_SECONDS = 0.02
_USAGE_SECONDS = 10.0
_WEIGH_SECONDS = 1.0
_EXIT_AFTER_CLOSE_SECONDS = 1.0
"""A worker that ends closes its pipes a little before its exit can be seen."""


class Watcher(Protocol):
    """Who is told what a worker does; none of these may block."""

    def on_messages(self, messages: Sequence[Message]) -> None:
        """One read's worth of protocol."""

    def after_read(self) -> Awaitable[None] | None:
        """Between two reads: what to wait for, and only for a bounded moment."""

    def on_decoding(self) -> None:
        """The worker has left its prefill."""

    def on_log(self, lines: Sequence[str]) -> None:
        """Lines on stderr."""

    def on_unfit(self, reason: QuarantineReason, detail: str) -> None:
        """Evidence that the worker is unfit."""

    def on_exit(self, cause: ExitCause, *, cut_off: bool) -> None:
        """The process has ended, its last words are told; ``cut_off``: in the middle of a line."""

    def on_usage(self, used: usage.Usage) -> None:
        """What the process holds and has used."""

    def on_held(self, held: int) -> bool:
        """So many bytes would come back if the worker and its descendants ended.

        Returns whether it still matters when it holds more than ``limits.memory_soft``.
        """

    def on_descendants(self) -> None:
        """The process has other descendants than before."""


class Worker:
    """A generation from its spawn to its reaping."""

    def __init__(
        self,
        process: WorkerProcess,
        pipes: Pipes,
        config: PoolConfig,
        watcher: Watcher,
        write: Write,
        scans: Scans,
        *,
        gpu_memory: Callable[[], dict[int, int] | None],
        true_cause: Callable[[ExitCause], ExitCause],
    ) -> None:
        """Take over a process that was spawned just now, and its pipes.

        Args:
            process: the process.
            pipes: the daemon's ends of its pipes.
            config: the limits that it is judged by.
            watcher: who is told.
            write: how bytes go to its control pipe.
            scans: looks at all processes, shared with other workers.
            gpu_memory: bytes on GPUs by pid, where that is known.
            true_cause: knows a kill by the kernel from any other.
        """
        now = trio.current_time()
        self.process = process
        self.generation: Generation = process.generation
        self.spawned_at = now
        self.served = 0
        self.tokens = 0
        self.usage: usage.Usage | None = None
        self.exit: ExitCause | None = None
        """How its process ended, once it has."""
        self.connection = SerialConnection(max_line=config.max_line, dialect=config.dialect)
        self.channel = Channel(
            pipes,
            self.connection,
            stdin_timeout=config.stdin_timeout,
            on_messages=self._on_messages,
            after_read=self._after_read,
            on_log=self._on_log,
            on_stdin_blocked=self._on_stdin_blocked,
            on_closed=self._on_closed,
            write=write,
        )
        self.operating = False
        """Whether it was asked something other than a generation and has not answered."""
        self._watcher = watcher
        self._scans = scans
        self._gpu_memory = gpu_memory
        self._true_cause = true_cause
        self._limits = config.limits
        self._budgets = vigil.Budgets(
            load_timeout=config.load_limits.timeout,
            load_stall=config.load_limits.stall,
            first_token_stall=config.health.first_token_stall,
            token_stall=config.health.token_stall,
        )
        self._health = config.health
        self._log = LogLines()
        self._watch: vigil.Watch | None = vigil.Watch(Phase.LOAD, now, now)
        self._beats = -1
        self._progress: list[usage.Progress | None] = []
        self._closed: tuple[str, float] | None = None
        self._probe_sent_at: float | None = None
        self._operation_sent_at: float | None = None
        self._probe_due_at = now + config.health.probe_interval
        self._nonce = 0
        self._scope = trio.CancelScope()
        self._released = False

    # Facts --------------------------------------------------------------------

    @property
    def dialect(self) -> Dialect | None:
        """What the ready line announced."""
        return self.connection.dialect

    @property
    def extensions(self) -> Sequence[Extension]:
        """What the worker offered, in a fixed order."""
        return [each for each in Extension if each in self.connection.extensions]

    @property
    def decoding(self) -> bool:
        """Whether the worker has left the prefill of what it works on."""
        return self._watch is not None and self._watch.phase is Phase.DECODE

    # Work ---------------------------------------------------------------------

    def became_busy(self) -> None:
        """The worker was given its first request: its prefill begins."""
        now = trio.current_time()
        self._watch = vigil.Watch(Phase.PREFILL, now, now)

    def became_idle(self) -> None:
        """The worker has nothing to do: only probes tell whether it is well."""
        self._watch = None

    def began_operation(self) -> None:
        """The worker is asked something that it must answer before it takes a generation."""
        self.operating = True
        self._operation_sent_at = trio.current_time()

    def became_unfit(self) -> None:
        """Stop judging and probing: the verdict is in."""
        self._watch = None
        self._probe_due_at = float("inf")
        self._probe_sent_at = self._operation_sent_at = None

    # Signs of life ------------------------------------------------------------

    def _sign(self, phase: Phase | None = None) -> None:
        watch = self._watch
        if watch is None:
            return
        now = trio.current_time()
        if phase is Phase.DECODE and watch.phase is Phase.PREFILL:
            self._watch = vigil.Watch(phase, now, now)
            self._watcher.on_decoding()
        else:
            watch.sign_at = now

    def _on_messages(self, messages: Sequence[Message]) -> None:
        if self._released:
            return
        for message in messages:
            match message:
                case Tokens():
                    self._sign(Phase.DECODE)
                case Heartbeat(phase=phase, beats=beats):
                    if beats != self._beats:
                        self._beats = beats
                        self._sign(phase)
                case Pong(nonce=nonce):
                    if nonce == self._nonce:
                        self._probe_sent_at = None
                case ProbeAck() | SessionDone() | SessionRefused():
                    self._operation_sent_at = None
                    self.operating = False
                case _:
                    pass
        self._watcher.on_messages(messages)

    def _after_read(self) -> Awaitable[None] | None:
        return None if self._released else self._watcher.after_read()

    def _on_log(self, data: bytes) -> None:
        if self._released:
            return
        if self._watch is not None and self._watch.phase is Phase.LOAD:
            self._sign()
        if lines := self._log.feed(data):
            self._watcher.on_log(lines)

    def _on_stdin_blocked(self) -> None:
        if not self._released:
            self._watcher.on_unfit(
                QuarantineReason.STDIN_BLOCKED, "does not read its stdin in time"
            )

    def _on_closed(self, pipe: str) -> None:
        if self._closed is None:
            self._closed = (pipe, trio.current_time())

    # Tasks --------------------------------------------------------------------

    async def run(self) -> None:
        """Serve the generation until `release`; closes every descriptor at the end."""
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self.channel.run_reader)
                    nursery.start_soon(self.channel.run_log_reader)
                    nursery.start_soon(self.channel.run_writer)
                    nursery.start_soon(self._wait_exit)
                    nursery.start_soon(self._keep_watch)
                    nursery.start_soon(self._keep_usage)
                    nursery.start_soon(self._keep_limits)
                    await trio.sleep_forever()
        finally:
            self.channel.close()
            self.process.close()

    def release(self) -> None:
        """End the tasks of the generation; the process is reaped."""
        self._released = True
        self._scope.cancel()

    async def _wait_exit(self) -> None:
        await self.process.wait_exited()
        # The last words count: what was written before the exit is heard before the exit.
        self.channel.read_now()
        self.channel.read_log_now()
        if lines := self._log.finish():
            self._watcher.on_log(lines)
        cause = self.process.peek_exit()
        if cause is not None:
            self.exit = cause = self._true_cause(cause)
            self._watcher.on_exit(cause, cut_off=bool(self.connection.receive_eof()))

    async def _keep_watch(self) -> None:
        tightest = min(
            self._budgets.load_stall,
            self._budgets.first_token_stall,
            self._budgets.token_stall,
            self._health.probe_timeout,
        )
        tick = min(_TICK_SECONDS, max(tightest / 4, _SHORTEST_TICK_SECONDS))
        due = trio.current_time()
        while True:
            due += tick
            await trio.sleep_until(due)
            now = trio.current_time()
            if now - due > tick:
                # The daemon itself did not run; that time is nobody's stall.
                self._forgive(now - due)
                due = now
            self._judge(now)
            self._probe(now)

    def _forgive(self, seconds: float) -> None:
        if self._watch is not None:
            self._watch.sign_at += seconds
            self._watch.since += seconds
        if self._probe_sent_at is not None:
            self._probe_sent_at += seconds
        if self._operation_sent_at is not None:
            self._operation_sent_at += seconds

    def _judge(self, now: float) -> None:
        if self._closed is not None:
            pipe, closed_at = self._closed
            if now - closed_at >= _EXIT_AFTER_CLOSE_SECONDS:
                self._watcher.on_unfit(
                    QuarantineReason.PROTOCOL_ERROR,
                    f"closed its {pipe} but is still running",
                )
            return
        if self._watch is None:
            return
        self._look_for_progress()
        verdict = vigil.judge(self._watch, self._budgets, now)
        if verdict.reason is not None:
            since = now - self._watch.sign_at
            self._watcher.on_unfit(
                verdict.reason,
                f"no sign of progress in {self._watch.phase} for {since:.1f} s"
                if verdict.reason is not QuarantineReason.LOAD_TIMEOUT
                else f"not ready after {now - self._watch.since:.1f} s",
            )

    @property
    def _judged_by_progress(self) -> bool:
        """Whether CPU time and I/O are the signs of life, since nothing better tells.

        A worker that beats is believed in its beats alone: a hung kernel burns CPU time too, and a
        heartbeat is itself I/O. In decode the tokens tell.
        """
        return self._watch is not None and self._watch.phase is not Phase.DECODE and self._beats < 0

    def _look_for_progress(self) -> None:
        if not self._judged_by_progress:
            return
        # A worker may be a script that waits for the engine, its child.
        progress = [usage.progress(pid) for pid in (self.process.pid, *self.process.known)]
        if progress != self._progress:
            self._progress = progress
            self._sign()

    def _probe(self, now: float) -> None:
        asked_at = self._operation_sent_at or self._probe_sent_at
        if asked_at is not None:
            if now - asked_at >= self._health.probe_timeout:
                self._probe_sent_at = self._operation_sent_at = None
                self._watcher.on_unfit(
                    QuarantineReason.HEALTH_PROBE_FAILED,
                    f"did not answer a probe within {self._health.probe_timeout:g} s",
                )
            return
        if now < self._probe_due_at or self.connection.ready is None:
            return
        if self._judged_by_progress:
            return  # the answer would look like progress, and a hung engine be taken for a slow one
        self._probe_due_at = now + self._health.probe_interval
        if Extension.PING in self.connection.extensions:
            self._nonce += 1
            self.channel.ping(self._nonce)
            self._probe_sent_at = now
        elif self._watch is None and not self.operating:
            self.began_operation()
            self.channel.probe()

    def _observe(self) -> None:
        if self.process.observe(self._scans):
            self._watcher.on_descendants()

    def note_usage(self) -> None:
        """Look at what the process and its descendants hold and have used now."""
        self._observe()
        relatives = tuple(self.process.known)
        if (used := usage.read(self.process.pid, relatives, self._gpu_memory())) is not None:
            self.usage = used
            self._watcher.on_usage(used)

    async def _keep_usage(self) -> None:
        while True:
            self.note_usage()
            await trio.sleep(_USAGE_SECONDS)

    async def _keep_limits(self) -> None:
        """Weigh the worker every second, where there is a limit; other limits come by its age."""
        soft, hard = self._limits.memory_soft, self._limits.memory_hard
        if not soft and not hard and self._limits.max_age is None:
            return
        while True:
            await trio.sleep(_WEIGH_SECONDS)
            bound = min((each for each in (soft, hard) if each), default=None)
            held = 0 if bound is None else self._weigh(bound)
            if not self._watcher.on_held(held):
                soft = None  # exact sums cost the more, the more a worker holds

    def _weigh(self, bound: int) -> int:
        """What the worker holds in bytes; exactly if that may be ``bound`` or more."""
        # A descendant may be new, and a pid that was seen before another process by now.
        self._observe()
        # Held against a byte less: it is judged by whether it reaches the bound.
        return memory.held_against([self.process.pid, *self.process.known], bound - 1)
