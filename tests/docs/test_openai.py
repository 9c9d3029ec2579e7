"""The page for applications: its examples run, and what it states is what the code has."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisord_llm.api.openai_intake import SESSION_HEADERS
from supervisord_llm.config.schema import ListenConfig
from supervisord_llm.config.schema_pool import QueueConfig
from supervisord_llm.openai.completions import MAX_PROMPTS
from supervisord_llm.openai.fields import MAX_STOPS
from tests.daemon.running import PROGRAM, running
from tests.harness import QUICK, SECONDS, write_config
from tools.generated import ROOT

PAGE = (ROOT / "docs" / "openai.md").read_text(encoding="utf-8")
TEXT = " ".join(PAGE.split())
REFERENCE = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """The fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A daemon with the page's listeners, and the variables that its examples expect."""
    folder: Path = tmp_path_factory.mktemp("docs")
    keys = folder / "api-keys"
    argv = [str(PROGRAM), "new-key", "alice", "--file", str(keys)]
    key = subprocess.check_output(argv, text=True, timeout=SECONDS).strip()
    config = write_config(
        folder, "--sessions=2", workers=2, settings=f'{QUICK}\nmodels = ["smollm"]\n'
    )
    [listeners] = blocks("toml")
    for stated, here in {
        "{runtime_dir}": str(folder),
        "127.0.0.1:8000": "127.0.0.1:0",
        "/etc/supervisord-llm/api-keys": str(keys),
    }.items():
        assert stated in listeners
        listeners = listeners.replace(stated, here)
    text = config.read_text()
    ours = f'[[listen]]\naddress = "unix:{folder}/control.sock"\n'
    assert ours in text
    config.write_text(text.replace(ours, listeners))
    with running(folder, config) as daemon:
        daemon.wait("worker.ready", 2)
        address = str(daemon.wait("daemon.listening", 2)["address"]).removeprefix("tcp:")
        yield {
            **os.environ,
            "OPENAI_BASE_URL": f"http://{address}/v1",
            "OPENAI_API_KEY": key,
            "SUPERVISORD_LLM_SOCKET": str(daemon.socket),
        }


@pytest.mark.parametrize("number", range(4))
def test_the_examples_in_python_run(environment: dict[str, str], number: int) -> None:
    """Each as it stands, as a program of its own."""
    programs = blocks("python")
    assert 4 == len(programs)
    done = subprocess.run(
        [sys.executable, "-c", programs[number]],
        check=False, env=environment, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (0, "") == (done.returncode, done.stderr)
    assert ("smollm" if "models.list" in programs[number] else "t0 t1 ") in done.stdout


def test_the_examples_with_curl_run(environment: dict[str, str]) -> None:
    """One command after the other; each is answered with success."""
    script = "set -e\n" + "\n".join(blocks("bash"))
    done = subprocess.run(
        ["/bin/bash", "-c", script],
        check=False, env=environment, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (0, "") == (done.returncode, done.stderr)
    assert '"id":"smollm"' in done.stdout
    assert '"content":"t0 t1 ' in done.stdout
    assert "data: [DONE]" in done.stdout
    assert '"deleted":true' in done.stdout


@pytest.mark.parametrize(
    "said",
    [
        ", ".join(f"`{name}`" for name in ("X-Session-ID", "X-ExecuTorch-Session-ID")),
        f"`queue.queue_timeout` ({QueueConfig().queue_timeout / 60:.0f} minute)",
        f"`queue.deadline` ({QueueConfig().deadline / 60:.0f} minutes)",
        f"`sse_keep_alive` ({ListenConfig().sse_keep_alive:.0f} s)",
        f"a text, up to {MAX_PROMPTS} texts",
        f"a text, or up to {MAX_STOPS};",
    ],
)
def test_the_figures_that_are_stated_hold(said: str) -> None:
    """Each is the constant, or the default, that it comes from."""
    assert said in TEXT


def test_every_header_that_names_a_session_is_told() -> None:
    """However it is spelled."""
    assert all(f"`{name}`" in TEXT.lower() for name in SESSION_HEADERS)


def test_every_error_that_is_told_is_in_the_reference() -> None:
    """With its status."""
    rows = re.findall(r"^\| `\w+Error` \| (\d+) ([^|]+) \|", PAGE, re.MULTILINE)
    assert rows
    for status, codes in rows:
        for code in re.findall(r"`(\w+)`", codes):
            assert re.search(rf"^\| {status} \| `{code}` \|", REFERENCE, re.MULTILINE), code


def test_links_lead_to_headings_of_the_reference() -> None:
    """Each part of the reference that is linked is there."""
    headings = {
        re.sub(r"[^a-z0-9 -]", "", line.lstrip("# ").lower()).replace(" ", "-")
        for line in REFERENCE.splitlines()
        if line.startswith("#")
    }
    anchors = re.findall(r"\(reference\.md#([^)]+)\)", PAGE)
    assert anchors
    assert set(anchors) <= headings
