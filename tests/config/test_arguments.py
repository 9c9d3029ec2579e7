from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from supervisord_llm.config.arguments import hide_arguments, secret_options
from supervisord_llm.config.diff import compare
from supervisord_llm.config.dump import effective
from tests.config.files import load_text, problems

SECRET = "s3cret"


@pytest.mark.parametrize(
    "words",
    [
        ["--api-key", SECRET],
        [f"--api-key={SECRET}"],
        ["-api_key", SECRET],
        ["--hf-token", SECRET],
        ["--token", SECRET],
        ["--Password", SECRET],
        ["--aws-secret-access-key", SECRET],
        ["--client-secret", SECRET],
        ["--header", f"Authorization: Bearer {SECRET}"],
        ["--api-key", SECRET, f"bearer {SECRET}"],
        [f"bearer {SECRET}"],
    ],
)
def test_what_looks_like_a_secret_is_hidden(words: list[str]) -> None:
    """By the name of its option, or by its own beginning; the option itself stays readable."""
    argv = ["worker", *words, "--threads", "2"]
    hidden = hide_arguments(argv)
    assert SECRET not in " ".join(hidden)
    assert len(hidden) == len(argv)
    assert hidden[0] == "worker"
    assert hidden[-2:] == ["--threads", "2"]
    assert secret_options(argv) != []
    assert SECRET not in " ".join(secret_options(argv))


@pytest.mark.parametrize(
    "words",
    [
        ["--model", "/models/secret.gguf"],
        ["--max-new-tokens", "100"],
        ["--eos-token", "</s>"],
        ["--api-key-file", "/etc/key"],
        ["--api-key", "--verbose"],
        ["--api-key"],
        ["--password="],
        ["-c", "echo --api-key"],
    ],
)
def test_what_does_not_is_shown(words: list[str]) -> None:
    """An option without a value, a file's name, and tokens that are the model's."""
    argv = ["worker", *words]
    assert hide_arguments(argv) == argv
    assert secret_options(argv) == []


def test_the_program_is_never_hidden() -> None:
    """Whatever its name is."""
    assert hide_arguments(["--password", SECRET]) == ["--password", SECRET]


def test_no_message_and_no_dump_has_it(tmp_path: Path) -> None:
    """The dump, the difference to another secret, the warning, and a problem of the text itself."""
    text = f'[pool.p]\ncommand = ["worker", "--api-key", "{SECRET}1"]\n'
    first, second = load_text(tmp_path, text), load_text(tmp_path, text.replace("t1", "t2"))
    shown: Any = effective(first.config)
    assert shown["pool"]["p"]["command"] == ["worker", "--api-key", "…"]
    assert compare(first.config, second.config).sentences == ["pool p: command changed"]
    [warning] = first.warnings
    assert warning.topic == "secret"
    assert '("--api-key")' in warning.message
    found = problems(tmp_path, text.replace("t1", "t{x"))
    assert len(found) == 1
    assert SECRET not in f"{warning} {found}"
