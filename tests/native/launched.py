"""The native launcher with its pipes, as the daemon would hold it, for a test to talk to."""

from __future__ import annotations

import os
import select
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO

import psutil

from tests.native.sim import PATIENCE, program


class Launched:
    """A guardian, and the worker that it has started."""

    def __init__(self, guardian: subprocess.Popen[bytes], life: int, status: IO[bytes]) -> None:
        """Take over the process, the write end of its life pipe and its status."""
        self.guardian = guardian
        self._life: int | None = life
        self._status = status

    def line(self) -> str:
        """The next line of its status, without its end; empty when no more comes."""
        readable, _, _ = select.select([self._status], [], [], PATIENCE)
        assert readable, "the guardian does not tell"
        return self._status.readline().decode().removesuffix("\n")

    def started(self) -> psutil.Process:
        """The worker, whose start is told first."""
        word, pid = self.line().split()
        assert word == "started"
        return psutil.Process(int(pid))

    def let_go(self) -> None:
        """End the life pipe, as a daemon that ends does."""
        if self._life is not None:
            os.close(self._life)
            self._life = None

    def finish(self) -> int:
        """Let go, and wait for the guardian's exit status."""
        self.let_go()
        return self.guardian.wait(PATIENCE)

    def read(self, stream: IO[bytes] | None) -> str:
        """Everything that comes from a stream that was asked for, to its end."""
        assert stream is not None
        return stream.read().decode()


@contextmanager
def launched(
    *options: str,
    command: Sequence[str],
    parent: int | None = None,
    pass_fds: Sequence[int] = (),
    env: dict[str, str] | None = None,
    through: Sequence[str] = (),
    new_session: bool = True,
) -> Iterator[Launched]:
    """Start a command through the launcher; afterwards all of it is gone.

    Args:
        options: for the launcher.
        command: the worker's.
        parent: the expected parent; this process otherwise.
        pass_fds: what the worker inherits besides its streams.
        env: the environment of both.
        through: words before the launcher's, of a program that becomes it.
        new_session: whether the launcher leads one before it begins.
    """
    life, life_writer = os.pipe()
    status_reader, status = os.pipe()
    binding = [
        *("--parent", str(os.getpid() if parent is None else parent)),
        *("--life", str(life), "--status", str(status)),
    ]
    with open(status_reader, "rb", buffering=0) as told:  # noqa: PTH123 - a descriptor
        try:
            guardian = subprocess.Popen(
                [*through, program("sllm-launch"), *binding, *options, "--", *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=[*pass_fds, life, status],
                env=env,
                start_new_session=new_session,
            )
        finally:
            os.close(life)
            os.close(status)
        made = Launched(guardian, life_writer, told)
        with guardian:
            try:
                yield made
            finally:
                if guardian.stdin is not None:
                    guardian.stdin.close()
                made.finish()


def launch(
    *options: str,
    command: Sequence[str] = ("true",),
    parent: int | None = None,
    pass_fds: Sequence[int] = (),
    through: Sequence[str] = (),
    new_session: bool = True,
) -> subprocess.CompletedProcess[str]:
    """Run a command through the launcher, to its end.

    The status is that of the command, or of the launcher where nothing was started.
    """
    with launched(
        *options,
        command=command,
        parent=parent,
        pass_fds=pass_fds,
        through=through,
        new_session=new_session,
    ) as made:
        out, err = made.read(made.guardian.stdout), made.read(made.guardian.stderr)
        lines = [made.line()]
        if lines[0].startswith("started "):
            lines.append(made.line())
        status = made.finish()
    if len(lines) == 2:
        assert status == 0
        word, code = lines[1].split()
        assert word == "exited", lines
        status = int(code)
    return subprocess.CompletedProcess(command, status, out, err)
