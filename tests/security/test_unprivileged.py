"""The daemon needs no right that an ordinary user has not, and its workers get none either."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from tests.harness import write_config
from tests.security.daemon_as import daemon_as
from tests.security.people import NOBODY, Person, needs_root, open_folder, tell

DAEMON = Person(uid=NOBODY)


def status(pid: int) -> dict[str, list[str]]:
    """What the kernel says of a process (proc_pid_status(5))."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.split() for name, value in (line.split(":", 1) for line in lines)}


@needs_root
def test_it_serves_as_nobody_and_what_it_keeps_is_its_own() -> None:
    """A generation, a reload, an orderly end; and every file that it made is for its user alone."""
    with open_folder(owner=NOBODY) as folder:
        config = write_config(folder)
        with daemon_as(DAEMON, folder, config) as running:
            body = {"pool": "sim", "prompt": "x sim.tokens=3"}
            lines = running.client.post("/api/v1/generate", json=body).text.splitlines()
            assert json.loads(lines[-1])["outcome"] == "completed"
            assert running.client.post("/api/v1/pools/sim/reload?wait=true").status_code == 200
            assert running.client.post("/api/v1/config/reload").status_code == 200
            assert set(status(running.process.pid)["Uid"]) == {str(NOBODY)}
            made = [path for path in folder.rglob("*") if path.name not in {"log", config.name}]
            names = {path.name for path in made}
            assert {"control.sock", "control.sock.lock", "state", "workers"} <= names
            assert {path.lstat().st_uid for path in made} == {NOBODY}
            assert {stat.S_IMODE(path.lstat().st_mode) & 0o077 for path in made} == {0}
        assert running.events("daemon.warning") == []


@needs_root
def test_a_worker_has_the_daemons_user_and_nothing_else() -> None:
    """Its pipes and no other descriptor, no capability, and no way to gain one."""
    with (
        open_folder(owner=NOBODY) as folder,
        daemon_as(DAEMON, folder, write_config(folder)) as running,
    ):
        [pid] = running.worker_pids()
        facts = status(pid)
        assert set(facts["Uid"] + facts["Gid"]) == {str(NOBODY)}
        assert facts["NoNewPrivs"] == ["1"]
        assert {int(facts[kind][0], 16) for kind in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {0}
        # Its three streams and the pipe for cancellations; what else it has it has made.
        held = {str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir()}
        pipes = {name for name in held if name.startswith("pipe:")}
        assert len(pipes) == 4
        assert held - pipes <= {"anon_inode:[eventfd]"}


LOOK = """
become()
for name in ("environ", "mem", "fd", "maps"):
    path = f"/proc/{sys.argv[1]}/{name}"
    try:
        os.listdir(path) if name == "fd" else open(path, "rb").close()
        print(name)
    except PermissionError:
        pass
"""


@needs_root
@pytest.mark.parametrize("sealed", [True, False])
def test_no_process_of_its_user_looks_into_the_daemon(sealed: bool) -> None:
    """Its environment, memory and descriptors are sealed, unless it is to be debugged.

    Its workers are of the same user, and are not.
    """
    with open_folder(owner=NOBODY) as folder:
        config = write_config(folder)
        if not sealed:
            text = config.read_text()
            config.write_text(text.replace("[daemon]", "[daemon]\nseal_memory = false"))
        with daemon_as(DAEMON, folder, config) as running:
            [worker] = running.worker_pids()
            everything = ["environ", "mem", "fd", "maps"]
            seen = tell(DAEMON, LOOK, str(running.process.pid)).split()
            assert seen == ([] if sealed else everything)
            assert tell(DAEMON, LOOK, str(worker)).split() == everything
