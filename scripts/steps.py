"""Running one long step: its progress is seen, its output kept, its failure explained."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

SECONDS_BETWEEN_LINES = 10.0
TAIL_LINES = 40
_NINJA = re.compile(r"^\[(\d+)/(\d+)\] ")


class StepFailed(Exception):
    """A step failed; the message says what, why and what to do."""


def run_step(
    title: str,
    argv: Sequence[str | Path],
    *,
    log: Path,
    remedy: str,
    env: Mapping[str, str] | None = None,
) -> None:
    """Run argv, write its output to log, show progress.

    On a terminal one line follows ninja's counter; elsewhere a line is printed every ten seconds.

    Raises:
        StepFailed: the command failed; carries the last lines of its output.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    tail: deque[str] = deque(maxlen=TAIL_LINES)
    progress = _Progress(title)
    with (
        log.open("w", encoding="utf-8") as kept,
        subprocess.Popen(
            [str(a) for a in argv],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=env,
        ) as process,
    ):
        assert process.stdout is not None
        try:
            for line in process.stdout:
                kept.write(line)
                tail.append(line.rstrip("\n"))
                if counter := _NINJA.match(line):
                    progress.show(int(counter[1]), int(counter[2]))
        except BaseException:  # a signal: what it started must not go on without it
            process.terminate()
            raise
        status = process.wait()
    progress.end()
    if status != 0:
        lines = "\n".join(f"  {line}" for line in tail)
        raise StepFailed(f"{title} failed (status {status}):\n{lines}\nAll of it: {log}\n{remedy}")


class _Progress:
    def __init__(self, title: str) -> None:
        self._title = title
        self._live = sys.stderr.isatty()
        self._last = time.monotonic()
        self._shown = False

    def show(self, done: int, total: int) -> None:
        now = time.monotonic()
        if self._live:
            print(f"\r\x1b[K{self._title} [{done}/{total}]", end="", file=sys.stderr, flush=True)
            self._shown = True
        elif now - self._last >= SECONDS_BETWEEN_LINES:
            print(f"{self._title} [{done}/{total}]", file=sys.stderr, flush=True)
            self._last = now

    def end(self) -> None:
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
