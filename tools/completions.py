"""The shells' completion scripts, as click makes them for our commands.

They are put where bash, zsh and fish look for those of installed programs, so nobody has to change
a start-up file. Names that only the daemon knows are asked from it (``cli/completion.py``).
"""

from __future__ import annotations

from collections.abc import Iterator

import click
from click.shell_completion import get_completion_class

from supervisord_llm.cli import ctl, daemon

_PLACES = {
    "bash": "bash-completion/completions/{}",
    "zsh": "zsh/site-functions/_{}",
    "fish": "fish/vendor_completions.d/{}.fish",
}
"""Below ``share``, by shell."""


def completions() -> dict[str, str]:
    """Every script by its path below ``share``."""
    return dict(_scripts())


def _scripts() -> Iterator[tuple[str, str]]:
    for name, group in ((ctl.PROGRAM, ctl.cli), (daemon.PROGRAM, daemon.cli)):
        for shell, place in _PLACES.items():
            yield place.format(name), _script(shell, name, group)


def _script(shell: str, name: str, group: click.Group) -> str:
    maker = get_completion_class(shell)
    assert maker is not None, shell
    variable = f"_{name}_COMPLETE".replace("-", "_").upper()
    made = maker(group, {}, name, variable)
    # Not its source(), which wants to run the shell: that need not be installed here.
    return made.source_template % made.source_vars()
