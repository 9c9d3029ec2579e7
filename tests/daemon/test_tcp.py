from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.daemon.running import PROGRAM, Running, running
from tests.harness import SECONDS, write_config

RESET = "/v1/sessions/s/reset"


@contextmanager
def over_tcp(folder: Path, listener: str) -> Iterator[tuple[Running, str]]:
    """Run a daemon with a second listener, on any free port; yield it and the listener's URL."""
    config = write_config(folder)
    text = f'[[listen]]\naddress = "tcp:127.0.0.1:0"\n{listener}\n[pool.sim]'
    config.write_text(config.read_text().replace("[pool.sim]", text))
    with running(folder, config) as made:
        told = made.wait("daemon.listening", 2)["address"]
        assert isinstance(told, str)
        yield made, f"http://{told.removeprefix('tcp:')}"


def new_key(file: Path, name: str) -> str:
    """Make a key as an operator does."""
    command = [str(PROGRAM), "new-key", name, "--file", str(file)]
    return subprocess.check_output(command, text=True).strip()


def test_a_key_opens_the_door_until_it_is_withdrawn(tmp_path: Path) -> None:
    """From the command that makes it to the SIGHUP after its line is gone; nobody else gets in."""
    keys = tmp_path / "keys"
    key = new_key(keys, "alice")
    listener = f'serve = ["inference", "probe"]\napi_keys = "{keys}"'
    with over_tcp(tmp_path, listener) as (made, url), httpx.Client(base_url=url) as http:
        mine = {"authorization": f"Bearer {key}"}
        assert 200 == http.get("/livez").status_code
        assert 200 == http.post(RESET, headers=mine).status_code
        assert 401 == http.post(RESET).status_code
        assert 404 == http.get("/api/v1/status", headers=mine).status_code

        keys.write_text("# nobody\n")
        made.process.send_signal(signal.SIGHUP)
        reloaded = made.wait("config.reloaded")
        assert [f"API keys in {keys}: alice removed"] == reloaded["differences"]
        assert 401 == http.post(RESET, headers=mine).status_code
        assert key not in made.log.read_text()


def test_loopback_may_need_no_key(tmp_path: Path) -> None:
    """If the configuration says so; but no web page gets in by another name."""
    listener = 'serve = ["inference"]\nallow_without_key = true'
    with over_tcp(tmp_path, listener) as (_, url), httpx.Client(base_url=url) as http:
        assert 200 == http.post(RESET).status_code
        assert 403 == http.post(RESET, headers={"host": "evil.example"}).status_code


def test_a_port_that_is_taken_stops_the_second_daemon(tmp_path: Path) -> None:
    """Exit status 1, with the address and the remedy; the first one serves on."""
    with over_tcp(tmp_path, 'serve = ["probe"]') as (made, url):
        address = made.wait("daemon.listening", 2)["address"]
        (tmp_path / "b").mkdir()
        config = write_config(tmp_path / "b")
        text = f'[[listen]]\naddress = "{address}"\nserve = ["probe"]\n[pool.sim]'
        config.write_text(config.read_text().replace("[pool.sim]", text))
        done = subprocess.run(
            [PROGRAM, "run", "--config", config],
            check=False, capture_output=True, text=True, timeout=SECONDS,
        )  # fmt: skip
        assert 1 == done.returncode
        assert f"cannot listen on {address}: another program does; stop that one" in done.stderr
        assert 200 == httpx.get(f"{url}/livez").status_code
