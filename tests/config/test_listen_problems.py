from __future__ import annotations

from pathlib import Path

import pytest

from supervisord_llm.config.schema import ListenConfig
from tests.config.files import POOL, load_text, problems

TCP = 'address = "tcp:127.0.0.1:80"\n'
OUTSIDE = 'address = "tcp:0.0.0.0:80"\n'
SERVE = 'serve = ["inference", "probe"]\n'
FILE = "from `supervisord-llm new-key NAME --file FILE`"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            TCP + "allow_without_key = true",
            (
                'serve: cannot have "control" on a TCP address, for it lets a client do anything; '
                'write ["inference", "probe"], and give "control" a Unix socket in a [[listen]] of '
                "its own"
            ),
        ),
        (
            TCP + SERVE,
            (
                'api_keys: cannot be left out for "inference" on a TCP address; write the path of '
                f"a file {FILE}, or allow_without_key = true to let in every user of this machine"
            ),
        ),
        (
            OUTSIDE + SERVE,
            (
                'api_keys: cannot be left out for "inference" on a TCP address; write the path of '
                f"a file {FILE}"
            ),
        ),
        (
            OUTSIDE + SERVE + "allow_without_key = true",
            (
                "allow_without_key: cannot be true for tcp:0.0.0.0:80, which other machines can "
                "reach; write api_keys = FILE, or listen on 127.0.0.1"
            ),
        ),
        (
            "allow_without_key = true",
            (
                "allow_without_key: cannot be used for a Unix socket, which needs no key but its "
                "file's permissions; remove it"
            ),
        ),
        (
            'api_keys = "keys"',
            'api_keys: cannot use "keys": relative; write an absolute path',
        ),
        (
            'api_keys = "/keys"\nserve = ["probe"]',
            (
                'api_keys: cannot be used: only "inference" asks for keys; serve it, or remove '
                "api_keys"
            ),
        ),
        (
            'allowed_hosts = ["a.b"]',
            (
                "allowed_hosts: cannot be used without allow_without_key = true, for which it is; "
                "remove it"
            ),
        ),
        (
            TCP + SERVE + 'allow_without_key = true\nallowed_hosts = ["a:80"]',
            (
                'allowed_hosts[0]: cannot use "a:80"; write a name without a port, such as '
                "my-machine.lan"
            ),
        ),
        (
            TCP + 'serve = ["probe"]\nmode = "0660"',
            "mode: cannot be used for a TCP address, which has no file; remove it",
        ),
        (
            TCP + 'serve = ["probe"]\nowner = "llm"',
            "owner: cannot be used for a TCP address, which has no file; remove it",
        ),
        (
            TCP + 'serve = ["probe"]\ngroup = "llm"',
            "group: cannot be used for a TCP address, which has no file; remove it",
        ),
        (
            'name = "a:b"',
            'name: cannot use "a:b"; write at most 64 of a-z, A-Z, 0-9, ., _ and -',
        ),
    ],
)
def test_a_contradiction_of_a_listener_is_told(tmp_path: Path, text: str, expected: str) -> None:
    """One fault gives one sentence, with its key and the remedy."""
    assert [f"listen[0].{expected}"] == problems(tmp_path, f"{POOL}[[listen]]\n{text}\n")


def test_keys_and_doing_without_exclude_each_other(tmp_path: Path) -> None:
    """It must not be a matter of order which of them holds."""
    path = tmp_path / "keys"
    path.touch(0o600)
    text = f'{TCP}{SERVE}api_keys = "{path}"\nallow_without_key = true'
    assert [
        "listen[0].allow_without_key: cannot be true together with api_keys; remove one of them"
    ] == problems(tmp_path, f"{POOL}[[listen]]\n{text}\n")


def test_a_name_is_given_once(tmp_path: Path) -> None:
    """A socket that is passed under it is for one listener."""
    one = '[[listen]]\naddress = "unix:/run/{}.sock"\nname = "{}"\n'
    text = POOL + one.format("a", "") + one.format("b", "n") + one.format("c", "n")
    assert ['listen[2].name: cannot be "n": listen[1] is; give each its own'] == problems(
        tmp_path, text + one.format("d", "")
    )


def test_the_same_address_is_noticed_in_another_spelling(tmp_path: Path) -> None:
    """Two sockets on any free port are two, though."""
    one = '[[listen]]\naddress = "tcp:{}"\nserve = ["probe"]\n'
    same = POOL + one.format("127.0.0.1:80") + one.format("localhost:80")
    assert [
        'listen[1].address: cannot listen on "tcp:localhost:80": listen[0] does; give each its own'
    ] == problems(tmp_path, same)
    free = POOL + 2 * one.format("[::1]:0")
    assert 2 == len(load_text(tmp_path, free).config.listen)


@pytest.mark.parametrize(
    "text",
    [
        OUTSIDE + 'serve = ["probe"]',
        TCP + SERVE + 'allow_without_key = true\nallowed_hosts = ["my-machine.lan"]',
        'address = "tcp:[::1]:0"\nserve = ["inference"]\nallow_without_key = true',
    ],
)
def test_a_listener_that_lets_in_nobody_by_mistake_is_valid(tmp_path: Path, text: str) -> None:
    """Probes need no key anywhere; the loopback address needs none if somebody says so."""
    loaded = load_text(tmp_path, f"{POOL}[[listen]]\n[[listen]]\n{text}\n")
    assert ListenConfig().mode == loaded.config.listen[1].mode
    assert not loaded.warnings


def test_the_environment_moves_no_tcp_listener(tmp_path: Path) -> None:
    """One that must not serve control is not turned into one that may."""
    [found] = problems(
        tmp_path,
        f"{POOL}[[listen]]\n{TCP}allow_without_key = true",
        SUPERVISORD_LLM_SOCKET="/run/s.sock",
    )
    assert found.startswith("listen[0].serve: ")
