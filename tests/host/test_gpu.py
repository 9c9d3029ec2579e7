from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisord_llm.host import gpu

MEBIBYTE = 2**20


def test_the_memory_of_a_process_on_several_gpus_is_one_sum() -> None:
    """There is a line for each process and GPU, in mebibytes."""
    expected = {77: 6000 * MEBIBYTE, 78: 12 * MEBIBYTE}
    assert expected == gpu.parse("77, 5000\n78, 12\n\n77, 1000\n")
    assert gpu.parse("") == {}


@pytest.mark.parametrize("word", ["[N/A]", "[Not Supported]", "[Insufficient Permissions]"])
def test_memory_that_is_not_told_is_not_zero(word: str) -> None:
    """The process is left out."""
    assert {78: 12 * MEBIBYTE} == gpu.parse(f"77, {word}\n78, 12\n")


@pytest.mark.parametrize(
    "text",
    [
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
        "No devices were found",
        "77",
        "77, 12 MiB",
        "-7, 12",
        "77, ",
        "²7, 12",
    ],
)
def test_what_is_no_list_is_refused(text: str) -> None:
    """Errors come on the same stream; half a list would be a lie."""
    with pytest.raises(ValueError, match="cannot read"):
        gpu.parse(f"76, 1\n{text}\n")


@given(st.text())
def test_whatever_is_printed_is_read_or_refused(text: str) -> None:
    """Nothing else is raised."""
    try:
        found = gpu.parse(text)
    except ValueError:
        return
    assert all(pid >= 0 and used >= 0 for pid, used in found.items())


def test_it_is_found_where_programs_are(tmp_path: Path) -> None:
    """A machine without it is no error."""
    assert gpu.find(str(tmp_path)) is None
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert program == gpu.find(str(tmp_path))
