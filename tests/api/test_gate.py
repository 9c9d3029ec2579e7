from __future__ import annotations

import hmac
from typing import Any

import httpx
import pytest

from supervisord_llm.api.keys import KeyRings
from supervisord_llm.config.keys import ApiKey, hash_key
from supervisord_llm.events import HttpRefused
from tests.api.conftest import Door, OpenDoor
from tests.api.raw import GENERATE, post, read_until

FILE = "/etc/keys"
KEYS = (ApiKey("alice", hash_key("sllm-a")), ApiKey("bob", hash_key("sllm-b")))
RESET = "/v1/sessions/s/reset"
LOCAL: dict[str, Any] = {
    "address": "tcp:127.0.0.1:0",
    "serve": ("inference", "probe"),
    "allow_without_key": True,
}


async def ask(door: Door, *headers: tuple[str, str], path: str = RESET) -> httpx.Response:
    """Send a request for a route that needs a key, or another one."""
    url = f"http://127.0.0.1:{door.port}" if door.address.startswith("tcp:") else "http://daemon"
    uds = None if door.address.startswith("tcp:") else str(door.path)
    async with httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(uds=uds)) as http:
        method = "POST" if path == RESET else "GET"
        return await http.request(method, url + path, headers=list(headers))


def test_a_key_is_its_owners() -> None:
    """Of the file that the listener names, whatever other files hold."""
    rings = KeyRings({FILE: KEYS, "/other": (ApiKey("eve", hash_key("sllm-e")),)})
    assert "alice" == rings.owner(FILE, "sllm-a")
    assert "bob" == rings.owner(FILE, "sllm-b")
    for presented in ("sllm-e", "sllm-", "", "SLLM-A", hash_key("sllm-a").hex(), "\udcff"):
        assert rings.owner(FILE, presented) is None
    assert rings.owner("/absent", "sllm-a") is None


def test_how_long_it_takes_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every entry is compared, also behind the one that it is, by a comparison that is even."""
    compared = []
    compare = hmac.compare_digest

    def watched(first: bytes, second: bytes) -> bool:
        compared.append(first)
        return compare(first, second)

    monkeypatch.setattr(hmac, "compare_digest", watched)
    for presented in ("sllm-a", "sllm-b", "x"):
        KeyRings({FILE: KEYS}).owner(FILE, presented)
    assert 3 * [key.digest for key in KEYS] == compared


def test_keys_are_replaced_file_by_file() -> None:
    """A file that was not read again keeps what it had."""
    rings = KeyRings({FILE: KEYS, "/other": KEYS})
    rings.replace({FILE: KEYS[1:]})
    assert (None, "bob", "alice") == (
        rings.owner(FILE, "sllm-a"),
        rings.owner(FILE, "sllm-b"),
        rings.owner("/other", "sllm-a"),
    )


@pytest.mark.parametrize("address", [None, "tcp:127.0.0.1:0"])
async def test_a_request_with_a_key_is_served(open_door: OpenDoor, address: str | None) -> None:
    """On either kind of socket; the scheme's case does not matter."""
    where = {} if address is None else {"address": address}
    async with open_door(api_keys=FILE, **where) as door:
        door.daemon.keys.replace({FILE: KEYS})
        for value in ("Bearer sllm-a", "bearer  sllm-b"):
            assert 200 == (await ask(door, ("authorization", value))).status_code


@pytest.mark.parametrize(
    ("headers", "sentence"),
    [
        ([], "cannot do that without an API key; send 'Authorization: Bearer KEY'"),
        ([("authorization", "Bearer sllm-secret")], "it is none of those that the daemon has"),
        ([("authorization", "Basic sllm-secret")], "send it once, as 'Authorization: Bearer KEY'"),
        ([("authorization", "Bearer")], "send it once, as 'Authorization: Bearer KEY'"),
        ([("authorization", "sllm-a")], "send it once, as 'Authorization: Bearer KEY'"),
        (2 * [("authorization", "Bearer sllm-a")], "send it once"),
    ],
)
async def test_a_request_without_a_key_is_refused(
    open_door: OpenDoor, headers: list[tuple[str, str]], sentence: str
) -> None:
    """In OpenAI's envelope, with an event that knows who came and not what was presented."""
    async with open_door(api_keys=FILE, address="tcp:127.0.0.1:0") as door:
        door.daemon.keys.replace({FILE: KEYS})
        reply = await ask(door, *headers)
        refused = await door.daemon.wait_event(HttpRefused)
        error = reply.json()["error"]
        assert (401, "Bearer", "invalid_request_error", "invalid_api_key") == (
            reply.status_code,
            reply.headers["www-authenticate"],
            error["type"],
            error["code"],
        )
        assert sentence in error["message"]
        assert (401, f"invalid_api_key: POST {RESET}") == (refused.status, refused.reason)
        assert refused.peer.startswith("tcp:127.0.0.1:")
        assert "secret" not in f"{door.daemon.events}{reply.text}{reply.headers}"


async def test_a_key_is_asked_for_before_the_body(open_door: OpenDoor) -> None:
    """Who has none is not listened to, and is told so although he has not sent all he announced."""
    async with open_door(api_keys=FILE) as door, await door.connect() as stream:
        head = post(RESET, b"", "content-length: 5000000").replace(b"content-length: 0\r\n", b"")
        await stream.send_all(head + b"x")
        await read_until(stream, b'"code":"invalid_api_key"')


async def test_other_groups_need_no_key(open_door: OpenDoor) -> None:
    """Probes are for everybody; control is for those whom the socket's file lets in."""
    async with open_door(api_keys=FILE) as door:
        for path in ("/livez", "/health", "/api/v1/status"):
            assert 200 == (await ask(door, path=path)).status_code


async def test_without_a_file_nobody_gets_in(open_door: OpenDoor) -> None:
    """Keys that nobody has put there are no keys."""
    async with open_door(api_keys=FILE) as door:
        assert 401 == (await ask(door, ("authorization", "Bearer sllm-a"))).status_code


async def test_a_generation_is_the_users_on_a_unix_socket(door: Door) -> None:
    """Turns are taken between users, and between addresses over TCP."""
    async with await door.connect() as stream:
        await stream.send_all(post("/api/v1/generate", GENERATE))
        request = await door.pool.next_request()
        assert request.client.startswith("uid:")


async def test_a_generation_is_the_address_over_tcp(open_door: OpenDoor) -> None:
    """Where there is no key, nothing else is known."""
    async with open_door(address="tcp:127.0.0.1:0") as door, await door.connect() as stream:
        await stream.send_all(post("/api/v1/generate", GENERATE))
        request = await door.pool.next_request()
        assert "tcp:127.0.0.1" == request.client


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:1", "127.0.0.1:80", "127.1.2.3", "[::1]:80", "[::1]",
             "localhost.", "My-Machine.lan:8000"],
)  # fmt: skip
async def test_a_name_of_this_machine_is_served_without_a_key(
    open_door: OpenDoor, host: str
) -> None:
    """Loopback addresses, localhost, and what the configuration lists; the port says nothing."""
    async with open_door(allowed_hosts=("my-machine.LAN",), **LOCAL) as door:
        assert 200 == (await ask(door, ("host", host))).status_code


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "192.168.0.1:80",
             "a@localhost", "localhost:80:80", "[::1", "[::2]", "0.0.0.0", "2130706433"],
)  # fmt: skip
async def test_another_name_is_refused_without_a_key(open_door: OpenDoor, host: str) -> None:
    """A web page that gives its own name this address reads nothing, and starts nothing."""
    async with open_door(**LOCAL) as door:
        reply = await ask(door, ("host", host))
        refused = await door.daemon.wait_event(HttpRefused)
        assert (403, "forbidden") == (reply.status_code, reply.json()["error"]["code"])
        assert "add the name to listen.allowed_hosts" in reply.json()["error"]["message"]
        assert (403, f"forbidden: POST {RESET}") == (refused.status, refused.reason)


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("https://evil.example", 403),
        ("http://localhost.evil.example:80", 403),
        ("null", 403),
        ("", 403),
        ("http://[::1", 403),
        ("http://user@evil.example", 403),
        ("http://localhost:3000", 200),
        ("http://127.0.0.1", 200),
        ("app://obsidian.md", 200),
        ("vscode-webview://abc", 200),
    ],
)
async def test_a_web_page_from_elsewhere_is_refused_without_a_key(
    open_door: OpenDoor, origin: str, status: int
) -> None:
    """A browser lets any page send a request; it says which, and applications are no pages."""
    async with open_door(**LOCAL) as door:
        assert status == (await ask(door, ("origin", origin))).status_code


async def test_with_a_key_any_name_will_do(open_door: OpenDoor) -> None:
    """No page has one; whoever has it may come by way of a proxy."""
    async with open_door(api_keys=FILE, address="tcp:127.0.0.1:0") as door:
        door.daemon.keys.replace({FILE: KEYS})
        headers = [
            ("host", "llm.example"),
            ("origin", "https://ui.example"),
            ("authorization", "Bearer sllm-a"),
        ]
        reply = await ask(door, *headers)
        assert 200 == reply.status_code
        assert not [name for name in reply.headers if name.startswith("access-control")]
