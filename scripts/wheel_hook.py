"""Hatchling's hook: puts the native workers into a wheel, and names the machine that it fits.

Not run by hand: `make wheel` builds the workers and says here where they are. An editable install
(`make build`) needs none in it, since there they are put beside the environment's scripts.
"""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

WORKERS_VARIABLE = "SUPERVISORD_LLM_WORKERS"
"""The folder of the built workers."""
LICENSES_VARIABLE = "SUPERVISORD_LLM_LICENSES"
"""The folder with the licences of what is linked into them, each file named after its library."""


class WheelHook(BuildHookInterface[Any]):
    """Adds to the wheel what hatchling cannot find by itself."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the workers as scripts, which pip makes executable, and tag the wheel.

        Args:
            version: ``standard`` or ``editable``.
            build_data: what hatchling builds from, changed in place.

        Raises:
            ValueError: if a wheel is to be made and nobody has built workers for it.
        """
        if version == "editable":
            return
        folder = os.environ.get(WORKERS_VARIABLE)
        if not folder:
            raise ValueError(
                "cannot make a wheel: it would have no native workers; use `make wheel`"
            )
        build_data["shared_scripts"] = {
            os.fspath(path): path.name for path in sorted(Path(folder).iterdir())
        }
        build_data["extra_metadata"] = {
            os.fspath(path): f"licenses/{path.name}"
            for path in sorted(Path(os.environ[LICENSES_VARIABLE]).iterdir())
        }
        # The workers are linked with this machine's C library and know nothing of Python.
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform}"
