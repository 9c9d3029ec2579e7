"""The build cache: whole or absent, made once, replaced without disturbing who runs it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from scripts.cache import KEPT_PER_KIND, cache_root, cached, digest, place, tree_parts


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Each test has a cache of its own."""
    root = tmp_path / "cache folder"
    monkeypatch.setenv("SUPERVISORD_LLM_CACHE", str(root))
    return root


def fill(folder: Path) -> None:
    """Make a folder's content."""
    (folder / "made").write_text("yes")


def test_a_folder_is_made_once(own_cache: Path) -> None:
    """The second request finds the first one's work."""
    made = []

    def make(folder: Path) -> None:
        made.append(folder)
        fill(folder)

    first = cached("kind", "key", make)
    second = cached("kind", "key", make)

    assert first == second == own_cache / "kind" / "key"
    assert (first / "made").read_text() == "yes"
    assert len(made) == 1


def test_a_failed_folder_is_absent(own_cache: Path) -> None:
    """What was half made is gone, and the next attempt starts from nothing."""

    def fail(folder: Path) -> None:
        (folder / "half").write_text("")
        raise RuntimeError("no disk")

    with pytest.raises(RuntimeError, match="no disk"):
        cached("kind", "key", fail)

    assert [p.name for p in (own_cache / "kind").iterdir()] == [".key.lock"]
    assert [p.name for p in cached("kind", "key", fill).iterdir()] == ["made"]


def test_two_builders_share_one_work() -> None:
    """A second builder of the same key waits for the first, in whatever process it is."""
    inside, go_on = threading.Event(), threading.Event()

    def slow(folder: Path) -> None:
        inside.set()
        assert go_on.wait(60)
        fill(folder)

    builder = threading.Thread(target=cached, args=("kind", "key", slow))
    builder.start()
    assert inside.wait(60)
    code = (
        "from scripts.cache import cached\n"
        "print((cached('kind', 'key', lambda folder: 1 / 0) / 'made').read_text())"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    ) as other:
        assert other.stderr is not None
        assert other.stderr.readline().startswith("waiting for another build")
        go_on.set()
        output, _ = other.communicate(timeout=60)
    builder.join(60)

    assert output == "yes\n"


def test_old_folders_are_forgotten(own_cache: Path) -> None:
    """Of each kind the most recently used stay."""
    for number in range(KEPT_PER_KIND + 2):
        folder = cached("kind", f"key{number}", fill)
        os.utime(folder, (number, number))

    left = sorted(p.name for p in (own_cache / "kind").glob("key*"))

    assert left == [f"key{n}" for n in range(2, KEPT_PER_KIND + 2)]


def test_the_cache_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its place: ours, else the desktop standard's, else below the home folder."""
    monkeypatch.setenv("SUPERVISORD_LLM_CACHE", "/a b/c")
    assert cache_root() == Path("/a b/c")
    monkeypatch.delenv("SUPERVISORD_LLM_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert cache_root() == Path("/x/supervisord-llm")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/me")
    assert cache_root() == Path("/home/me/.cache/supervisord-llm")


def test_a_digest_tells_its_parts_apart() -> None:
    """Moving a byte from one part to the next changes the key."""
    assert digest(["ab", "c"]) != digest(["a", "bc"])
    assert digest(["ab", "c"]) == digest([b"ab", b"c"])


def test_a_tree_is_its_names_and_contents(tmp_path: Path) -> None:
    """A rename changes the key as an edit does; the order of creation does not."""
    tree = tmp_path / "tree"
    (tree / "b").mkdir(parents=True)
    (tree / "b" / "x").write_text("1")
    (tree / "a").write_text("2")

    assert list(tree_parts(tree)) == ["a", b"2", "b/x", b"1"]


def test_a_program_is_replaced_while_it_runs(tmp_path: Path) -> None:
    """Placing makes a new file, so that what runs keeps its own; the same one is left alone."""
    source, target = tmp_path / "new", tmp_path / "program"
    target.write_text("old")
    with target.open() as running:
        source.write_text("newer")
        assert place(source, target) is True
        assert running.read() == "old"
    assert target.read_text() == "newer"
    assert place(source, target) is False
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_file()) == ["new", "program"]
