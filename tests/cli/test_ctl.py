from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import trio
from click.testing import CliRunner

from supervisord_llm import __version__
from supervisord_llm.cli.ctl import cli
from supervisord_llm.schema import Requests, Workers
from tests.cli.command import ARGV, Done, environment, happens, llmctl, started
from tests.client import replies
from tests.client.fake_daemon import Exchange, FakeDaemon

COMMANDS = [
    "cancel",
    "chat",
    "config",
    "drain",
    "events",
    "generate",
    "logs",
    "pools",
    "quarantine",
    "reload",
    "requests",
    "resume",
    "scale",
    "status",
    "top",
    "workers",
]

START = 'start it with "make run" or "supervisord-llm run --config FILE", or give --socket'


async def test_the_version_is_the_packages(tmp_path: Path) -> None:
    """It needs no daemon."""
    done = await llmctl(tmp_path / "none", "--version")
    assert (0, f"llmctl, version {__version__}\n") == (done.code, done.out)


async def test_help_names_the_commands_and_the_exit_statuses(tmp_path: Path) -> None:
    """It needs no daemon either."""
    done = await llmctl(tmp_path / "none", "--help")

    assert 0 == done.code
    listed = done.out.split("Commands:\n")[1].split("\n\n")[0]
    assert COMMANDS == [line.split()[0] for line in listed.splitlines()]
    assert "3 the daemon cannot be\n  reached" in done.out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_examples(command: str) -> None:
    """And the options that all of them share."""
    shown = CliRunner().invoke(cli, [command, "-h"]).output

    assert "\n  Examples:\n    " in shown
    assert f"llmctl {command}" in shown.split("Examples:")[1]
    assert {"--json", "--socket"} <= set(shown.split())


@pytest.mark.parametrize(
    "arguments",
    [
        ["status"],
        ["pools"],
        ["workers"],
        ["generate", "x"],
        ["cancel", "req_1"],
        ["reload", "smollm.0", "--wait"],
        ["requests", "--json"],
        ["quarantine", "smollm.0"],
        ["resume", "smollm.0"],
        ["reload"],
        ["reload", "smollm"],
        ["drain", "smollm", "--wait"],
        ["drain", "smollm.0"],
        ["resume", "smollm"],
        ["scale", "smollm", "3"],
        ["config", "reload"],
        ["logs", "smollm.0", "-f"],
        ["events", "-f", "--json"],
    ],
)
async def test_without_a_daemon_one_is_told_how_to_start_it(
    tmp_path: Path, arguments: list[str]
) -> None:
    """Exit status 3, the socket's path, and what to do."""
    socket = tmp_path / "control.sock"

    done = await llmctl(socket, *arguments)

    expected = f"llmctl: cannot reach the daemon at {socket}: no such file; {START}\n"
    assert (3, "", expected) == (done.code, done.out, done.err)


async def test_a_socket_may_be_given_on_either_side(daemon: FakeDaemon, tmp_path: Path) -> None:
    """Before the command or after it, and both win over the environment."""
    daemon.answer("GET /api/v1/workers", Workers(workers=[]))
    elsewhere = tmp_path / "elsewhere.sock"
    here = str(daemon.socket)

    assert 0 == (await llmctl(elsewhere, "--socket", here, "workers")).code
    assert 0 == (await llmctl(elsewhere, "workers", "--socket", here)).code
    assert 3 == (await llmctl(elsewhere, "workers")).code
    assert 0 == (await llmctl(daemon.socket, "workers")).code


async def test_without_any_hint_the_socket_is_in_the_runtime_folder(tmp_path: Path) -> None:
    """The same rule as the daemon's."""
    done = await llmctl(Path(), "status", SUPERVISORD_LLM_SOCKET="", XDG_RUNTIME_DIR=str(tmp_path))

    assert 3 == done.code
    assert f"the daemon at {tmp_path}/supervisord-llm/control.sock: no such file" in done.err


async def test_an_unsafe_runtime_folder_is_refused(tmp_path: Path) -> None:
    """A prompt does not go through a folder that others may change."""
    folder = tmp_path / f"supervisord-llm-{os.getuid()}"
    folder.mkdir()
    folder.chmod(0o777)

    done = await llmctl(
        Path(), "status", TMPDIR=str(tmp_path), SUPERVISORD_LLM_SOCKET="", XDG_RUNTIME_DIR=""
    )

    assert 3 == done.code
    assert f"llmctl: cannot use {folder} for the control socket: other users may" in done.err


async def test_a_proxy_in_the_environment_is_not_meant(daemon: FakeDaemon) -> None:
    """Whoever surfs through one still talks to the socket."""
    daemon.answer("GET /api/v1/workers", Workers(workers=[]))
    proxy = "http://127.0.0.1:9"

    done = await llmctl(daemon.socket, "workers", ALL_PROXY=proxy, HTTP_PROXY=proxy, NO_PROXY="")

    assert (0, "") == (done.code, done.err)


async def test_ctrl_c_is_an_interruption(daemon: FakeDaemon) -> None:
    """Any command ends on it, quietly and with its own exit status."""
    asked = trio.Event()

    async def never(exchange: Exchange) -> None:
        asked.set()
        await exchange.wait_left()

    daemon.on("GET /api/v1/status", never)
    async with started(daemon.socket, "status") as running:
        await happens(asked)
        running.interrupt()
        done = await running.wait()

    assert Done(130) == done


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (["llmctl", "reload", ""], ["smollm", "smollm.0", "smollm.1"]),
        (["llmctl", "drain", "smollm."], ["smollm.0", "smollm.1"]),
        (["llmctl", "scale", ""], ["smollm"]),
        (["llmctl", "config", ""], ["reload"]),
        (["llmctl", "reload", "smollm.1"], ["smollm.1"]),
        (["llmctl", "generate", "--pool", ""], ["smollm"]),
        (["llmctl", "quarantine", ""], ["smollm.0", "smollm.1"]),
        (["llmctl", "resume", "smollm.1"], ["smollm.1"]),
        (["llmctl", "logs", "-f", ""], ["smollm.0", "smollm.1"]),
        (["llmctl", "cancel", ""], [replies.ID]),
        (["llmctl", "c"], ["cancel", "chat", "config"]),
    ],
)
async def test_the_shell_completes_names(
    daemon: FakeDaemon, typed: list[str], expected: list[str]
) -> None:
    """Of commands, and of what only the daemon knows."""
    workers = [replies.worker("smollm.0"), replies.worker("smollm.1")]
    daemon.answer("GET /api/v1/workers", Workers(workers=workers))
    daemon.answer("GET /api/v1/status", replies.STATUS)
    over = replies.request(id="req_over")
    daemon.answer("GET /api/v1/requests", Requests(requests=[over, replies.cancelling()]))

    done = await complete(daemon.socket, typed)

    assert expected == done


async def test_completion_without_a_daemon_is_silent(tmp_path: Path) -> None:
    """A shell's prompt is no place for an error."""
    assert [] == await complete(tmp_path / "none", ["llmctl", "reload", ""])


async def complete(socket: Path, typed: list[str]) -> list[str]:
    """What the shell is offered for the last word."""
    done = await llmctl(
        socket,
        _LLMCTL_COMPLETE="bash_complete",
        COMP_WORDS=" ".join(typed),
        COMP_CWORD=str(len(typed) - 1),
    )
    assert "" == done.err
    return [line.split(",")[1] for line in done.out.splitlines() if line]


async def test_closed_standard_streams_do_no_harm(daemon: FakeDaemon) -> None:
    """No output is written into the connection to the daemon by mistake."""
    daemon.answer("GET /api/v1/status", replies.STATUS)
    shell = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *ARGV, "status", "--json"]

    code = await trio.to_thread.run_sync(
        lambda: subprocess.run(shell, env=environment(daemon.socket), check=False).returncode
    )

    assert 0 == code
    assert ["GET /api/v1/status"] == daemon.asked
