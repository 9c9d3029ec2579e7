"""When a socket begins to listen, and what can be asked of it then."""

from __future__ import annotations

import socket
import stat
from pathlib import Path

import httpx
import pytest

from supervisord_llm.api.listeners import open_listeners
from supervisord_llm.api.routes import ROUTES
from supervisord_llm.config.schema import ListenConfig
from tests.api.conftest import OpenDoor, open_door
from tests.config.files import POOL, load_text, problems
from tests.security.people import needs_root, two_groups

__all__ = ["open_door"]


@needs_root
@pytest.mark.parametrize("mode", ["0600", "0660", "0666"])
def test_a_socket_has_its_final_mode_and_owner_before_it_listens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """Before that nobody can connect, so at no time anybody can who may not."""
    group = two_groups()[0]
    seen = []
    listen = socket.socket.listen

    def watched(self: socket.socket, *backlog: int) -> None:
        if self.family is socket.AF_UNIX:
            [path] = [each for each in tmp_path.iterdir() if each.is_socket()]
            found = path.stat()
            seen.append((stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid))
            with socket.socket(socket.AF_UNIX) as early:
                assert early.connect_ex(str(path)) != 0
        listen(self, *backlog)

    monkeypatch.setattr(socket.socket, "listen", watched)
    config = ListenConfig(
        address=f"unix:{tmp_path}/c.sock", mode=mode, owner="nobody", group=group.gr_name
    )
    with open_listeners([config]):
        found = (tmp_path / "c.sock").stat()
    final = (stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid)
    assert seen == [final]
    assert final == (int(mode, 8), 65534, group.gr_gid)


@pytest.mark.parametrize(
    "address",
    ["tcp:127.0.0.1:0", "tcp:[::1]:0", "tcp:localhost:0", "tcp:0.0.0.0:0", "TCP:127.0.0.1:0"],
)
@pytest.mark.parametrize("serve", ['["control"]', '["probe", "control"]', None])
def test_control_on_tcp_is_refused(tmp_path: Path, address: str, serve: str | None) -> None:
    """In every spelling, with other groups or without, and where all groups are the default."""
    keys = tmp_path / "keys"
    keys.touch(mode=0o600)
    told = f"serve = {serve}\n" if serve else ""
    text = f'[[listen]]\naddress = "{address}"\n{told}api_keys = "{keys}"\n{POOL}'
    found = problems(tmp_path, text)
    assert any(
        "listen[0].serve" in each or "listen[0].address: cannot listen" in each for each in found
    )


def test_the_environment_moves_control_to_no_tcp_address(tmp_path: Path) -> None:
    """What names the control socket is taken for a path, whatever it looks like."""
    text = f'[[listen]]\naddress = "unix:{tmp_path}/c.sock"\n{POOL}'
    [found] = problems(tmp_path, text, SUPERVISORD_LLM_SOCKET="tcp:127.0.0.1:9")
    assert 'cannot listen on "unix:tcp:127.0.0.1:9"' in found


def test_nothing_listens_on_tcp_unless_the_configuration_says_so(tmp_path: Path) -> None:
    """Without a [[listen]] there is one Unix socket, for the daemon's user alone."""
    [listen] = load_text(tmp_path, POOL).config.listen
    assert listen.address.startswith("unix:/")
    assert listen.mode == "0600"


async def test_no_route_of_control_answers_on_tcp(open_door: OpenDoor) -> None:
    """Each is not found there, with any method that it has elsewhere."""
    async with open_door(
        address="tcp:127.0.0.1:0", serve=("inference", "probe"), allow_without_key=True
    ) as door:
        control = [route for route in ROUTES if route.group == "control"]
        assert len(control) > 10
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{door.port}") as client:
            for route in control:
                path = route.path.replace("{", "").replace("}", "")
                reply = await client.request(route.method, path)
                assert (route.path, reply.status_code) == (route.path, 404)
            assert (await client.get("/livez")).status_code == 200
