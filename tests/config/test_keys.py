from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from supervisord_llm.config.keys import (
    MAX_FILE,
    ApiKey,
    append_line,
    describe_changes,
    hash_key,
    key_line,
    new_key,
    read_keys,
)
from supervisord_llm.errors import OperatorError
from tests.config.files import POOL, load_text, problems

ZEROS, ONES = "0" * 64, "1" * 64


def write(path: Path, text: str, mode: int = 0o600) -> Path:
    """Write a key file."""
    path.write_text(text)
    path.chmod(mode)
    return path


def test_a_key_is_random_and_long() -> None:
    """256 bits: nobody guesses one, so its hash need not be slow."""
    first, second = new_key(), new_key()
    assert first != second
    assert first.startswith("sllm-")
    assert len(first) == len("sllm-") + 43  # 32 bytes in base64url


def test_the_line_has_the_sha256_of_the_key() -> None:
    """What `sha256sum` prints for it, and so nothing that leads back to it."""
    digits = hashlib.sha256(b"sllm-x").hexdigest()
    assert f"alice:{digits}" == key_line("alice", "sllm-x")


@pytest.mark.parametrize("name", ["", "a b", "a:b", "-a", "é", "x" * 65, "a\n"])
def test_a_name_that_a_line_cannot_have_is_refused(name: str) -> None:
    """It would be read as something else, or in an event look like something else."""
    with pytest.raises(OperatorError, match="as a key's name; write 1 to 64"):
        key_line(name, "sllm-x")


def test_a_file_is_read(tmp_path: Path) -> None:
    """Comments and empty lines say nothing; a name may have two keys while one replaces another."""
    path = write(
        tmp_path / "keys",
        f"# ours\n\nalice:{ZEROS}\r\n  alice : {ONES} \nb.c-d_1:{'AB' * 32}",
        0o640,
    )
    expected = (
        ApiKey("alice", bytes(32)),
        ApiKey("alice", b"\x11" * 32),
        ApiKey("b.c-d_1", b"\xab" * 32),
    )
    assert expected == read_keys(path)


def test_an_entry_does_not_show_its_hash() -> None:
    """It may end up in a traceback."""
    assert "ApiKey('alice')" == repr(ApiKey("alice", hash_key("sllm-x")))


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("sllm-secret-key", "it begins with no name and colon"),
        (":" + ZEROS, "it begins with no name and colon"),
        ("alice", "what follows the name is no hash"),
        ("alice:sllm-secret-key", "what follows the name is no hash"),
        (f"alice:{ZEROS}0", "what follows the name is no hash"),
        (f"a:{ZEROS}\nb:{ZEROS}", "an earlier line has the same hash"),
    ],
)
def test_a_wrong_line_is_named_and_not_shown(tmp_path: Path, text: str, fault: str) -> None:
    """Somebody may have written the key itself."""
    path = write(tmp_path / "keys", f"# one\n{text}\n")
    number = text.count("\n") + 2
    if fault.startswith("it begins") and "secret" in text:
        fault = "is no"  # a key may look like a name
    with pytest.raises(OperatorError, match=f"cannot use line {number} of {path}: ") as caught:
        read_keys(path)
    assert fault in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o666])
def test_a_file_that_everybody_may_open_is_refused(tmp_path: Path, mode: int) -> None:
    """Who may write to it may let himself in; the remedy is a command."""
    path = write(tmp_path / "keys", "", mode)
    with pytest.raises(OperatorError, match=f"run `chmod o-rw {path}`"):
        read_keys(path)


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    """A pipe, which nobody may ever write to, holds up nothing."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o600)
    with pytest.raises(OperatorError, match="no regular file"):
        read_keys(pipe)
    with pytest.raises(OperatorError, match="no regular file"):
        read_keys(tmp_path)
    with pytest.raises(OperatorError, match="no such file or directory; check its path"):
        read_keys(tmp_path / "absent")


def test_a_file_that_is_no_text_or_endless_is_refused(tmp_path: Path) -> None:
    """Whatever was named by mistake is not swallowed whole."""
    path = tmp_path / "keys"
    path.touch(0o600)
    path.write_bytes(b"\xff\n")
    with pytest.raises(OperatorError, match="not UTF-8"):
        read_keys(path)
    path.write_bytes(b"#" * (MAX_FILE + 1))
    with pytest.raises(OperatorError, match="longer than 1 MiB"):
        read_keys(path)


def test_a_line_is_appended_to_a_file_of_its_own(tmp_path: Path) -> None:
    """A new file is its owner's alone, whatever the umask; a last line without an end is ended."""
    path = tmp_path / "keys"
    before = os.umask(0)
    try:
        append_line(path, f"alice:{ZEROS}")
    finally:
        os.umask(before)
    assert 0o600 == path.stat().st_mode & 0o777
    path.write_text(f"alice:{ZEROS}")
    append_line(path, f"bob:{ONES}")
    assert f"alice:{ZEROS}\nbob:{ONES}\n" == path.read_text()


def test_a_file_of_something_else_is_left_alone(tmp_path: Path) -> None:
    """A wrong name must not cost anybody their file."""
    path = write(tmp_path / "notes", "precious")
    with pytest.raises(OperatorError, match="cannot use line 1"):
        append_line(path, f"alice:{ZEROS}")
    assert "precious" == path.read_text()
    with pytest.raises(OperatorError, match=r"cannot write .*no such file"):
        append_line(tmp_path / "absent" / "keys", f"alice:{ZEROS}")


def test_changes_are_told_by_names_alone() -> None:
    """Added, removed, and replaced, by file; files that did not change are not spoken of."""
    alice, bob, eve = (ApiKey(name, name.encode()) for name in ("alice", "bob", "eve"))
    old = {"/a": (alice, bob), "/b": (eve,), "/gone": (eve,)}
    new = {"/a": (ApiKey("alice", b"2"), eve), "/b": (eve,)}
    assert ["API keys in /a: alice replaced, bob removed, eve added"] == list(
        describe_changes(old, new)
    )


def test_a_configuration_brings_its_keys(tmp_path: Path) -> None:
    """By the path that the configuration has, placeholders filled in."""
    (tmp_path / "run" / "supervisord-llm").mkdir(parents=True)
    path = write(tmp_path / "run" / "supervisord-llm" / "keys", f"alice:{ZEROS}")
    loaded = load_text(tmp_path, f'{POOL}[[listen]]\napi_keys = "{{runtime_dir}}/keys"')
    assert str(path) == loaded.config.listen[0].api_keys
    assert {str(path): (ApiKey("alice", bytes(32)),)} == loaded.keys


def test_a_broken_key_file_is_a_problem_of_the_configuration(tmp_path: Path) -> None:
    """So that `check` finds it, and a reload changes nothing."""
    path = write(tmp_path / "keys", "alice")
    [found] = problems(tmp_path, f'{POOL}[[listen]]\napi_keys = "{path}"')
    assert found.startswith(f"listen[0].api_keys: cannot use line 1 of {path}: ")


def test_a_file_without_a_key_is_warned_of(tmp_path: Path) -> None:
    """It is no problem: who withdraws the last key wants that to take effect."""
    path = write(tmp_path / "keys", "# none\n")
    loaded = load_text(tmp_path, f'{POOL}[[listen]]\napi_keys = "{path}"')
    assert ["api_keys"] == [warning.topic for warning in loaded.warnings]
