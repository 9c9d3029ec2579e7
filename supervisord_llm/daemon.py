"""The composition root: everything that the daemon is made of, in one nursery.

The order is the promise. What an earlier daemon left is ended before anything is spawned; the
sockets serve while models load, so that an operator can look; at the end the workers go first and
the sockets last, so that every client still gets its record.
"""

from __future__ import annotations

import contextlib
import os
import sysconfig
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from uuid import uuid4

import trio

from supervisord_llm import __version__, events
from supervisord_llm.api.front import Front
from supervisord_llm.api.inherited import adopt
from supervisord_llm.api.keys import KeyRings
from supervisord_llm.api.listeners import Listener, open_listeners
from supervisord_llm.api.server import serve
from supervisord_llm.config.launch import slot_launches
from supervisord_llm.config.load import LoadedConfig
from supervisord_llm.config.problems import ConfigWarning
from supervisord_llm.errors import ConfigError, Refused
from supervisord_llm.host import gpu, systemd
from supervisord_llm.host.cgroups import Delegation, Unavailable
from supervisord_llm.host.leftovers import WorkerRecords
from supervisord_llm.host.oom import KernelLog, OomWatch
from supervisord_llm.host.parking import ParkingRecords
from supervisord_llm.host.prctl import seal_memory, set_child_subreaper
from supervisord_llm.paths import runtime_dir
from supervisord_llm.runtime.gpu import GpuMemory
from supervisord_llm.runtime.lag import LagMeter
from supervisord_llm.runtime.machine import Machine
from supervisord_llm.runtime.notifier import Notifier
from supervisord_llm.runtime.reconfigure import Reconfiguration
from supervisord_llm.runtime.records import RecordKeeper
from supervisord_llm.runtime.self_check import answers
from supervisord_llm.runtime.signals import serve_signals
from supervisord_llm.runtime.supervisor import Supervisor
from supervisord_llm.telemetry.log import EventLog
from supervisord_llm.telemetry.metrics import Metrics
from supervisord_llm.telemetry.output import open_output
from supervisord_llm.telemetry.ring import Ring
from supervisord_llm.telemetry.totals import Totals

LAUNCHER = "sllm-launch"
_STDERR = 2


class Daemon:
    """One run of the daemon, from its first event to its last."""

    def __init__(
        self,
        loaded: LoadedConfig,
        warnings: Sequence[ConfigWarning],
        records: WorkerRecords,
        parking: ParkingRecords,
        on_ready: Callable[[], None] | None,
        service: systemd.Service,
    ) -> None:
        """Put the parts together; `run` brings them to life.

        Args:
            loaded: the configuration.
            warnings: what an operator should know of it.
            records: the state directory's records of workers, held by this daemon.
            parking: its records of parked slots.
            on_ready: called once, when the first verdicts are in and every required pool serves.
            service: what the service manager gave.
        """
        self.config = loaded.config
        self.boot = uuid4().hex
        self.totals, self.metrics = Totals(), Metrics()
        self.ring = Ring(self.config.log.ring_events)
        self._notifier = Notifier(service, self._publish)
        self.log = EventLog(
            boot=self.boot,
            ring=self.ring,
            renderer=open_output(self.config.log, journal=systemd.stderr_is_journal(os.environ)),
            consumers=[self.totals, self.metrics, self._notifier],
        )
        self._loaded = loaded
        self._warnings = warnings
        self._records = records
        self._parking = parking
        self._on_ready = on_ready
        self._machine = Machine(None, None, GpuMemory(None), self.log.publish)
        # Asked now: a terminal that has hung up no longer says that it is one.
        self._on_terminal = os.isatty(_STDERR)
        self._stop = trio.Event()
        self._hurry = trio.Event()

    def stop(self, reason: str) -> None:
        """Begin the shutdown; asked a second time, end the drain."""
        forced = self._stop.is_set()
        self._publish(events.DaemonStopping(reason=reason, forced=forced))
        (self._hurry if forced else self._stop).set()

    async def run(self, listeners: list[Listener]) -> int:
        """Serve until told to stop, then stop everything; the exit code.

        The whole process is the daemon's: its signals, and its children, all of them workers or
        adopted from workers.
        """
        supervisor = Supervisor(
            self.config,
            boot=self.boot,
            publish=self.log.publish,
            records=RecordKeeper(self._records, self._parking, self.log.publish),
            machine=self._machine,
            launcher=Path(sysconfig.get_path("scripts")) / LAUNCHER,
            environ=os.environ,
            sweep=True,
        )
        keys = KeyRings(self._loaded.keys)
        reconfigure = Reconfiguration(
            self._loaded, supervisor, self.log.publish, os.environ, replace_keys=keys.replace
        )
        lag = LagMeter(lambda seconds: self._publish(events.DaemonLoopLag(seconds=seconds)))
        front = Front(
            supervisor=supervisor,
            ring=self.ring,
            totals=self.totals,
            metrics=self.metrics,
            publish=self.log.publish,
            live=lambda: lag.seconds <= self.config.daemon.max_loop_lag,
            reload_config=reconfigure,
            keys=keys,
            config_path=str(self._loaded.path.absolute()),
            version=__version__,
        )
        async with trio.open_nursery() as nursery:
            await nursery.start(serve_signals, self.stop, partial(self._hang_up, reconfigure))
            nursery.start_soon(lag.run)
            await nursery.start(partial(serve, front, listeners))
            nursery.start_soon(
                self._notifier.run,
                lambda: supervisor.pools.values(),  # noqa: PLW0108 - they are others in time
                partial(self._alive, front, _control_socket(listeners)),
            )
            for listener in listeners:
                serves: list[str] = list(listener.config.serve)
                self._publish(events.DaemonListening(address=listener.address, serves=serves))
            await nursery.start(supervisor.run)
            nursery.start_soon(self._tell_ready, supervisor)
            await self._stop.wait()
            if not await supervisor.stop(self._hurry):
                self._warn_unreaped(supervisor)
            nursery.cancel_scope.cancel()
        self._publish(events.DaemonStopped(exit_code=0))
        return 0

    async def _alive(self, front: Front, control: Listener | None, within: float) -> bool:
        """Whether the event loop is in time, and the control socket answers, within the seconds."""
        if not front.live() or control is None:
            return front.live()
        path = "/livez" if "probe" in control.config.serve else "/api/v1/status"
        return await answers(control.address.removeprefix("unix:"), path, within=within)

    def _publish(self, event: events.Event) -> None:
        self.log.publish(event)

    def tell_start(self) -> None:
        """The first words, before anything that is found on the way."""
        self._publish(
            events.DaemonStarted(
                version=__version__,
                boot=self.boot,
                pid=os.getpid(),
                config=str(self._loaded.path.absolute()),
                digest=self._loaded.digest,
            )
        )
        for warning in [*self._loaded.warnings, *self._warnings]:
            self._warn(warning.topic, warning.message, warning.remedy)

    def _warn(self, topic: str, message: str, remedy: str) -> None:
        self._publish(events.DaemonWarning(topic=topic, message=message, remedy=remedy))

    def close(self) -> None:
        """Give back what the daemon holds open."""
        self._machine.close()
        self._notifier.close()
        self.log.close()

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

    def look_at_machine(self) -> None:
        """Take the subtree of control groups that was given, before anything is started."""
        groups = Delegation.find()
        if isinstance(groups, Delegation) and (refused := groups.take()) is not None:
            groups = refused
        delegation = groups if isinstance(groups, Delegation) else None
        if isinstance(groups, Unavailable) and self._wants_memory_limits():
            self._warn(
                "cgroups",
                "memory limits hold by measuring once a second, and by a limit of each process "
                f"alone: {groups.why}",
                "as a systemd service, give it Delegate=yes",
            )
        self._machine = Machine(
            delegation,
            OomWatch(time.monotonic, log=KernelLog.open()),
            GpuMemory(gpu.find()),
            self.log.publish,
        )

    def _wants_memory_limits(self) -> bool:
        limits = [pool.limits for pool in self.config.pool.values()]
        return any(each.memory_hard is not None for each in limits)

    async def _tell_ready(self, supervisor: Supervisor) -> None:
        await supervisor.wait_first_verdicts()
        if supervisor.stopping:
            return
        self._publish(events.DaemonReady(pools=list(supervisor.pools)))
        if self._on_ready is not None and all(
            pool.ready for pool in supervisor.pools.values() if pool.config.required
        ):
            self._on_ready()

    def _hang_up(self, reconfigure: Reconfiguration) -> None:
        if self._on_terminal:
            self.stop("SIGHUP")
            return
        self._notifier.reloading()
        # An invalid file is told of by the event; a daemon that stops needs none any more.
        with contextlib.suppress(ConfigError, Refused):
            reconfigure()
        self._notifier.reloaded()

    def _warn_unreaped(self, supervisor: Supervisor) -> None:
        left = [slot for slot in supervisor.slots.values() if slot.pid is not None]
        names = ", ".join(f"{slot.name} (pid {slot.pid})" for slot in left)
        self._warn(
            "unreapable",
            f"stopped without {names}: it does not end although it was killed",
            "see what it waits for in /proc/PID/stack; its memory stays occupied until it ends",
        )


def _control_socket(listeners: Sequence[Listener]) -> Listener | None:
    """The socket that ``llmctl`` uses, if there is one."""
    return next((each for each in listeners if "control" in each.config.serve), None)


def main(loaded: LoadedConfig, on_ready: Callable[[], None] | None = None) -> int:
    """Run the daemon in this process until it is told to stop; the exit code.

    Args:
        loaded: the configuration.
        on_ready: called once, when every required pool serves.

    Raises:
        OperatorError: if the machine does not allow what the configuration asks for.
    """
    service = systemd.take(os.environ)
    set_child_subreaper()
    if loaded.config.daemon.seal_memory:
        seal_memory()
    cores = sorted(os.sched_getaffinity(0))
    plan = slot_launches(loaded.config, cores=cores, environ=os.environ)
    configs = loaded.config.listen
    folder = runtime_dir(os.environ)
    state_dir = Path(loaded.config.daemon.state_dir)
    passed = adopt(configs, service.sockets)
    if passed.problems:
        raise ConfigError(str(loaded.path), passed.problems)
    with (
        WorkerRecords(state_dir) as records,
        open_listeners(configs, runtime_dir=folder, passed=passed.listeners) as listeners,
    ):

        async def run() -> int:
            parking = ParkingRecords(state_dir)
            warnings = [*plan.warnings, *passed.warnings]
            daemon = Daemon(loaded, warnings, records, parking, on_ready, service)
            try:
                daemon.tell_start()
                daemon.end_leftovers()
                daemon.look_at_machine()
                return await daemon.run(listeners)
            finally:
                daemon.close()

        return trio.run(run)
