"""The daemon and the floors, each in a process of its own; what processes have used."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import msgspec

SCRIPTS = Path(sysconfig.get_path("scripts"))

PATIENCE = 120.0
"""Seconds for anything to happen that must happen; only a hang uses them up."""

SIM = ("sllm-sim-worker", "--context_length=100000000")
"""A sim worker whose context no measurement fills."""


class BenchError(Exception):
    """A measurement could not be made; the message says why."""


def cpu_seconds(pid: int) -> float:
    """The CPU time that a process has used, all threads, user and system; no children.

    Read from the process's CPU clock, whose id Linux makes from the pid: /proc counts in ticks of
    10 ms, which is as much as ten thousand tokens may cost.
    """
    return time.clock_gettime(~pid << 3 | 2)


def resident_mib(pid: int) -> float:
    """A process's share of physical memory: pages that it shares count in part."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise BenchError(f"cannot find the memory of process {pid} in /proc; mount it")


def config_text(
    folder: Path, command: Sequence[str], workers: int, settings: str = "", listen: str = ""
) -> str:
    """A configuration with one pool ``bench``, whose workers may use every core."""
    cores = sorted(os.sched_getaffinity(0))
    return (
        f'[daemon]\nstate_dir = "{folder}/state"\nshutdown_drain = "1s"\n'
        "seal_memory = false\n"  # or only root could measure it
        f'[log]\nformat = "json"\n'
        f'[[listen]]\naddress = "unix:{folder}/control.sock"\n{listen}'
        f"[pool.bench]\ncommand = {list(command)}\nworkers = {workers}\n"
        f"limits.cpus = {[cores] * workers}\n"
        f"sampling.max_new_tokens = 100000000\n{settings}"
    )


class Daemon:
    """A running daemon."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path, log: IO[bytes]) -> None:
        """Adopt a process that was started just now; ``log`` reads what it writes."""
        self.pid = process.pid
        self.socket = folder / "control.sock"
        self._log = log
        self._rest = b""

    def wait_event(self, name: str, **fields: object) -> dict[str, Any]:
        """Wait for an event in the log; earlier ones are passed over, and forgotten."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            piece = self._log.readline()
            self._rest += piece
            if not self._rest.endswith(b"\n"):
                time.sleep(0.0005)
                continue
            line, self._rest = self._rest, b""
            event: dict[str, Any] = msgspec.json.decode(line)
            if event["event"] == name and fields.items() <= event.items():
                return event
        raise BenchError(f"{name} did not come within {PATIENCE:g} s")


@contextmanager
def daemon(
    folder: Path,
    command: Sequence[str] = SIM,
    *,
    workers: int = 1,
    settings: str = "",
    listen: str = "",
) -> Iterator[Daemon]:
    """Run a daemon until every worker is ready; end it in order."""
    with starting_daemon(
        folder, command, workers=workers, settings=settings, listen=listen
    ) as started:
        for _ in range(workers):
            started.wait_event("worker.ready")
        yield started


@contextmanager
def starting_daemon(
    folder: Path,
    command: Sequence[str] = SIM,
    *,
    workers: int = 1,
    settings: str = "",
    listen: str = "",
) -> Iterator[Daemon]:
    """The same, from the first moment of its process on."""
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "daemon.toml"
    config.write_text(config_text(folder, command, workers, settings, listen), encoding="utf-8")
    log = folder / f"log.{time.monotonic_ns()}"
    with log.open("wb") as stderr, log.open("rb") as reader:
        process = subprocess.Popen(
            [SCRIPTS / "supervisord-llm", "run", "--config", config], stderr=stderr
        )
        try:
            yield Daemon(process, folder, reader)
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def floor(kind: str, *arguments: object) -> subprocess.Popen[bytes]:
    """Start a floor, see `bench.floors`; it writes one line of JSON when it is done."""
    return subprocess.Popen(
        [sys.executable, "-m", "bench.floors", kind, *map(str, arguments)], stdout=subprocess.PIPE
    )


def result(process: subprocess.Popen[bytes]) -> Any:
    """What a floor found. Raises ``BenchError`` if it failed."""
    try:
        output, _ = process.communicate(timeout=PATIENCE)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    if process.returncode != 0:
        raise BenchError(f"the floor failed with status {process.returncode}; see above")
    return msgspec.json.decode(output)
