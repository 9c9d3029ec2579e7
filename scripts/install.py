"""Install the service: ``python -m scripts.install install|uninstall --prefix /usr/local …``.

The program gets a virtual environment of its own below the prefix, so that no other package of the
machine can change what it runs with; only its two commands are linked into the prefix's ``bin``.
A configuration that somebody has edited is never overwritten, and uninstalling leaves it, as it
leaves the daemon's state. With a destination folder everything is put below that instead, for a
package: paths in files are those without it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from scripts.environment import make_environment
from scripts.sources import ROOT
from scripts.steps import StepFailed
from tools.completions import completions
from tools.man import pages

NAME = "supervisord-llm"
PROGRAMS = (NAME, "llmctl")
UNITS = (f"{NAME}.service", f"{NAME}-control.socket", f"{NAME}-inference.socket")
CONFIG = f"{NAME}.toml"
PLACES = ("prefix", "sysconfdir", "unitdir", "sysusersdir", "tmpfilesdir", "mandir")
"""The folders that the caller chooses."""


@dataclass(frozen=True)
class Layout:
    """Where everything goes, as the installed system sees it."""

    prefix: Path
    sysconfdir: Path
    unitdir: Path
    sysusersdir: Path
    tmpfilesdir: Path
    mandir: Path
    destdir: Path
    """What all of it is put below; ``/`` for this system."""

    @property
    def environment(self) -> Path:
        """The virtual environment."""
        return self.prefix / "lib" / NAME

    @property
    def data(self) -> Path:
        """Examples, and the configuration as it was installed."""
        return self.prefix / "share" / NAME

    @property
    def config(self) -> Path:
        """The configuration that the service reads."""
        return self.sysconfdir / NAME / CONFIG

    def staged(self, path: Path) -> Path:
        """Where a path of the installed system is written to."""
        return self.destdir / path.relative_to("/")


def texts(layout: Layout) -> Iterator[tuple[Path, str]]:
    """Every file but the environment and the configuration: its path and its content."""
    for unit in UNITS:
        yield layout.unitdir / unit, _filled(f"systemd/{unit}", layout)
    yield layout.sysusersdir / f"{NAME}.conf", _filled("systemd/sysusers.conf", layout)
    yield layout.tmpfilesdir / f"{NAME}.conf", _filled("systemd/tmpfiles.conf", layout)
    yield layout.data / "gpu.conf", _filled("systemd/gpu.conf", layout)
    for example in ("example.toml", "several-models.toml"):
        yield layout.data / example, _filled(f"config/{example}", layout)
    for name, text in pages().items():
        yield layout.mandir / f"man{name[-1]}" / name, text
    for place, text in completions().items():
        yield layout.prefix / "share" / place, text


def install(layout: Layout, wheel: Path) -> None:
    """Put everything in place.

    Raises:
        StepFailed: a step failed; says why and what to do.
    """
    make_environment(layout.staged(layout.environment), layout.environment, wheel)
    for program in PROGRAMS:
        link = layout.staged(layout.prefix / "bin" / program)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(f"../lib/{NAME}/bin/{program}")
    for path, text in texts(layout):
        _write(layout.staged(path), text)
    told = _install_config(layout)
    print(f"installed below {layout.destdir / layout.prefix.relative_to('/')}; {told}")


def uninstall(layout: Layout) -> None:
    """Remove what `install` put, and nothing else; folders only if they are then empty."""
    shutil.rmtree(layout.staged(layout.environment), ignore_errors=True)
    for program in PROGRAMS:
        link = layout.staged(layout.prefix / "bin" / program)
        if link.is_symlink() and str(link.readlink()) == f"../lib/{NAME}/bin/{program}":
            link.unlink()
    for path, _ in texts(layout):
        layout.staged(path).unlink(missing_ok=True)
    data = layout.staged(layout.data)
    (data / CONFIG).unlink(missing_ok=True)
    if data.is_dir() and not any(data.iterdir()):
        data.rmdir()
    print(f"removed; {layout.staged(layout.config).parent} and the daemon's state are left")


def _install_config(layout: Layout) -> str:
    """Bring the configuration up to date unless somebody has edited it; what was done."""
    wanted = _filled("config/service.toml", layout)
    target, pristine = layout.staged(layout.config), layout.staged(layout.data / CONFIG)
    before = pristine.read_text(encoding="utf-8") if pristine.exists() else None
    _write(pristine, wanted)
    present = target.read_text(encoding="utf-8", errors="replace") if target.exists() else None
    if present in {None, before, wanted}:
        _write(target, wanted)
        return f"the configuration is {layout.config}"
    if before == wanted:  # they have seen it, and decided
        return f"{layout.config} is as you left it"
    new = target.with_name(CONFIG + ".new")
    _write(new, wanted)
    return f"{layout.config} is as you left it; what has changed is in {new.name} beside it"


def _filled(source: str, layout: Layout) -> str:
    text = (ROOT / source).read_text(encoding="utf-8")
    values = {
        "@BINDIR@": layout.prefix / "bin",
        "@CONFDIR@": layout.config.parent,
        "@DATADIR@": layout.data,
    }
    for name, value in values.items():
        text = text.replace(name, str(value))
    return text


def _write(path: Path, text: str) -> None:
    """Replace a file by rename: whoever reads it meanwhile sees one of the two, whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.installing")
    new.write_text(text, encoding="utf-8")
    new.chmod(0o644)
    new.replace(path)


def _absolute(text: str) -> Path:
    path = Path(os.path.normpath(text))
    if not path.is_absolute() or any(char.isspace() for char in text):
        raise argparse.ArgumentTypeError(f"{text!r}; write an absolute path without spaces")
    return path


def _destination(text: str) -> Path:
    return Path(text or "/").absolute()


def main() -> int:
    """The command line; exit status 1 with a message where something failed."""
    parser = argparse.ArgumentParser(prog="install", description=__doc__.split(":")[0])
    parser.add_argument("what", choices=("install", "uninstall"))
    parser.add_argument("--wheel", type=Path, help="what `make wheel` made")
    for place in PLACES:
        parser.add_argument(f"--{place}", type=_absolute, required=True)
    parser.add_argument("--destdir", type=_destination, default=Path("/"))
    options = parser.parse_args()
    places = {place: getattr(options, place) for place in PLACES}
    layout = Layout(**places, destdir=options.destdir)
    try:
        if options.what == "uninstall":
            uninstall(layout)
        elif options.wheel is None:
            parser.error("cannot install without --wheel")
        else:
            install(layout, options.wheel)
    except StepFailed as failure:
        print(failure, file=sys.stderr)
        return 1
    except OSError as error:
        where = error.filename or layout.prefix
        print(
            f"cannot write {where}: {error.strerror}; be root, or choose another PREFIX or DESTDIR",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
