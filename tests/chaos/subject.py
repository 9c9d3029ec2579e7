"""The daemon under test: a process of its own, looked at from outside."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from supervisord_llm.events import WorkerReaped, WorkerSpawned
from supervisord_llm.host import tree
from tests.chaos import settings
from tests.chaos.log import parse
from tests.conftest import TEST_VARIABLE
from tests.harness import SCRIPTS

_STOP_SECONDS = 60.0
"""Far beyond the drain and every grace: a stop that takes so long has no end."""


class Footprint(msgspec.Struct, frozen=True):
    """What the daemon holds of the machine."""

    descriptors: int
    threads: int
    children: int
    """Zombies included."""
    resident: int
    """Bytes."""
    kinds: Counter[str]
    """The descriptors by what they are."""


class Subject:
    """A running daemon."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path, log: Path) -> None:
        """Adopt a process that was started just now."""
        self.process = process
        self.config = folder / "daemon.toml"
        self.folder = folder
        self.socket = folder / "control.sock"
        self.log = log
        self._offset = 0
        self._workers: dict[str, int] = {}

    def workers(self) -> list[tree.ProcessFacts]:
        """The living workers, by what the log says so far."""
        with self.log.open("rb") as file:
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._offset += len(line)
                if b'"worker.spawned"' in line or b'"worker.reaped"' in line:
                    self._note(line)
        found = [tree.read(pid) for pid in self._workers.values()]
        ours = tree.descendants(self.process.pid, tree.scan())
        return [facts for facts in found if facts is not None and facts.pid in ours]

    def _note(self, line: bytes) -> None:
        match parse(line).event:
            case WorkerSpawned(worker=worker, generation=generation, pid=pid):
                self._workers[f"{worker}/{generation}"] = pid
            case WorkerReaped(worker=worker, generation=generation):
                self._workers.pop(f"{worker}/{generation}", None)
            case _:
                pass

    def below(self, root: int) -> list[tree.ProcessFacts]:
        """The living descendants of a process of the daemon's."""
        return [facts for facts in tree.descendants(root, tree.scan()).values() if facts.living]

    def footprint(self) -> Footprint:
        """What it holds now."""
        pid = self.process.pid
        proc = Path(f"/proc/{pid}")
        status = dict(
            line.split(":", 1) for line in (proc / "status").read_text("ascii").splitlines()
        )
        kinds = Counter(_kind(link) for link in (proc / "fd").iterdir())
        return Footprint(
            descriptors=kinds.total(),
            threads=int(status["Threads"]),
            children=sum(facts.ppid == pid for facts in tree.scan().values()),
            resident=int(status["VmRSS"].split()[0]) * 1024,
            kinds=kinds,
        )

    def stop(self) -> tuple[int, float]:
        """SIGTERM, once; the exit code and the seconds that it took.

        Raises:
            subprocess.TimeoutExpired: if it does not end.
        """
        begin = time.monotonic()
        self.process.terminate()
        return self.process.wait(_STOP_SECONDS), time.monotonic() - begin


def _kind(link: Path) -> str:
    """What a descriptor is, without the number that makes it one of many."""
    try:
        return re.sub(r":\[\d+\]$", "", str(link.readlink()))
    except FileNotFoundError:
        return "closed meanwhile"


@contextmanager
def daemon(folder: Path, log: Path) -> Iterator[Subject]:
    """Run a daemon that writes its events to ``log``; whatever is left of it is ended."""
    config = folder / "daemon.toml"
    config.write_text(settings.text(folder))
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [SCRIPTS / "supervisord-llm", "run", "--config", config], stderr=stderr
        )
    try:
        yield Subject(process, folder, log)
    finally:
        process.send_signal(signal.SIGCONT)
        if process.poll() is None:
            process.kill()
        process.wait()


def survivors(identity: str) -> list[tree.ProcessFacts]:
    """Living processes that inherited a test's id; whoever asks is none of them."""
    entry = f"{TEST_VARIABLE}={identity}".encode()
    found = []
    for facts in tree.scan().values():
        with contextlib.suppress(OSError):
            environment = Path(f"/proc/{facts.pid}/environ").read_bytes().split(b"\0")
            if facts.living and facts.pid != os.getpid() and entry in environment:
                found.append(facts)
    return found
