"""What the machine offers for the workers' memory: control groups, the kernel's kills, GPUs."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from supervisord_llm import events
from supervisord_llm.core.words import ExitCause, ExitKind, Generation
from supervisord_llm.host.cgroups import Delegation, Unavailable, WorkerGroup
from supervisord_llm.host.oom import OomWatch
from supervisord_llm.runtime.gpu import GpuMemory
from supervisord_llm.runtime.request import Publish

_LOOK_SECONDS = 10.0
_REMOVE_AGAIN_SECONDS = 0.1
_REMOVE_SECONDS = 5.0
_SIGKILL = 9


class Machine:
    """Shared by all slots of a daemon."""

    def __init__(
        self, groups: Delegation | None, oom: OomWatch | None, gpu: GpuMemory, publish: Publish
    ) -> None:
        """Use what there is; ``None`` for what there is not."""
        self._groups = groups
        self._oom = oom
        self._gpu = gpu
        self._publish = publish
        self._told: set[str] = set()

    @property
    def gpu_memory(self) -> dict[int, int] | None:
        """Bytes on GPUs by pid; ``None`` where it is not known."""
        return None if self._gpu.latest is None else dict(self._gpu.latest)

    @property
    def children(self) -> Sequence[int]:
        """Children of the daemon that are no workers and nobody's to reap but ours."""
        return () if self._gpu.pid is None else (self._gpu.pid,)

    def group_for(self, generation: Generation, memory_hard: int | None) -> WorkerGroup | None:
        """A control group for a new worker; ``None`` where there is none to be had."""
        if self._groups is None:
            return None
        group = self._groups.group(generation.slot, generation.number, memory_hard)
        if isinstance(group, Unavailable):
            self._warn(f"{generation} has no control group: {group.why}")
            return None
        return group

    def cause(
        self, cause: ExitCause, pid: int, group: WorkerGroup | None, *, killed_by_us: bool
    ) -> ExitCause:
        """The same cause, or that the kernel did it for want of memory."""
        if cause.kind is not ExitKind.SIGNAL or cause.code != _SIGKILL or self._oom is None:
            return cause
        if self._oom.verdict(pid, group=group, sent=killed_by_us):
            return ExitCause(ExitKind.OOM_KILLED, cause.code, cause.signal_name)
        return cause

    async def remove(self, group: WorkerGroup) -> None:
        """Remove the group of a worker that is reaped; the kernel may need a moment."""
        with trio.move_on_after(_REMOVE_SECONDS) as bound:
            # The kernel has no event for it that would be worth a descriptor.
            while not group.remove():  # noqa: ASYNC110
                await trio.sleep(_REMOVE_AGAIN_SECONDS)
        if bound.cancelled_caught:
            self._warn(f"cannot remove the control group {group.path.name}")

    def close(self) -> None:
        """Give back the kernel's log."""
        if self._oom is not None:
            self._oom.close()

    async def run(self) -> None:
        """Keep the facts fresh, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._gpu.run)
            while True:
                if self._oom is not None:
                    self._oom.look()
                if self._gpu.problem is not None:
                    self._warn(self._gpu.problem)
                await trio.sleep(_LOOK_SECONDS)

    def _warn(self, message: str) -> None:
        """Tell something once; it may recur with every worker."""
        if message in self._told:
            return
        self._told.add(message)
        self._publish(
            events.DaemonWarning(
                topic="memory",
                message=message,
                remedy="the workers serve without it; limits are judged by what is measured",
            )
        )
