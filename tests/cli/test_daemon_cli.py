from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from supervisord_llm import __version__, daemon
from supervisord_llm.cli.daemon import main
from supervisord_llm.config.load import LoadedConfig
from supervisord_llm.errors import AddressInUse

MINIMAL = """
[daemon]
state_dir = "/var/lib/sllm"
[[listen]]
address = "unix:/run/sllm.sock"
[pool.p]
command = ["/bin/sh", "-c", "echo {slot}"]
env = { API_KEY = "s3cret" }
limits.cpus = ["0"]
"""

GOLDEN = """\
# FILE is valid. In force:

[daemon]
state_dir = "/var/lib/sllm"
shutdown_drain = "30s"
max_loop_lag = "1s"
seal_memory = true

[log]
format = "auto"
level = "info"
file = ""
rotate_size = "64MiB"
rotate_keep = 5
ring_events = 10000

[[listen]]
address = "unix:/run/sllm.sock"
name = ""
mode = "0600"
owner = ""
group = ""
serve = ["control", "inference", "probe"]
api_keys = ""
allow_without_key = false
allowed_hosts = []
max_body = "16MiB"
max_connections = 1024
send_timeout = "10s"
body_timeout = "30s"
idle_timeout = "75s"
sse_keep_alive = "15s"

[pool.p]
command = ["/bin/sh", "-c", "echo {slot}"]
models = []
dialect = "auto"
workers = 1
standby = 0
min_ready = 1
required = true
reload = "surge"
load = "eager"
idle_ttl = "10m"
exclusive = ""
chat_template = ""
session_ttl = "30m"
pass_env = []
per_slot_env = []
max_line = "1MiB"
stdin_timeout = "5s"
heartbeat = "500ms"

[pool.p.env]
API_KEY = "…"

[pool.p.load_limits]
timeout = "10m"
stall = "1m"

[pool.p.cancel]
cancellation = "auto"
cooperative_grace = "2s"
prefill_grace = "10s"
terminate_grace = "3s"
kill_grace = "2s"
reap_grace = "5s"
on_uncancellable = "terminate"
detach_timeout = "5m"
self_test = false

[pool.p.health]
probe_interval = "10s"
probe_timeout = "5s"
first_token_stall = "1m"
token_stall = "30s"

[pool.p.restart]
backoff_initial = "500ms"
backoff_max = "30s"
jitter = 0.2
healthy_after = "1m"
max_restarts = 5
restart_window = "5m"

[pool.p.queue]
max_queued = 256
queue_timeout = "1m"
deadline = "10m"
max_attempts = 2
age_step = "5s"
mailbox_tokens = 1024
mailbox_bytes = "1MiB"

[pool.p.limits]
memory_soft = ""
memory_hard = ""
max_requests = 0
max_age = ""
nice = 0
oom_score_adj = 500
cpus = ["0"]

[pool.p.sampling]
temperature = 0.0
max_new_tokens = 512

# What would run:
# p.0 on core 0, nice 0, oom_score_adj 500
#   /bin/sh -c 'echo p.0'
#   environment: API_KEY HOME PATH
"""


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An environment with two variables that workers inherit, and one core."""
    for name in list(os.environ):
        if not name.startswith(("PYTEST", "SUPERVISORD_LLM_TEST")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", os.defpath)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A valid configuration."""
    path = tmp_path / "c.toml"
    path.write_text(MINIMAL)
    return path


def command(monkeypatch: pytest.MonkeyPatch, *arguments: str | Path) -> int:
    """Run ``supervisord-llm`` with these arguments; the exit status."""
    monkeypatch.setattr(sys, "argv", ["supervisord-llm", *map(str, arguments)])
    return main()


def test_check_prints_what_is_in_force_and_what_would_run(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], file: Path
) -> None:
    """The whole output is a TOML document; values of variables are not in it."""
    assert 0 == command(monkeypatch, "check", "--config", file)
    out, err = capfd.readouterr()
    assert GOLDEN == out.replace(str(file), "FILE")
    assert ("", "unix:/run/sllm.sock") == (err, tomllib.loads(out)["listen"][0]["address"])


def test_check_tells_when_what_is_loaded_and_what_the_kernel_is_told(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], file: Path
) -> None:
    """Standby, load on demand, exclusive groups and limits of memory are worth a word each."""
    file.write_text(
        """
        [pool.a]
        command = ["/bin/true"]
        standby = 1
        limits.memory_hard = "1GiB"
        exclusive = "gpu0"
        [pool.b]
        command = ["/bin/true"]
        load = "on_demand"
        idle_ttl = "90s"
        exclusive = "gpu0"
        """
    )
    assert 0 == command(monkeypatch, "check", "--config", file)
    told = capfd.readouterr().out.partition("# What would run:\n")[2]
    assert (
        """\
# a is in the group "gpu0": only one of a, b is loaded at a time
# a.0 on core 0, nice 0, oom_score_adj 500
#   /bin/true
#   environment: HOME PATH
#   limit of each process, where no control group holds the worker: data 1280MiB
# a.1 stands by on core 0, nice 0, oom_score_adj 500
#   /bin/true
#   environment: HOME PATH
#   limit of each process, where no control group holds the worker: data 1280MiB
# b is loaded when a request needs it and unloaded after 90s without one; in the group "gpu0": \
only one of a, b is loaded at a time
# b.0 on core 0, nice 0, oom_score_adj 500
#   /bin/true
#   environment: HOME PATH
"""
        == told
    )


def test_check_tells_every_problem_on_stderr(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], file: Path
) -> None:
    """Nothing is printed as valid, and the exit status is that of a wrong configuration."""
    file.write_text('[log]\nlevel = "loud"\n[pool.p]\ncommand = ["w"]\nworkers = "2"\n')
    assert 78 == command(monkeypatch, "check", "--config", file)
    out, err = capfd.readouterr()
    assert "" == out
    assert (
        f"{file}: 2 problems\n"
        '  log.level: cannot use "loud"; write one of "debug", "error", "info", "warning"\n'
        '  pool.p.workers: cannot use "2"; write a whole number from 1 to 1024\n'
    ) == err


def test_check_warns_on_stderr(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], file: Path
) -> None:
    """What works, but hardly as meant, does not make the file invalid."""
    file.write_text(MINIMAL.replace("/bin/sh", "/no/worker"))
    assert 0 == command(monkeypatch, "check", "--config", file)
    assert (
        "warning: cannot run /no/worker for pool p: there is no such file; install the worker "
        "(ours: `make build`), or correct the pool's command\n"
    ) == capfd.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [["run", "--config", "F"], ["--config", "F"], ["--config", "F", "run"], ["run"], []],
)
def test_the_daemon_is_run_with_the_loaded_file(
    monkeypatch: pytest.MonkeyPatch, file: Path, arguments: list[str]
) -> None:
    """``run`` is the default, and the file comes from an option or the environment."""
    loaded: list[Path] = []

    def run_daemon(config: LoadedConfig, _on_ready: object) -> int:
        loaded.append(config.path)
        return 5

    monkeypatch.setattr(daemon, "main", run_daemon)
    if "F" not in arguments:
        monkeypatch.setenv("SUPERVISORD_LLM_CONFIG", str(file))
    assert 5 == command(monkeypatch, *[str(file) if a == "F" else a for a in arguments])
    assert [file] == loaded


def test_the_nearest_option_wins(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], file: Path
) -> None:
    """A file named after the command goes before an earlier one, and that before the variable."""
    monkeypatch.setenv("SUPERVISORD_LLM_CONFIG", "/no/environment")
    assert 78 == command(monkeypatch, "--config", file, "check", "--config", "/no/option")
    assert "/no/option: 1 problem\n" in capfd.readouterr().err
    assert 0 == command(monkeypatch, "--config", file, "check")


def test_a_configuration_must_be_named(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """There is no file that is used unasked."""
    assert 2 == command(monkeypatch)
    assert (
        "Error: cannot do anything without a configuration; give --config FILE, or set "
        "SUPERVISORD_LLM_CONFIG\n"
    ) in capfd.readouterr().err


def test_what_the_machine_does_not_allow_is_told_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], file: Path
) -> None:
    """An error of the operator's is no traceback."""

    def refuse(_config: LoadedConfig, _on_ready: object) -> int:
        raise AddressInUse("cannot listen: another daemon does; stop that one")

    monkeypatch.setattr(daemon, "main", refuse)
    assert 1 == command(monkeypatch, "run", "--config", file)
    expected = ("", "supervisord-llm: cannot listen: another daemon does; stop that one\n")
    assert expected == capfd.readouterr()


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (["--version"], 0, rf"supervisord-llm, version {re.escape(__version__)}\n"),
        (["--help"], 0, r"(?s)Usage: supervisord-llm .* check .* run .*Exit status: .*78"),
        (["check", "-h"], 0, r"(?s)Usage: supervisord-llm check .*--config FILE"),
        (["chekc"], 2, r"(?s).*No such command 'chekc'"),
        (["--verbose"], 2, r"(?s).*No such option"),
    ],
)
def test_help_and_wrong_usage(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    arguments: list[str],
    status: int,
    text: str,
) -> None:
    """Help goes to stdout with success, complaints to stderr with the status of wrong usage."""
    assert status == command(monkeypatch, *arguments)
    assert re.match(text, capfd.readouterr()[0 if status == 0 else 1])


def test_a_path_that_is_no_text_is_printed_as_it_is(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes], file: Path
) -> None:
    """Bytes in the name of a folder do not break the report."""
    file.write_text(MINIMAL.replace('"/var/lib/sllm"', '"{data_dir}"'))
    monkeypatch.setenv("STATE_DIRECTORY", os.fsdecode(b"/var/\xff"))
    assert 0 == command(monkeypatch, "check", "--config", file)
    assert b"/var/\xff" in capfdbinary.readouterr().out


def test_a_reader_that_leaves_is_no_error_message(file: Path) -> None:
    """``supervisord-llm check | head -1`` ends quietly; and ``python -m`` is the same program."""
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as closed:  # noqa: PTH123 - a descriptor
        done = subprocess.run(
            [sys.executable, "-m", "supervisord_llm", "check", "--config", file],
            stdout=closed,
            stderr=subprocess.PIPE,
            check=False,
            timeout=60,
        )
    assert (1, b"") == (done.returncode, done.stderr)
