"""What a worker writes is shown and never obeyed: not by a terminal, not by who reads the log."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.api.house import House, house
from tests.cli.command import at_terminal, llmctl
from tests.daemon.running import running
from tests.harness import QUICK, write_command

# A title for the window, a cleared screen, both with escape sequences and as single characters of
# which terminals make the same, and what would look like a line of its own.
EVIL = "\x1b]0;owned\x07\x1b[2J\x9b2J\x9d0;owned\x9c\x7f\x08\r\x85" + '{"event":"daemon.stopped"}'

WORKER = f"""
import json, sys
EVIL = {EVIL!r}
def say(**fields):
    print(json.dumps(fields), flush=True)
def complain():
    print(EVIL, file=sys.stderr, flush=True)
sys.stderr.reconfigure(errors="replace")
sys.stdout.reconfigure(encoding="utf-8")
sys.stderr.reconfigure(encoding="utf-8")
complain()
say(ready=True, extensions=["model"], model=dict(id="m" + EVIL, quantization=EVIL))
for line in sys.stdin:
    if "close" in json.loads(line):
        say(closed=True, session_id=json.loads(line).get("session_id"))
        continue
    complain()
    if "sim.break" in line:
        print(EVIL, flush=True)
    elif "sim.refuse" in line:
        say(error=EVIL, code=EVIL)
    else:
        say(token=EVIL)
        say(done=True, finish_reason="stop", prompt_tokens=1, completion_tokens=1)
"""

_ORDERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_COLOUR = re.compile("\x1b\\[[0-9;]*m")


def command(folder: Path) -> list[str]:
    """What starts the worker; its text is in a file, since braces mean something in a command."""
    script = folder / "worker.py"
    script.write_text(WORKER)
    return [sys.executable, "-S", "-E", str(script)]


def orders(shown: str) -> list[str]:
    """What a terminal would obey, colours excepted."""
    return _ORDERS.findall(_COLOUR.sub("", shown))


@asynccontextmanager
async def evil_house(folder: Path) -> AsyncIterator[House]:
    """A daemon whose worker has said all that it can say."""
    async with house(folder, command=command(folder)) as made:
        for prompt in ("x", "sim.refuse"):
            await llmctl(made.socket, "generate", "--raw", prompt)
        yield made


def test_the_orders_would_be_noticed() -> None:
    """What the other tests look for is in what the worker writes."""
    assert len(orders(EVIL)) == 10


async def test_no_command_passes_them_to_a_terminal(tmp_path: Path) -> None:
    """Whatever shows a worker's words, for people or as JSON."""
    async with evil_house(tmp_path) as made:
        for words in (
            "logs sim.0",
            "logs sim.0 --json",
            "events --level debug",
            "events --json",
            "workers",
            "pools",
            "pools --json",
            "requests",
            "generate --raw x",
            "generate --raw x --json",
            "generate --raw sim.refuse",
        ):
            done = await at_terminal(made.socket, *words.split())
            assert (words, orders(done.out + done.err)) == (words, [])
        shown = await at_terminal(made.socket, "logs", "sim.0")
        assert "owned" in shown.out


async def test_a_pipe_gets_the_models_text_as_it_is(tmp_path: Path) -> None:
    """What a program reads is not changed: JSON has the very characters, in its own spelling."""
    async with evil_house(tmp_path) as made:
        plain = await llmctl(made.socket, "generate", "--raw", "x")
        assert plain.out.replace("\n", "\r") == EVIL + "\r"  # the test's pipe reads as text
        lines = (await llmctl(made.socket, "generate", "--raw", "x", "--json")).out.splitlines()
        [token] = [each for each in map(json.loads, lines) if each["event"] == "token"]
        assert token["text"] == EVIL
        logs = (await llmctl(made.socket, "logs", "sim.0", "--json")).out.splitlines()
        assert json.loads(logs[0])["text"] == EVIL


def test_it_cannot_forge_a_line_of_the_log(tmp_path: Path) -> None:
    """Its words stay within the event that tells of them, also when it breaks the protocol."""
    config = write_command(tmp_path, command(tmp_path), 1, QUICK)
    with running(tmp_path, config) as daemon:
        for prompt in ("x", "sim.refuse", "sim.break"):
            daemon.client.post("/api/v1/generate", json={"pool": "sim", "prompt": prompt})
    shown = daemon.log.read_bytes().decode()
    assert orders(shown) == []
    events = [json.loads(line) for line in shown.removesuffix("\n").split("\n")]
    assert [event["event"] for event in events].count("daemon.stopped") == 1
    assert events[-1]["event"] == "daemon.stopped"
    assert EVIL in [event.get("line") for event in events]
    [quarantined] = [event for event in events if event["event"] == "worker.quarantined"]
    assert quarantined["reason"] == "protocol_error"
    assert EVIL in quarantined["last_lines"]
