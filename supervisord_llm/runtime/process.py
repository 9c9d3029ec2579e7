"""One worker's process, from spawn to reaped; the only sender of signals while the daemon serves.

Four measured facts shape this file. The parent-death signal belongs to the *thread* that forked,
and trio forks from threads that it retires, so a worker's parent is a process with one thread: the
native launcher, see `supervisord_llm.runtime.guardian`. A pid may be somebody else's once it is
reaped, so signals go through pidfds, or to a group whose leader is still unreaped. ``trio.Process``
reaps whenever it looks, so it is not used: the exit is peeked at, group and descendants are killed,
and only then the status is taken. And descendants may hold the pipes, so nothing here ever waits
for the end of a pipe.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable
from pathlib import Path

import msgspec
import trio

from supervisord_llm.config.launch import SlotLaunch
from supervisord_llm.core.words import ExitCause, ExitKind, Generation
from supervisord_llm.errors import SpawnError
from supervisord_llm.host import tree
from supervisord_llm.runtime.guardian import Guardian, is_readable, signalled
from supervisord_llm.runtime.scans import Look, Scans

PROTOCOL_VARIABLE = "SUPERVISORD_LLM_PROTOCOL"
HEARTBEAT_VARIABLE = "SUPERVISORD_LLM_HEARTBEAT_MS"
CONTROL_VARIABLE = "EXECUTORCH_LLM_WORKER_CONTROL_FD"

_KILL_ROUND_SECONDS = 0.002
_KILL_ROUND_MAX_SECONDS = 0.5


class Sent(msgspec.Struct, frozen=True):
    """A signal that was sent, for the event log."""

    signal: str
    target: str
    """``pid``, ``group`` or ``descendants``."""
    pids: tuple[int, ...]


class Pipes(msgspec.Struct):
    """The daemon's ends of a worker's pipes, as raw descriptors that the owner closes."""

    stdin: int
    stdout: int
    stderr: int
    control: int | None
    """The write end of the cancel frames' pipe, where cancellation is wanted."""


class WorkerProcess:
    """A spawned worker: session leader, group leader, with a pidfd until it is closed."""

    def __init__(
        self, guardian: Guardian, generation: Generation, cgroup: Path | None = None
    ) -> None:
        """Take over a worker that was started just now.

        Raises:
            SpawnError: if it is gone.
            OSError: if no descriptor could be had.
        """
        self.pid = guardian.worker
        self.generation = generation
        self._guardian = guardian
        self._cgroup = cgroup
        self._looked_at = trio.current_time()
        self.known: dict[int, int] = {}
        """Start times by pid of the descendants that were seen at the last look."""
        self._pidfd = os.pidfd_open(self.pid)
        facts = tree.read(self.pid)
        if facts is None or facts.ppid not in {guardian.pid, os.getpid()}:
            os.close(self._pidfd)
            raise SpawnError(f"process {self.pid} is gone")
        self.facts = facts

    @property
    def guardian(self) -> tree.ProcessFacts:
        """The process that is the worker's parent, and a child of the daemon."""
        return self._guardian.facts

    # Looking ------------------------------------------------------------------

    async def wait_exited(self) -> None:
        """Wait until the process has ended; it is a zombie then, and its pid still its own."""
        await trio.lowlevel.wait_readable(self._pidfd)
        await self._guardian.wait_told()

    def peek_exit(self) -> ExitCause | None:
        """How the process ended, without reaping it; ``None`` while that is not known.

        It is known once `wait_exited` has returned.
        """
        if (cause := self._guardian.told()) is not None:
            return cause
        if not self._guardian.ended or not is_readable(self._pidfd):
            return None
        try:
            status = os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        except ChildProcessError:
            status = None
        if status is None:
            # Somebody else adopted it; and its guardian's death was its own.
            return signalled(signal.SIGKILL, dumped=False)
        if status.si_code == os.CLD_EXITED:
            return ExitCause(ExitKind.EXIT, status.si_status)
        return signalled(status.si_status, dumped=status.si_code == os.CLD_DUMPED)

    def observe(self, scans: Scans) -> bool:
        """Remember the descendants there are now, so that they are known if they leave the tree.

        Args:
            scans: the look that this worker may share with others.

        Returns:
            Whether they are others than at the last look.
        """
        before = self.known
        self._relatives(scans.look(since=self._looked_at))
        return self.known != before

    def _relatives(self, look: Look | None = None) -> list[tree.ProcessFacts]:
        """The living processes, without the leader, that belong to this worker: now, or then."""
        # An older look would forget whom this one finds.
        look = Look(trio.current_time()) if look is None else look
        self._looked_at = look.at
        found = tree.relatives(
            self.pid,
            known=self.known,
            mark=str(self.generation),
            daemon=os.getpid(),
            guardian=self._guardian.pid if self._guardian.holds else None,
            processes=look.processes,
            read_mark=look.mark_of,
        )
        self.known = {facts.pid: facts.start_time for facts in found}
        return found

    # Signalling ---------------------------------------------------------------

    def terminate(self) -> list[Sent]:
        """SIGTERM to the leader, then to the rest of its group, then SIGCONT to the group.

        A stopped process is not delivered a SIGTERM until it is continued.
        """
        sent: list[Sent] = []
        if self._send(signal.SIGTERM):
            sent.append(Sent("SIGTERM", "pid", (self.pid,)))
        group = [facts for facts in self._relatives() if facts.pgrp == self.pid]
        if reached := _send_each(group, signal.SIGTERM):
            sent.append(Sent("SIGTERM", "group", reached))
        self._send_group(signal.SIGCONT)
        return sent

    def kill(self) -> list[Sent]:
        """SIGKILL to the whole group and to every descendant that is still alive."""
        sent: list[Sent] = []
        relatives = self._relatives()
        self._kill_cgroup()
        if self._send_group(signal.SIGKILL):
            members = tuple(facts.pid for facts in relatives if facts.pgrp == self.pid)
            sent.append(Sent("SIGKILL", "group", (self.pid, *members)))
        rest = [facts for facts in relatives if facts.pgrp != self.pid]
        if reached := _send_each(rest, signal.SIGKILL):
            sent.append(Sent("SIGKILL", "descendants", reached))
        return sent

    def _send(self, number: signal.Signals) -> bool:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, number)
            return True
        return False

    def _send_group(self, number: signal.Signals) -> bool:
        # The group id is the leader's pid, which stays its own until the leader is reaped.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)
            return True
        return False

    def _kill_cgroup(self) -> None:
        """All of it at once, where the kernel can; one by one follows in any case."""
        if self._cgroup is not None:
            with contextlib.suppress(OSError):
                (self._cgroup / "cgroup.kill").write_text("1", "ascii")

    # Ending -------------------------------------------------------------------

    async def reap(self) -> tuple[ExitCause, tuple[int, ...]]:
        """End what the exited leader left behind, then take its exit status.

        Waits for as long as a descendant does not die; the caller watches the time.

        Returns:
            How the leader ended, and the pids of the descendants that had to be killed.
        """
        killed = await self._end_relatives()
        cause = self.peek_exit()
        if cause is None:
            raise SpawnError(f"cannot reap {self.generation}: process {self.pid} still runs")
        if not await self._guardian.finish():
            # It was killed: what it had adopted, the leader among them, has come to the daemon.
            killed |= await self._end_relatives()
            tree.reap_adopted([self.pid])
        return cause, tuple(sorted(killed))

    async def _end_relatives(self) -> set[int]:
        killed: set[int] = set()
        pause = _KILL_ROUND_SECONDS
        while left := self._relatives():
            self._send_group(signal.SIGKILL)
            _send_each(left, signal.SIGKILL)
            killed.update(facts.pid for facts in left)
            tree.reap_adopted(facts.pid for facts in left)
            await trio.sleep(pause)
            pause = min(2 * pause, _KILL_ROUND_MAX_SECONDS)
        tree.reap_adopted(killed)
        return killed

    def close(self) -> None:
        """Give back the descriptors; a guardian that still holds anything ends it by itself."""
        os.close(self._pidfd)
        self._guardian.close()


def _send_each(processes: Iterable[tree.ProcessFacts], number: signal.Signals) -> tuple[int, ...]:
    """Signal processes that are still the ones that were seen; the pids that were reached."""
    return tuple(
        facts.pid for facts in processes if tree.send_signal(facts.pid, facts.start_time, number)
    )


def spawn(
    launch: SlotLaunch,
    generation: Generation,
    *,
    launcher: Path,
    heartbeat: float,
    cancellation: bool,
    cgroup: Path | None = None,
) -> tuple[WorkerProcess, Pipes]:
    """Start a worker's process on this thread, which must be trio's; blocks for milliseconds.

    Args:
        launch: what to run, and with which environment, cores, priorities and limits.
        generation: the worker's name; it marks the environment of the process and its descendants.
        launcher: the native launcher.
        heartbeat: the interval that the worker is asked to beat at, in seconds.
        cancellation: whether to offer the worker a control pipe.
        cgroup: the folder of a cgroup that is to be this worker's alone.

    Raises:
        SpawnError: if there is no launcher, it cannot start anything, or the system refuses another
            process or descriptor; nothing is left of the attempt.
    """
    with contextlib.ExitStack() as undo, contextlib.ExitStack() as passed:
        ours: list[int] = []
        theirs: list[int] = []
        try:
            for parent_reads in (False, True, True, False)[: 4 if cancellation else 3]:
                read, write = os.pipe2(os.O_CLOEXEC)
                ours.append(read if parent_reads else write)
                theirs.append(write if parent_reads else read)
                undo.callback(os.close, ours[-1])
                passed.callback(os.close, theirs[-1])
                os.set_blocking(ours[-1], False)
            guardian = Guardian.start(
                launcher,
                [*_options(launch, cgroup), "--", *launch.argv],
                streams=theirs[:3],
                inherited=theirs[3:],
                env=_environment(
                    launch, generation, theirs[3] if cancellation else None, heartbeat
                ),
            )
            undo.callback(guardian.abandon)
            process = WorkerProcess(guardian, generation, cgroup)
        except OSError as error:
            raise _refused(generation, launcher, error.strerror or str(error)) from error
        except SpawnError as error:
            words = _last_words(ours[2]) if len(ours) > 2 else ""
            raise _refused(generation, launcher, words or str(error)) from error
        undo.pop_all()
    stdin, stdout, stderr, *rest = ours
    return process, Pipes(stdin, stdout, stderr, rest[0] if rest else None)


def _refused(generation: Generation, launcher: Path, why: str) -> SpawnError:
    return SpawnError(
        f"cannot start {generation} through {launcher}: {why}; "
        "run `make build`, or free processes and file descriptors"
    )


def _last_words(stderr: int) -> str:
    """The first line that the launcher wrote before it gave up."""
    with contextlib.suppress(BlockingIOError):
        line = os.read(stderr, 1024).decode("utf-8", "replace").partition("\n")[0]
        return line.removeprefix("sllm-launch: ")
    return ""


def _options(launch: SlotLaunch, cgroup: Path | None) -> list[str]:
    options = ["--nice", str(launch.nice), "--oom-score-adj", str(launch.oom_score_adj)]
    if launch.cpus:
        options += ["--cpus", ",".join(str(cpu) for cpu in launch.cpus)]
    for name, value in launch.rlimits:
        options += ["--rlimit", f"{name}={value}:{value}"]
    if cgroup is not None:
        options += ["--cgroup", str(cgroup)]
    return options


def _environment(
    launch: SlotLaunch, generation: Generation, control: int | None, heartbeat: float
) -> dict[str, str]:
    environment = {
        **launch.env,
        tree.SLOT_VARIABLE: str(generation),
        PROTOCOL_VARIABLE: "1",
        HEARTBEAT_VARIABLE: str(round(heartbeat * 1000)),
    }
    if control is not None:
        environment[CONTROL_VARIABLE] = str(control)
    return environment
