"""A build step shows its progress, keeps its output, and explains its failure."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from scripts.steps import TAIL_LINES, StepFailed, run_step
from scripts.toolchain import find_toolchain


def python(code: str) -> list[str]:
    """A command that runs the code."""
    return [sys.executable, "-c", code]


def test_the_output_is_kept(tmp_path: Path) -> None:
    """Both streams go to the log, and nothing of them to the terminal."""
    log = tmp_path / "logs" / "step.log"
    run_step("a step", python("print('one'); import os; os.write(2, b'two')"), log=log, remedy="")

    assert sorted(log.read_text().split()) == ["one", "two"]


def test_a_failure_says_what_why_and_what_to_do(tmp_path: Path) -> None:
    """The message has the title, the last lines, where the rest is, and the remedy."""
    log = tmp_path / "step.log"
    code = "for n in range(100): print('line', n)\nraise SystemExit(3)"
    with pytest.raises(StepFailed) as failure:
        run_step("a step", python(code), log=log, remedy="Do this.")

    lines = str(failure.value).splitlines()
    assert lines[0] == "a step failed (status 3):"
    assert lines[1] == f"  line {100 - TAIL_LINES}"
    assert lines[-3:] == ["  line 99", f"All of it: {log}", "Do this."]


def test_progress_is_shown_off_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where no person watches, ninja's counter becomes a line now and then."""
    monkeypatch.setattr("scripts.steps.SECONDS_BETWEEN_LINES", 0.0)
    run_step("a step", python("print('[1/2] a'); print('[2/2] b')"), log=tmp_path / "l", remedy="")

    assert capsys.readouterr().err == "a step [1/2]\na step [2/2]\n"


def test_a_missing_compiler_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says what was looked for and what to install."""
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(StepFailed, match=r"no-such-compiler.*install g\+\+ or clang\+\+ \(C\+\+20"):
        find_toolchain()


def test_an_old_compiler_is_refused_with_its_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compiler that does not know C++20 is told apart before minutes are spent."""
    old = tmp_path / "c++"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] || { echo "bad -std=c++20" >&2; exit 1; }\n')
    old.chmod(0o755)
    monkeypatch.setenv("CXX", str(old))
    with pytest.raises(StepFailed, match=r"cannot compile C\+\+20(.|\n)*bad -std=c\+\+20"):
        find_toolchain().require_cxx20()
