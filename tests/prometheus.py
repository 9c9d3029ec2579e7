"""Prometheus and its promtool, where the machine has them (Debian: the package ``prometheus``)."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

_SECONDS = 60.0


def needs(program: str) -> pytest.MarkDecorator:
    """Skip a test where a program is missing; CI must not lack it."""
    missing = shutil.which(program) is None and "CI" not in os.environ
    return pytest.mark.skipif(missing, reason=f"there is no {program}; install prometheus")


def promtool(*arguments: str, stdin: bytes = b"") -> tuple[int, str]:
    """Run promtool: its exit status, and all that it said."""
    done = subprocess.run(
        ["promtool", *arguments],
        input=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=_SECONDS,
        check=False,
    )
    return done.returncode, done.stdout.decode()
