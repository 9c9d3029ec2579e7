"""What `make install` puts where, what it leaves alone, and what `make uninstall` takes away."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import install as installing
from scripts.environment import runtime_requirements
from scripts.install import Layout, install, uninstall
from scripts.sources import ROOT
from supervisord_llm.config.load import load

PREFIX = Path("/usr/local")


@pytest.fixture
def layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layout:
    """The usual places below a folder of the test, with an environment that takes no time."""

    def make(staged: Path, final: Path, wheel: Path) -> None:
        shutil.rmtree(staged, ignore_errors=True)
        (staged / "bin").mkdir(parents=True)
        for program in installing.PROGRAMS:
            (staged / "bin" / program).write_text(f"{final} {wheel}")

    monkeypatch.setattr(installing, "make_environment", make)
    return Layout(
        prefix=PREFIX,
        sysconfdir=Path("/etc"),
        unitdir=PREFIX / "lib/systemd/system",
        sysusersdir=PREFIX / "lib/sysusers.d",
        tmpfilesdir=PREFIX / "lib/tmpfiles.d",
        mandir=PREFIX / "share/man",
        destdir=tmp_path,
    )


def files(layout: Layout) -> set[str]:
    """Everything below the destination but folders, by its path on the installed system."""
    found = layout.destdir.rglob("*")
    return {f"/{each.relative_to(layout.destdir)}" for each in found if not each.is_dir()}


def test_everything_has_its_place_and_no_file_names_the_destination(layout: Layout) -> None:
    """Programs, units, users, manual pages and completions, with the prefix in them."""
    install(layout, Path("some.whl"))
    installed = files(layout)
    assert installed >= {
        "/etc/supervisord-llm/supervisord-llm.toml",
        "/usr/local/bin/llmctl",
        "/usr/local/bin/supervisord-llm",
        "/usr/local/lib/systemd/system/supervisord-llm-control.socket",
        "/usr/local/lib/systemd/system/supervisord-llm-inference.socket",
        "/usr/local/lib/systemd/system/supervisord-llm.service",
        "/usr/local/lib/sysusers.d/supervisord-llm.conf",
        "/usr/local/lib/tmpfiles.d/supervisord-llm.conf",
        "/usr/local/share/bash-completion/completions/llmctl",
        "/usr/local/share/fish/vendor_completions.d/llmctl.fish",
        "/usr/local/share/man/man1/llmctl.1",
        "/usr/local/share/man/man5/supervisord-llm.toml.5",
        "/usr/local/share/man/man8/supervisord-llm.8",
        "/usr/local/share/zsh/site-functions/_llmctl",
    }
    for name in installed:
        text = (layout.destdir / name[1:]).read_text()
        assert str(layout.destdir) not in text, name
        assert "@BINDIR@" not in text and "@CONFDIR@" not in text and "@DATADIR@" not in text, name
    unit = (layout.destdir / "usr/local/lib/systemd/system/supervisord-llm.service").read_text()
    assert (
        "ExecStart=/usr/local/bin/supervisord-llm run "
        "--config /etc/supervisord-llm/supervisord-llm.toml\n"
    ) in unit
    assert (layout.destdir / "usr/local/bin/llmctl").readlink() == Path(
        "../lib/supervisord-llm/bin/llmctl"
    )


def test_the_configuration_that_is_installed_is_valid(layout: Layout) -> None:
    """A new user only has to say where the model is."""
    install(layout, Path("some.whl"))
    loaded = load(layout.staged(layout.config), {"RUNTIME_DIRECTORY": "/run/supervisord-llm"})
    sockets = [listen.address for listen in loaded.config.listen]
    assert sockets == [
        "unix:/run/supervisord-llm/control.sock",
        "unix:/run/supervisord-llm/inference.sock",
    ]
    assert [unit for unit in installing.UNITS if unit.endswith(".socket")] == [
        f"supervisord-llm-{Path(address).stem}.socket" for address in sockets
    ]
    assert list(loaded.warnings) == []


def test_an_edited_configuration_is_never_overwritten(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a later version brings lies beside it; one that nobody has touched is replaced."""
    config = layout.staged(layout.config)
    install(layout, Path("some.whl"))
    first = config.read_text()
    filled = installing._filled
    monkeypatch.setattr(
        installing,
        "_filled",
        lambda source, where: filled(source, where) + "# newer\n" * ("service.toml" in source),
    )
    install(layout, Path("some.whl"))
    assert config.read_text() == first + "# newer\n"
    config.write_text("# mine\n")
    install(layout, Path("some.whl"))
    assert (config.read_text(), list(config.parent.iterdir())) == ("# mine\n", [config])
    monkeypatch.setattr(installing, "_filled", filled)
    install(layout, Path("some.whl"))
    assert config.read_text() == "# mine\n"
    assert config.with_name(config.name + ".new").read_text() == first


def test_what_was_installed_is_removed_and_nothing_else(layout: Layout) -> None:
    """The configuration stays, and so does what others have put in the same folders."""
    other = layout.destdir / "usr/local/bin/other"
    other.parent.mkdir(parents=True)
    other.write_text("")
    install(layout, Path("some.whl"))
    uninstall(layout)
    assert files(layout) == {"/etc/supervisord-llm/supervisord-llm.toml", "/usr/local/bin/other"}
    uninstall(layout)
    (layout.destdir / "usr/local/bin/llmctl").write_text("somebody else's")
    uninstall(layout)
    assert (layout.destdir / "usr/local/bin/llmctl").exists()


def test_make_passes_its_variables_on() -> None:
    """DESTDIR, PREFIX and the folders reach the installer, each as one word."""
    argv = ["make", "--dry-run", "uninstall", "DESTDIR=/a b", "PREFIX=/p", "UNITDIR=/u"]
    environ = {name: value for name, value in os.environ.items() if name != "MAKEFLAGS"}
    shown = subprocess.run(argv, cwd=ROOT, env=environ, capture_output=True, text=True, check=True)
    for word in ("--destdir '/a b'", "--prefix '/p'", "--unitdir '/u'", "--mandir '/p/share/man'"):
        assert word in shown.stdout


def test_a_folder_that_may_not_be_written_to_is_named(tmp_path: Path) -> None:
    """The installer says so in a sentence."""
    (tmp_path / "etc").write_text("no folder")
    places = [word for place in installing.PLACES for word in (f"--{place}", "/etc/x")]
    argv = [sys.executable, "-m", "scripts.install", "uninstall", *places]
    done = subprocess.run(
        [*argv, "--destdir", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("cannot write ") and "Traceback" not in done.stderr


def test_only_what_the_program_needs_is_installed_with_it() -> None:
    """No build tool and no test tool; each with its version and its hashes."""
    lines = runtime_requirements().splitlines()
    names = {line.split("==")[0] for line in lines if "==" in line}
    assert names >= {"trio", "msgspec", "hypercorn", "click"}
    assert names & {"cmake", "ninja", "hatchling", "pytest"} == set()
    assert sum("--hash=sha256:" in line for line in lines) >= len(names)
