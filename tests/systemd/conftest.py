"""The installed program, once for all tests, and a machine that runs it as a service."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.build_native import Build
from scripts.cache import cached, digest
from scripts.environment import interpreter
from scripts.install import Layout, install
from scripts.sources import ROOT
from scripts.steps import StepFailed
from scripts.toolchain import find_toolchain
from scripts.wheel import make_wheel
from tests.harness import QUICK
from tests.systemd.machine import CONFIG, DROP_IN, SOCKETS, UNIT, Machine, boot, missing

SOURCES = ("supervisord_llm", "systemd", "scripts", "tools", "config", "requirements")

POOL = f"""
[daemon]
shutdown_drain = "10s"
[[listen]]
address = "unix:{{runtime_dir}}/control.sock"
mode = "0660"
group = "llm-admin"
[[listen]]
address = "unix:{{runtime_dir}}/inference.sock"
mode = "0660"
group = "llm"
serve = ["inference", "probe"]
[pool.sim]
command = ["sllm-sim-worker"]
workers = 2
sampling = {{ max_new_tokens = 100000 }}
{QUICK}
"""
"""A configuration that is quick in everything."""


def layout(destdir: Path) -> Layout:
    """Where a test installs to: everything is in ``/opt`` or ``/etc``."""
    prefix, etc = Path("/opt/sllm"), Path("/etc")
    return Layout(
        prefix=prefix,
        sysconfdir=etc,
        unitdir=etc / "systemd/system",
        sysusersdir=etc / "sysusers.d",
        tmpfilesdir=etc / "tmpfiles.d",
        mandir=prefix / "share/man",
        destdir=destdir,
    )


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that everything was installed below; made anew only if a source has changed."""
    try:
        interpreter()
    except StepFailed as failure:
        pytest.skip(str(failure))
    files = [
        path
        for folder in SOURCES
        for path in sorted((ROOT / folder).rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    ]
    named = [part for path in files for part in (str(path.relative_to(ROOT)), path.read_bytes())]
    key = digest([Build(find_toolchain(), "none").key(), *named])

    def make(target: Path) -> None:
        install(layout(target), make_wheel(tmp_path_factory.mktemp("wheel")))

    return cached("installed", key, make)


@pytest.fixture(scope="module")
def machine(installed: Path) -> Iterator[Machine]:
    """A machine where the program is installed and nothing is started."""
    if (why := missing()) is not None:
        pytest.skip(why)
    with boot(installed) as made:
        made.run("systemd-sysusers")
        made.run("systemd-tmpfiles", "--create", "/etc/tmpfiles.d/supervisord-llm.conf")
        yield made


@pytest.fixture
def service(machine: Machine) -> Iterator[Machine]:
    """The machine with a configuration of two sim workers; stopped and forgotten afterwards."""
    machine.write(CONFIG, POOL)
    yield machine
    # With a running daemon: whatever a test did to it, it is over.
    machine.systemctl("kill", "--signal=KILL", UNIT, check=False)
    machine.systemctl("stop", *SOCKETS, UNIT)
    machine.remove(DROP_IN)
    machine.remove(Path("/var/lib/supervisord-llm"))
    machine.systemctl("daemon-reload")
    machine.systemctl("reset-failed")
