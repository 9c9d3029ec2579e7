"""Who may import whom: a layer knows only what is below it.

The table is checked against the source, imports for type checkers included, since a name that is
only needed for typing couples two layers all the same.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = "supervisord_llm"
ROOT = Path(__file__).parents[1]

ALLOWED: dict[str, set[str]] = {
    "__main__": {"cli.daemon"},
    "api": {
        "runtime", "openai", "telemetry", "events", "errors", "config", "schema", "core.words",
        "host.peers", "host.systemd", "starlette", "hypercorn", "msgspec", "trio",
        # The types of what the runtime's objects hold, which the API turns into its own records.
        "core.record", "wire.messages",
        # Hypercorn's parser, whose bare refusals the listener watches.
        "h11",
    },
    "cli": {"client", "schema", "errors", "paths", "core.words", "msgspec", "httpx", "trio",
            "click", "rich"},
    "cli.daemon": {"daemon", "config", "errors", "paths", "msgspec", "click", "rich"},
    "client": {"schema", "errors", "paths", "core.words", "msgspec", "httpx", "trio"},
    "config": {"errors", "paths", "core.words", "msgspec"},
    # A file that is no template is a mistake in the configuration like any other.
    "config.templates": {"openai.bounds", "openai.templates", "msgspec"},
    "core": {"errors", "msgspec"},
    "daemon": {"api", "config", "core", "errors", "events", "host", "openai", "paths", "runtime",
               "schema", "telemetry", "wire", "msgspec", "trio"},
    "errors": {"core.words"},
    "events": {"core.words", "msgspec"},
    "host": {"errors", "config", "msgspec"},
    "openai": {"core", "wire", "errors", "jinja2", "msgspec"},
    "paths": {"errors"},
    "runtime": {"core", "wire", "host", "config", "events", "errors", "msgspec", "trio"},
    "schema": {"core.words", "msgspec"},
    "telemetry": {"events", "errors", "config", "core.words", "msgspec", "structlog", "trio",
                  "prometheus_client"},
    "wire": {"core", "errors", "msgspec"},
}  # fmt: skip
"""By layer: the modules of the package, and the libraries, that it may import besides itself."""

_IMPURE = {"logging", "os", "random", "select", "signal", "socket", "subprocess", "threading",
           "time"}  # fmt: skip
FORBIDDEN: dict[str, set[str]] = {
    "api": {"signal", "subprocess"},
    "core": _IMPURE,
    "openai": _IMPURE,
    "wire": _IMPURE,
}
"""By layer: modules of the standard library that it may not touch."""


def layer_of(module: str) -> str | None:
    """The row of the table that a module, named without the package, belongs to."""
    rows = [row for row in ALLOWED if within(module, row)]
    return max(rows, key=len, default=None)


def within(module: str, name: str) -> bool:
    """Whether a module is the named one or in it."""
    return module == name or module.startswith(name + ".")


def imported(source: str, root: Path) -> Iterator[str]:
    """The full name of each module that a source file imports, wherever in the file."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            folder = root / base.replace(".", "/")
            for alias in node.names:
                is_module = (folder / f"{alias.name}.py").exists() or (folder / alias.name).is_dir()
                yield f"{base}.{alias.name}" if is_module else base


def wrong_imports(module: str, source: str, root: Path = ROOT) -> list[str]:
    """What a module, named without the package, imports against the table."""
    layer = layer_of(module)
    if layer is None:
        return ["it belongs to no layer"]
    wrong = []
    for name in sorted(set(imported(source, root))):
        own = name.removeprefix(PACKAGE + ".")
        top = name.split(".")[0]
        if name == PACKAGE or within(own, layer.split(".")[0]):
            continue
        if top in sys.stdlib_module_names:
            allowed = not any(within(name, each) for each in FORBIDDEN.get(layer, set()))
            allowed = allowed and top != "asyncio"
        else:
            allowed = any(within(own, each) for each in ALLOWED[layer])
        if not allowed:
            wrong.append(f"{layer} may not import {name}")
    return wrong


def modules() -> list[str]:
    """The package's modules, named without the package."""
    found = []
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        parts = path.relative_to(ROOT / PACKAGE).with_suffix("").parts
        if parts != ("__init__",):
            found.append(".".join(part for part in parts if part != "__init__"))
    return found


@pytest.mark.parametrize("module", modules())
def test_a_module_imports_only_what_its_layer_may(module: str) -> None:
    """Each module keeps to its layer's row."""
    path = ROOT / PACKAGE / module.replace(".", "/")
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    found = wrong_imports(module, file.read_text())
    assert not found


@pytest.mark.parametrize(
    ("module", "source", "expected"),
    [
        ("core.slot", "import trio", "core may not import trio"),
        ("core.slot", "def f():\n    from time import time", "core may not import time"),
        ("core.slot", "import os.path", "core may not import os.path"),
        (
            "wire.serial",
            "from supervisord_llm import runtime",
            "wire may not import supervisord_llm.runtime",
        ),
        (
            "telemetry.log",
            "from supervisord_llm.core import slot",
            "telemetry may not import supervisord_llm.core.slot",
        ),
        (
            "api.app",
            "if TYPE_CHECKING:\n    from supervisord_llm.host.tree import scan",
            "api may not import supervisord_llm.host.tree",
        ),
        (
            "cli.status",
            "from supervisord_llm.daemon import run",
            "cli may not import supervisord_llm.daemon",
        ),
        ("client", "import asyncio", "client may not import asyncio"),
        ("core.slot", "from ..host import tree", "core may not import ..host"),
        (
            "events",
            "import supervisord_llm.errorsource",
            "events may not import supervisord_llm.errorsource",
        ),
        ("attic.old", "", "it belongs to no layer"),
    ],
)  # fmt: skip
def test_a_wrong_import_is_noticed(module: str, source: str, expected: str) -> None:
    """An import against the table is found at any depth and in any spelling."""
    assert [expected] == wrong_imports(module, source)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("core.slot", "import msgspec\nfrom supervisord_llm.core import words"),
        ("telemetry.log", "from supervisord_llm.core.words import Outcome\nimport time"),
        ("cli.daemon", "from supervisord_llm import __version__\nimport supervisord_llm.daemon"),
        ("runtime.pool", "from supervisord_llm.host import tree\nimport os, trio"),
    ],
)
def test_a_right_import_is_not_complained_about(module: str, source: str) -> None:
    """What the table allows, the layer itself and the standard library pass."""
    found = wrong_imports(module, source)
    assert not found
