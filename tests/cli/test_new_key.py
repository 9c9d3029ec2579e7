from __future__ import annotations

import hashlib
import stat
from pathlib import Path

import pytest

from supervisord_llm.cli import daemon
from supervisord_llm.config.keys import hash_key, read_keys


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Run `supervisord-llm new-key`; the exit status."""
    monkeypatch.setattr("sys.argv", ["supervisord-llm", "new-key", *arguments])
    return daemon.main()


def test_a_key_is_printed_with_the_line_for_the_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The key alone on standard output, for $(…); what to do with it on standard error."""
    assert 0 == run(monkeypatch, "alice")
    out, err = capsys.readouterr()
    [key] = out.splitlines()
    digits = hashlib.sha256(key.encode()).hexdigest()
    assert f"the line for the file of listen.api_keys:\nalice:{digits}\n" == err


def test_a_key_is_added_to_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Which is made for its owner alone, and takes a second key of the same name."""
    path = tmp_path / "keys"
    made = []
    for _ in range(2):
        assert 0 == run(monkeypatch, "alice", "--file", str(path))
        out, err = capsys.readouterr()
        made.append(out.strip())
        assert f"added to {path}; `llmctl config reload` puts it into force\n" == err
    assert 0o600 == stat.S_IMODE(path.stat().st_mode)
    assert [("alice", hash_key(key)) for key in made] == [
        (key.name, key.digest) for key in read_keys(path)
    ]
    assert not any(key in path.read_text() for key in made)


def test_a_wrong_name_makes_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is printed that somebody could take for one, and no file is made."""
    path = tmp_path / "keys"
    assert 1 == run(monkeypatch, "a b", "--file", str(path))
    out, err = capsys.readouterr()
    assert ("", False) == (out, path.exists())
    assert err.startswith("supervisord-llm: cannot use 'a b' as a key's name; ")


def test_a_file_that_holds_no_keys_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And the key, which nothing knows, is not printed."""
    path = tmp_path / "notes"
    path.write_text("precious\n")
    path.chmod(0o600)
    assert 1 == run(monkeypatch, "alice", "--file", str(path))
    assert ("", "precious\n") == (capsys.readouterr().out, path.read_text())
