"""The manual pages and completions say what the program says."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from supervisord_llm.cli import ctl, daemon
from tools.completions import completions
from tools.man import pages, roff
from tools.man.__main__ import main
from tools.reference.configuration import tables


def plain(page: str) -> str:
    """What a reader sees, roughly: without fonts and escapes."""
    return re.sub(r"\\f[BRI]", "", pages()[page]).replace("\\-", "-").replace("\\&", "")


@pytest.mark.parametrize("name", sorted(pages()))
def test_a_page_is_well_formed(name: str) -> None:
    """Groff finds nothing to complain about, on a page of the section that its name says."""
    assert re.match(rf'\.TH "{name[:-2].upper()}" "{name[-1]}" ', pages()[name])
    if shutil.which("groff") is None:
        pytest.skip("there is no groff")
    argv = ["groff", "-man", "-ww", "-z", "-Tascii"]
    done = subprocess.run(argv, input=pages()[name], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("page", "group"), [("llmctl.1", ctl.cli), ("supervisord-llm.8", daemon.cli)]
)
def test_every_command_is_there(page: str, group: click.Group) -> None:
    """With its usage and its options."""
    text = plain(page)
    for verb, command in group.commands.items():
        assert f'.SS "{page[:-2]} {verb} ' in text
        for parameter in command.params:
            if isinstance(parameter, click.Option) and not parameter.hidden:
                assert parameter.opts[-1] in text


def test_every_key_is_there() -> None:
    """Each under the heading of its table."""
    text = plain("supervisord-llm.toml.5")
    for table in tables():
        section = text.partition(f'.SS "{table.title.replace("`", "")}"\n')[2].partition(".SS ")[0]
        for key in table.keys:
            assert f"\n{key.name}\n" in section, (table.title, key.name)


@pytest.mark.parametrize(
    ("markdown", "expected"),
    [
        (".hidden text", r"\&.hidden text"),
        ("'quoted", r"\&'quoted"),
        ("a `--flag` and [a link](x.md#y)", r"a \fB\-\-flag\fR and a link"),
        ('back\\slash "quote"', r"back\eslash \(dqquote\(dq"),
    ],
)
def test_text_is_never_taken_for_a_command(markdown: str, expected: str) -> None:
    """What would mean something to groff is made to mean itself."""
    assert expected == roff.text(markdown)


def test_the_pages_are_written_into_a_folder(tmp_path: Path) -> None:
    """For whoever only wants to read them."""
    assert CliRunner().invoke(main, [str(tmp_path / "new")]).exit_code == 0
    assert {path.name: path.read_text() for path in (tmp_path / "new").iterdir()} == pages()


@pytest.mark.parametrize("name", ["llmctl", "supervisord-llm"])
@pytest.mark.parametrize(
    ("shell", "place"),
    [
        ("bash", "bash-completion/completions/{}"),
        ("zsh", "zsh/site-functions/_{}"),
        ("fish", "fish/vendor_completions.d/{}.fish"),
    ],
)
def test_a_shell_understands_its_completion(shell: str, place: str, name: str) -> None:
    """The script asks the program by the variable that it listens to, and parses."""
    script = completions()[place.format(name)]
    assert f"_{name.upper().replace('-', '_')}_COMPLETE={shell}_complete" in script
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell}")
    done = subprocess.run([shell, "-n"], input=script, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
