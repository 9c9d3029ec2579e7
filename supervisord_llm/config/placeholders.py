"""What stands in braces in the configuration: folders, packages, and facts of a slot.

``{{`` and ``}}`` are braces. Python's own ``str.format`` was not taken: it offers attributes and
indices of what it fills in, and its complaints do not say what to write.
"""

from __future__ import annotations

import difflib
import importlib.util
import os
import re
import sysconfig
from collections.abc import Callable, Mapping

from supervisord_llm import paths
from supervisord_llm.config.units import show

Known = Mapping[str, Callable[[], str]]
"""Placeholders and what yields their values, asked only where they are used."""

SLOT_FACTS = ("slot", "index", "threads")
"""What differs from slot to slot: its name, its number in the pool, its share of the cores."""

_TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_PACKAGE = re.compile(r"package:(.*)", re.DOTALL)
_MODULE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def bin_dir() -> str:
    """The folder of our workers and scripts."""
    return sysconfig.get_path("scripts")


def folders(environ: Mapping[str, str]) -> dict[str, Callable[[], str]]:
    """The placeholders with a value everywhere; `paths.runtime_dir` may refuse with its error."""
    return {
        "runtime_dir": lambda: os.fspath(paths.runtime_dir(environ)),
        "data_dir": lambda: os.fspath(paths.data_dir(environ)),
        "bin_dir": bin_dir,
    }


def fill(text: str, known: Known, *, secret: bool = False) -> str:
    """The text with every placeholder replaced by its value.

    Args:
        text: what was written.
        known: the placeholders, besides ``{package:NAME}``.
        secret: whether the text must not be repeated in an error.

    Raises:
        ValueError: for a placeholder without a value or a lone brace; it says what to write.
        OperatorError: if a folder cannot be used.
    """

    def value(match: re.Match[str]) -> str:
        token, name = match[0], match[1]
        if token in {"{{", "}}"}:
            return token[0]
        if name is None:
            what = "the placeholders" if secret else show(text)
            raise ValueError(f'cannot fill in {what}: a lone "{token}"; write "{token * 2}" for it')
        if package := _PACKAGE.fullmatch(name):
            return _package_folder(package[1], secret=secret)
        if name not in known:
            raise ValueError(_unknown(name, known, secret=secret))
        return known[name]()

    return _TOKEN.sub(value, text)


def _unknown(name: str, known: Known, *, secret: bool) -> str:
    braces = "{" + name + "}"
    if name in SLOT_FACTS:
        return (
            f'cannot fill in "{braces}": it differs from slot to slot; use it in command, env or '
            "per_slot_env of a pool"
        )
    names = [*known, "package:NAME"]
    if close := difflib.get_close_matches(name, names, n=1):
        return f'cannot fill in {show(braces)}: unknown; did you mean "{{{close[0]}}}"?'
    listed = ", ".join("{" + each + "}" for each in names)
    what = "a placeholder" if secret else show(braces)
    return f'cannot fill in {what}: unknown; there are {listed}, and "{{{{" for a brace'


def _package_folder(name: str, *, secret: bool) -> str:
    # A dotted name would import, hence run, what is before its last dot.
    spec = None
    if _MODULE.fullmatch(name):
        try:
            spec = importlib.util.find_spec(name)
        except ValueError:  # a module that was made without a spec, such as __main__
            spec = None
    if spec is not None and spec.submodule_search_locations:
        return next(iter(spec.submodule_search_locations))
    what = "{package:…}" if secret else show("{package:" + name + "}")
    raise ValueError(
        f"cannot fill in {what}: no such package can be imported; install it where "
        "supervisord-llm is, under the name that `import` takes, or write the path"
    )
