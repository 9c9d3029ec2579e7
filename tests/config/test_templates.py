"""A pool's chat template: read with the configuration, and as faulty as any other key."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from supervisord_llm.config.diff import PoolChange, compare
from supervisord_llm.config.dump import effective
from supervisord_llm.config.units import show
from tests.config.files import POOL, load_text, problems

KEY = "pool.p.chat_template"


def naming(path: Path | str) -> str:
    """A configuration whose pool has the template of that path."""
    return f'{POOL}chat_template = "{path}"\n'


def test_a_template_is_read_with_the_configuration(tmp_path: Path) -> None:
    """Its text is kept, and its path is what is shown."""
    file = tmp_path / "t.jinja"
    file.write_text("{{ messages[0].content }} é", encoding="utf-8")
    config = load_text(tmp_path, naming(file)).config
    template = config.pool["p"].chat_template
    assert template is not None
    assert (str(file), "{{ messages[0].content }} é") == (template.path, template.source)
    assert f"'chat_template': '{file}'" in str(effective(config))


def test_without_one_it_is_the_models(tmp_path: Path) -> None:
    """Left out, or written as nothing."""
    for text in (POOL, naming("")):
        config = load_text(tmp_path, text).config
        assert config.pool["p"].chat_template is None
        assert "'chat_template': ''" in str(effective(config))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, 'cannot read "FILE": no such file or directory; check its path and permissions'),
        (
            b"a\n\xff",
            'cannot read "FILE" as text: bad UTF-8 in line 2; save the file as UTF-8',
        ),
        (b"{% if x %}\n{{ x }", "cannot use \"FILE\": line 2: unexpected '}'; mend it there"),
        (b"{{ x | shout }}", "cannot use \"FILE\": line 1: No filter named 'shout'"),
        (
            b"x" * (2**20 + 1),
            'cannot use "FILE": longer than 1048576 bytes; write a shorter template',
        ),
    ],
    ids=["missing", "no text", "no template", "unknown filter", "long"],
)
def test_a_file_that_is_no_template_is_a_problem(
    tmp_path: Path, content: bytes | None, expected: str
) -> None:
    """The sentence names the key, the file and the line."""
    file = tmp_path / "t.jinja"
    if content is not None:
        file.write_bytes(content)
    [problem] = problems(tmp_path, naming(file))
    told = expected.replace('"FILE"', show(str(file)))
    assert problem.startswith(f"{KEY}: {told}")


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    """Nobody may ever write to it."""
    os.mkfifo(tmp_path / "pipe")
    [problem] = problems(tmp_path, naming(tmp_path / "pipe"))
    assert problem.endswith("not a file; write the path of a file")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ('"t.jinja"', 'cannot use "t.jinja": not absolute; write an absolute path'),
        ("1", 'cannot use 1; write the absolute path of a Jinja file, or "" for none'),
    ],
)
def test_what_is_no_path_is_a_problem(tmp_path: Path, value: str, expected: str) -> None:
    """What the path would begin at, nobody knows when the daemon reads it again."""
    assert [f"{KEY}: {expected}"] == problems(tmp_path, f"{POOL}chat_template = {value}\n")


def test_a_changed_file_takes_effect_without_new_workers(tmp_path: Path) -> None:
    """It is a change though the configuration's own text is the same."""
    file = tmp_path / "t.jinja"
    file.write_text("old")
    before = load_text(tmp_path, naming(file)).config
    file.write_text("new")
    found = compare(before, load_text(tmp_path, naming(file)).config)
    assert {"p": PoolChange(("chat_template",), rolls=False)} == found.changed
    assert ["pool p: chat_template changed"] == found.sentences
