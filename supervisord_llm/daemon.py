"""The composition root: everything that the daemon is made of, in one nursery.

The order is the promise. What an earlier daemon left is ended before anything is spawned; the
sockets serve while models load, so that an operator can look; at the end the workers go first and
the sockets last, so that every client still gets its record.
"""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Callable
from functools import partial
from pathlib import Path
from uuid import uuid4

import trio

from supervisord_llm import __version__, events
from supervisord_llm.api.front import Front
from supervisord_llm.api.listeners import UnixListener, open_listeners
from supervisord_llm.api.server import serve
from supervisord_llm.config.launch import LaunchPlan, slot_launches
from supervisord_llm.config.load import LoadedConfig
from supervisord_llm.host import tree
from supervisord_llm.host.leftovers import WorkerRecords
from supervisord_llm.paths import runtime_dir
from supervisord_llm.runtime.lag import LagMeter
from supervisord_llm.runtime.records import RecordKeeper
from supervisord_llm.runtime.signals import serve_signals
from supervisord_llm.runtime.supervisor import Supervisor
from supervisord_llm.telemetry.log import EventLog
from supervisord_llm.telemetry.render import stderr_renderer
from supervisord_llm.telemetry.ring import Ring
from supervisord_llm.telemetry.totals import Totals

LAUNCHER = "sllm-launch"
_STDERR = 2


class Daemon:
    """One run of the daemon, from its first event to its last."""

    def __init__(
        self,
        loaded: LoadedConfig,
        plan: LaunchPlan,
        records: WorkerRecords,
        on_ready: Callable[[], None] | None,
    ) -> None:
        """Put the parts together; `run` brings them to life.

        Args:
            loaded: the configuration.
            plan: how each slot's workers are started.
            records: the state directory, held by this daemon.
            on_ready: called once, when the first verdicts are in and every required pool serves.
        """
        self.config = loaded.config
        self.boot = uuid4().hex
        self.totals = Totals()
        self.ring = Ring(self.config.log.ring_events)
        self.log = EventLog(
            boot=self.boot,
            ring=self.ring,
            renderer=stderr_renderer(style=self.config.log.format, level=self.config.log.level),
            consumers=[self.totals],
        )
        self._loaded = loaded
        self._plan = plan
        self._records = records
        self._on_ready = on_ready
        # Asked now: a terminal that has hung up no longer says that it is one.
        self._on_terminal = os.isatty(_STDERR)
        self._stop = trio.Event()
        self._hurry = trio.Event()

    def stop(self, reason: str) -> None:
        """Begin the shutdown; asked a second time, end the drain."""
        forced = self._stop.is_set()
        self._publish(events.DaemonStopping(reason=reason, forced=forced))
        (self._hurry if forced else self._stop).set()

    async def run(self, listeners: list[UnixListener]) -> int:
        """Serve until told to stop, then stop everything; the exit code.

        The whole process is the daemon's: its signals, and its children, all of them workers or
        adopted from workers.
        """
        self._tell_start()
        supervisor = Supervisor(
            self.config,
            list(self._plan.launches.values()),
            boot=self.boot,
            publish=self.log.publish,
            records=RecordKeeper(self._records, self.log.publish),
            launcher=Path(sysconfig.get_path("scripts")) / LAUNCHER,
            sweep=True,
        )
        lag = LagMeter(lambda seconds: self._publish(events.DaemonLoopLag(seconds=seconds)))
        front = Front(
            supervisor=supervisor,
            ring=self.ring,
            totals=self.totals,
            publish=self.log.publish,
            live=lambda: lag.seconds <= self.config.daemon.max_loop_lag,
            config=self.config,
            config_path=str(self._loaded.path),
            version=__version__,
        )
        async with trio.open_nursery() as nursery:
            await nursery.start(serve_signals, self.stop, self._hang_up)
            nursery.start_soon(lag.run)
            await nursery.start(partial(serve, front, listeners))
            await nursery.start(supervisor.run)
            nursery.start_soon(self._tell_ready, supervisor)
            await self._stop.wait()
            if not await supervisor.stop(self._hurry):
                self._warn_unreaped(supervisor)
            nursery.cancel_scope.cancel()
        self._publish(events.DaemonStopped(exit_code=0))
        return 0

    def _publish(self, event: events.Event) -> None:
        self.log.publish(event)

    def _tell_start(self) -> None:
        self._publish(
            events.DaemonStarted(
                version=__version__,
                boot=self.boot,
                pid=os.getpid(),
                config=str(self._loaded.path),
                digest=self._loaded.digest,
            )
        )
        for warning in [*self._loaded.warnings, *self._plan.warnings]:
            self._warn(warning.topic, warning.message, warning.remedy)

    def _warn(self, topic: str, message: str, remedy: str) -> None:
        self._publish(events.DaemonWarning(topic=topic, message=message, remedy=remedy))

    def end_leftovers(self) -> None:
        """End what an earlier daemon left running; blocks for a bounded time."""
        found = self._records.find_leftovers()
        for problem in found.problems:
            self._warn("leftovers", problem, "see `ps` for processes of that slot")
        remaining = {left.record.slot for left in self._records.end_leftovers(found.leftovers)}
        for leftover in found.leftovers:
            pids = ", ".join(str(facts.pid) for facts in leftover.processes)
            ended = leftover.record.slot not in remaining
            self._warn(
                "leftovers",
                f"an earlier daemon left {leftover.record.mark} running (pid {pids}); "
                + ("it was ended" if ended else "it does not end although it was killed"),
                "nothing to do" if ended else "its memory stays occupied until it ends",
            )

    async def _tell_ready(self, supervisor: Supervisor) -> None:
        await supervisor.wait_first_verdicts()
        if supervisor.stopping:
            return
        self._publish(events.DaemonReady(pools=list(supervisor.pools)))
        if self._on_ready is not None and all(
            pool.ready for pool in supervisor.pools.values() if pool.config.required
        ):
            self._on_ready()

    def _hang_up(self) -> None:
        if self._on_terminal:
            self.stop("SIGHUP")
            return
        self._warn(
            "sighup",
            "SIGHUP changes nothing: this version does not re-read its configuration",
            "restart the daemon to apply a changed configuration",
        )

    def _warn_unreaped(self, supervisor: Supervisor) -> None:
        left = [slot for slot in supervisor.slots.values() if slot.pid is not None]
        names = ", ".join(f"{slot.name} (pid {slot.pid})" for slot in left)
        self._warn(
            "unreapable",
            f"stopped without {names}: it does not end although it was killed",
            "see what it waits for in /proc/PID/stack; its memory stays occupied until it ends",
        )


def main(loaded: LoadedConfig, on_ready: Callable[[], None] | None = None) -> int:
    """Run the daemon in this process until it is told to stop; the exit code.

    Args:
        loaded: the configuration.
        on_ready: called once, when every required pool serves.

    Raises:
        OperatorError: if the machine does not allow what the configuration asks for.
    """
    tree.set_child_subreaper()
    cores = sorted(os.sched_getaffinity(0))
    plan = slot_launches(loaded.config, cores=cores, environ=os.environ)
    configs = loaded.config.listen
    folder = runtime_dir(os.environ)
    with (
        WorkerRecords(Path(loaded.config.daemon.state_dir)) as records,
        open_listeners(configs, runtime_dir=folder) as listeners,
    ):

        async def run() -> int:
            daemon = Daemon(loaded, plan, records, on_ready)
            try:
                daemon.end_leftovers()
                return await daemon.run(listeners)
            finally:
                daemon.log.close()

        return trio.run(run)
