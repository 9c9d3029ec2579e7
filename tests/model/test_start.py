"""How the llama worker starts, or says why it does not."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.model.worker import llama_worker, model_path, worker_program

pytestmark = pytest.mark.model


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the worker without input until it ends by itself."""
    return subprocess.run(
        [str(worker_program()), *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_missing_model_is_named(tmp_path: Path) -> None:
    """No such file: one line that says so and what to do, status 1, nothing on stdout."""
    missing = tmp_path / "no.gguf"
    done = run("--model", str(missing))

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"cannot load model '{missing}': No such file or directory; "
        "give --model the path of a GGUF file\n"
    )


def test_a_folder_is_not_a_model(tmp_path: Path) -> None:
    """A folder is named as one."""
    done = run("--model", str(tmp_path))

    assert done.returncode == 1
    assert f"cannot load model '{tmp_path}': Is a directory;" in done.stderr


def test_another_kind_of_file_is_not_a_model(tmp_path: Path) -> None:
    """A file that is no GGUF is told by its first bytes."""
    other = tmp_path / "model.bin"
    other.write_bytes(b"PK\x03\x04 something else")
    done = run("--model", str(other))

    assert (done.returncode, done.stdout) == (1, "")
    assert f"cannot load model '{other}': it is not a GGUF file;" in done.stderr


def test_a_cut_off_model_is_not_served(tmp_path: Path) -> None:
    """A download that broke off fails to load, with the library's own reason."""
    short = tmp_path / "short.gguf"
    with model_path().open("rb") as whole:
        short.write_bytes(whole.read(4 << 20))
    done = run("--model", str(short))

    assert (done.returncode, done.stdout) == (1, "")
    assert f"cannot load model '{short}': " in done.stderr
    assert "give --model the path of a GGUF file" in done.stderr


def test_a_context_too_large_for_the_machine_is_refused() -> None:
    """Memory that is not there is an answer before the ready line, with the remedy."""
    done = run("--model", str(model_path()), "--ctx", "16000000")

    assert (done.returncode, done.stdout) == (1, "")
    assert "cannot make a context of 16000000 tokens: " in done.stderr
    assert done.stderr.endswith("; give --ctx a smaller number\n")


def test_a_gpu_that_is_not_there_is_refused() -> None:
    """Layers for a GPU need a build that knows one; silence would be slowness."""
    done = run("--model", str(model_path()), "--gpu-layers", "3")

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "cannot put layers on a GPU: this llama.cpp is built without one; leave out --gpu-layers\n"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no model; give --model the path of a GGUF file"),
        (["--model"], "--model needs a value"),
        (["--model", ""], "cannot use '' for --model; give the path of a GGUF file"),
        (["--threads", "0"], "cannot use '0' for --threads; give a number from 1 to 512"),
        (["--threads", "2x"], "cannot use '2x' for --threads; give a number from 1 to 512"),
        (["--ctx=-1"], "cannot use '-1' for --ctx; give a number of tokens, or 0"),
        (["--model", "x", "--batch", "8"], "--ubatch 128 is more than --batch 8"),
        (["--fast"], "unknown option '--fast'"),
        (["model.gguf"], "unknown option 'model.gguf'"),
    ],
)
def test_bad_options_are_explained(arguments: list[str], message: str) -> None:
    """Status 2 and one line that names the option and the remedy."""
    done = run(*arguments)

    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_help_goes_to_stdout() -> None:
    """--help names every option and succeeds."""
    done = run("--help")

    assert (done.returncode, done.stderr) == (0, "")
    for option in ("--model", "--threads", "--ctx", "--batch", "--ubatch", "--gpu-layers"):
        assert option in done.stdout


def test_it_also_serves_without_mapping() -> None:
    """--no-mmap loads a private copy that answers the same way."""
    with llama_worker("--no-mmap") as (worker, _):
        text, done = worker.generate("2, 4, 6, 8, 10, 12, 14,", max_new_tokens=4)

    assert text.startswith(" 16")
    assert done["finish_reason"] == "length"
