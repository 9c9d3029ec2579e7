"""Where secrets may not be seen: everywhere that this daemon writes to, answers or is listed."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from supervisord_llm.config.keys import key_line, new_key
from supervisord_llm.host import tree
from tests.conftest import TEST_VARIABLE
from tests.daemon.running import PROGRAM, Running, running
from tests.harness import QUICK, SCRIPTS, SECONDS

KEY, WITHDRAWN = new_key(), new_key()
SECRETS = {
    "a variable of the pool's": "SECRET-in-env",
    "a variable of a slot's": "SECRET-in-per-slot-env",
    "a variable that is passed on": "SECRET-in-pass-env",
    "a variable that no worker gets": "SECRET-in-environment",
    "an argument": "SECRET-in-argument",
    "a prompt": "SECRET-in-prompt",
    "a conversation": "SECRET-in-messages",
    "a query": "SECRET-in-query",
    "a header": "SECRET-in-header",
    "a key": KEY,
    "a key that is none any more": WITHDRAWN,
}

POOL = """
[daemon]
state_dir = "{folder}/state"
shutdown_drain = "5s"
[log]
format = "json"
level = "debug"
[[listen]]
address = "unix:{folder}/control.sock"
[[listen]]
address = "unix:{folder}/inference.sock"
serve = ["inference"]
api_keys = "{folder}/keys"
[pool.sim]
command = ["sh", "-c", "exec {scripts}/sllm-sim-worker", "sh", "--api-key", "SECRET-in-argument"]
env = {{ API_KEY = "SECRET-in-env" }}
per_slot_env = [{{ TOKEN = "SECRET-in-per-slot-env" }}]
pass_env = ["{test}", "PASSED_ON"]
sampling = {{ max_new_tokens = 10 }}
{quick}
"""


@contextmanager
def told_everything(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    """A daemon that has every one of the secrets, from its configuration or a client."""
    monkeypatch.setenv("PASSED_ON", SECRETS["a variable that is passed on"])
    monkeypatch.setenv("UNUSED", SECRETS["a variable that no worker gets"])
    keys = folder / "keys"
    keys.write_text(key_line("alice", KEY) + "\n" + key_line("bob", WITHDRAWN) + "\n")
    keys.chmod(0o600)
    config = folder / "daemon.toml"
    good = POOL.format(folder=folder, scripts=SCRIPTS, test=TEST_VARIABLE, quick=QUICK)
    config.write_text(good)
    with running(folder, config) as daemon:
        [worker] = daemon.worker_pids()
        environment = Path(f"/proc/{worker}/environ").read_text()
        assert all(SECRETS[name] in environment for name in list(SECRETS)[:3])
        assert SECRETS["a variable that no worker gets"] not in environment
        # A file with a mistake beside each secret, and a good one with others.
        for mistake in ('"SECRET-in-env{x"', '"SECRET-in-env\\u0000"', '["SECRET-in-env"]'):
            config.write_text(good.replace('"SECRET-in-env"', mistake))
            assert daemon.client.post("/api/v1/config/reload").status_code == 400
        config.write_text(good.replace("SECRET-in-argument", "SECRET-in-argument{x"))
        assert daemon.client.post("/api/v1/config/reload").status_code == 400
        keys.write_text(key_line("alice", KEY) + "\n")
        changed = good.replace("SECRET-in-env", "SECRET-in-env, another")
        config.write_text(changed.replace("SECRET-in-argument", "SECRET-in-argument, another"))
        assert daemon.client.post("/api/v1/config/reload").status_code == 200
        daemon.wait("worker.ready", count=2)
        yield daemon


def answers(daemon: Running, folder: Path) -> Iterator[str]:
    """What clients are answered: errors above all, but for the one who has sent the secret."""
    prompt, messages = SECRETS["a prompt"], SECRETS["a conversation"]
    for body in (
        {"pool": "sim", "prompt": prompt},
        {"pool": "sim", "prompt": f"{prompt} sim.exit=3"},
        {"pool": "sim", "prompt": [prompt]},
        {"pool": "sim", "prompt": prompt, "max_new_tokens": prompt},
        {"pool": "nowhere", "prompt": prompt},
        {"pool": "sim", "prompt": f"{prompt} \ud800"},
        {"pool": "sim", "messages": [{"role": "user", "content": messages}]},
        {"pool": "sim", "messages": [{"role": messages, "content": messages}]},
        {"pool": "sim", "messages": messages},
    ):
        yield daemon.client.post("/api/v1/generate", content=json.dumps(body)).text
    yield daemon.client.post("/api/v1/generate", content=f'{{"prompt": "{prompt}').text
    query, header = SECRETS["a query"], {"Cookie": SECRETS["a header"]}
    yield daemon.client.get(f"/nowhere?key={query}", headers=header).text
    yield daemon.client.get(f"/api/v1/status?key={query[:5]}", headers=header).text
    yield daemon.client.post(f"/livez?key={query}", headers=header).text
    yield daemon.client.get("/livez", headers={"Upgrade": SECRETS["a header"]}).text
    transport = httpx.HTTPTransport(uds=str(folder / "inference.sock"))
    with httpx.Client(transport=transport, base_url="http://x", timeout=SECONDS) as client:
        for key, expected in ((KEY, 200), (WITHDRAWN, 401), ("nobody's", 401)):
            bearer = {"Authorization": f"Bearer {key}"}
            reply = client.get("/v1/models", headers=bearer)
            assert reply.status_code == expected
            yield reply.text
            yield client.post("/v1/completions", content=prompt, headers=bearer).text
        for wrong in (f"Basic {KEY}", f"Bearer {KEY} {KEY}", KEY):
            reply = client.get("/v1/models", headers={"Authorization": wrong})
            assert reply.status_code == 401
            yield reply.text


def views(daemon: Running, folder: Path) -> Iterator[tuple[str, str]]:
    """Everything that can be looked at, each with its name."""
    workers = daemon.client.get("/api/v1/workers").json()["workers"]
    for path in (
        "/api/v1/status",
        "/api/v1/pools",
        "/api/v1/pools/sim",
        "/api/v1/workers",
        *(f"/api/v1/workers/{worker['slot']}/logs" for worker in workers),
        "/api/v1/requests",
        "/api/v1/events",
        "/metrics",
        "/health",
        "/readyz?verbose",
        "/v1/models",
    ):
        reply = daemon.client.get(path)
        assert (path, reply.status_code) == (path, 200)
        yield path, reply.text
    config = folder / "daemon.toml"
    checked = subprocess.run(
        [PROGRAM, "check", "--config", config], capture_output=True, check=True
    )
    yield "check", checked.stdout.decode()
    yield "check's warnings", checked.stderr.decode()
    yield "the log", daemon.log.read_text()
    for file in (each for each in (folder / "state").rglob("*") if each.is_file()):
        yield file.name, file.read_text()


def test_no_secret_is_seen_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in events, answers, metrics, state, `check`, or the file of keys."""
    with told_everything(tmp_path, monkeypatch) as daemon:
        for answer in answers(daemon, tmp_path):
            # Whoever sent it may be told of it; nobody else's secret may be there.
            assert [name for name in list(SECRETS)[:5] if SECRETS[name] in answer] == []
            assert KEY not in answer
            assert WITHDRAWN not in answer
        found = {
            f"{name} in {view}"
            for view, text in views(daemon, tmp_path)
            for name, secret in SECRETS.items()
            if secret in text
        }
        assert found == set()
        assert daemon.events("daemon.error") == []
        assert KEY not in (tmp_path / "keys").read_text()


def test_ps_shows_no_secret_but_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Command lines of the daemon, guardians and workers: they have what the command has."""
    with told_everything(tmp_path, monkeypatch) as daemon:
        pids = [daemon.process.pid, *tree.descendants(daemon.process.pid, tree.scan())]
        assert len(pids) >= 3
        lines = " ".join(Path(f"/proc/{pid}/cmdline").read_text() for pid in pids)
        found = {name for name, secret in SECRETS.items() if secret in lines}
        # That is what the warning is for.
        assert found == {"an argument"}
        topics = [event["topic"] for event in daemon.events("daemon.warning")]
        assert "secret" in topics
        assert os.environ["UNUSED"] not in lines
