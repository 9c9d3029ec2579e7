"""A daemon that writes its log to a file."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

from tests.daemon.running import PROGRAM, until
from tests.harness import SECONDS, write_config


def with_log(folder: Path, path: Path) -> Path:
    """A configuration with a file for the log."""
    config = write_config(folder)
    config.write_text(f'[log]\nfile = "{path}"\nrotate_size = "4KiB"\n{config.read_text()}')
    return config


def names(path: Path) -> list[str]:
    """The events that are in a file."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line)["event"] for line in lines]


def test_the_file_has_the_log_and_is_opened_anew_by_a_signal(tmp_path: Path) -> None:
    """From the first event to the last; what was moved away is not written to any more."""
    path, moved = tmp_path / "events.log", tmp_path / "moved"
    process = subprocess.Popen(
        [PROGRAM, "run", "--config", with_log(tmp_path, path)], stderr=subprocess.PIPE
    )
    until(lambda: "daemon.ready" in names(path), "the start")
    path.rename(moved)
    process.send_signal(signal.SIGHUP)
    until(lambda: "config.reloaded" in names(path), "the new file")
    process.terminate()
    _, stderr = process.communicate(timeout=SECONDS)
    assert (0, b"") == (process.returncode, stderr)
    assert ("daemon.started", "daemon.ready") == (names(moved)[0], names(moved)[-1])
    assert ("config.reloaded", "daemon.stopped") == (names(path)[0], names(path)[-1])


def test_a_file_that_cannot_be_had_ends_the_start(tmp_path: Path) -> None:
    """With one line that says what to do."""
    done = subprocess.run(
        [PROGRAM, "run", "--config", with_log(tmp_path, tmp_path / "absent" / "log")],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    expected = (
        f"supervisord-llm: cannot write the log to {tmp_path}/absent/log: No such file or "
        "directory; create its folder for this user, or change log.file\n"
    )
    assert (1, expected) == (done.returncode, done.stderr)
