"""Who may use which socket: its file's group decides, and each serves its own routes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.daemon.running import Running
from tests.harness import write_config
from tests.security.daemon_as import daemon_as
from tests.security.people import NOBODY, Person, needs_root, open_folder, tell, two_groups

ASK = """
import socket
become()
with socket.socket(socket.AF_UNIX) as client:
    client.settimeout(20)
    try:
        client.connect(sys.argv[1])
    except PermissionError:
        print("not permitted")
        sys.exit()
    client.sendall(f"{sys.argv[2]} HTTP/1.0\\r\\n\\r\\n".encode())
    print(client.recv(4096).split()[1].decode())
"""

STATUS, MODELS = "GET /api/v1/status", "GET /v1/models"
DRAIN = "POST /api/v1/pools/sim/drain"


@contextmanager
def separated() -> Iterator[tuple[Running, Path, dict[str, Person]]]:
    """A daemon with a socket for each of two groups, its folder, and people in none, one or both.

    It runs as a user that is in both, as the service does, and so may give its sockets to them.
    """
    admins, users = two_groups()
    both = (admins.gr_gid, users.gr_gid)
    with open_folder(owner=NOBODY) as folder:
        config = write_config(folder)
        first = f'[[listen]]\naddress = "unix:{folder}/control.sock"\n'
        assert first in config.read_text()
        listeners = first + (
            f'mode = "0660"\ngroup = "{admins.gr_name}"\nserve = ["control"]\n'
            f'[[listen]]\naddress = "unix:{folder}/inference.sock"\n'
            f'mode = "0660"\ngroup = "{users.gr_name}"\nserve = ["inference"]\n'
        )
        config.write_text(config.read_text().replace(first, listeners))
        people = {
            "stranger": Person(uid=60001, gid=60001),
            "admin": Person(uid=60002, gid=60002, groups=(admins.gr_gid,)),
            "user": Person(uid=60003, gid=60003, groups=(users.gr_gid,)),
            "both": Person(uid=60004, gid=60004, groups=both),
        }
        with daemon_as(Person(uid=NOBODY, groups=both), folder, config) as running:
            yield running, folder, people


@needs_root
@pytest.mark.skipif(len(two_groups()) < 2, reason="this machine has no two groups to tell apart")
def test_the_groups_of_the_sockets_separate_operators_from_users() -> None:
    """An operator cannot ask the model, a user can command nothing, and a stranger neither."""
    with separated() as (running, folder, people):
        told = {
            name: [
                tell(person, ASK, str(folder / socket), asked)
                for socket, asked in [
                    ("control.sock", STATUS),
                    ("control.sock", MODELS),
                    ("inference.sock", STATUS),
                    ("inference.sock", DRAIN),
                    ("inference.sock", MODELS),
                ]
            ]
            for name, person in people.items()
        }
        no = "not permitted"
        assert told == {
            "stranger": [no, no, no, no, no],
            "admin": ["200", "404", no, no, no],
            "user": [no, no, "404", "404", "200"],
            "both": ["200", "404", "404", "404", "200"],
        }
        assert running.events("control.operation") == []
        assert tell(people["admin"], ASK, str(folder / "control.sock"), DRAIN) == "202"
        [operation] = running.events("control.operation")
        assert (operation["uid"], operation["gid"]) == (60002, 60002)
